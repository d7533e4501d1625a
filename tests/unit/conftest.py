# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for all unit tests: none fails for being slow."""

from __future__ import annotations

import hypothesis

# A machine is shared, and how long an example takes says nothing of the code.
hypothesis.settings.register_profile("shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("shared")
