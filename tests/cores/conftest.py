# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests with another release of ansible-core share with those of playbooks."""

from __future__ import annotations

import pathlib
import sys

TESTS = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "unit" / "support"), str(TESTS / "playbooks")]
