# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that say how a metrics server is reached."""

from __future__ import annotations

# What each is called after the beginning.
NAMES = ("url", "token", "user", "password", "ca", "certificate", "key")
# How their names begin.
OF_TRIAL = "smt_trial_metrics_"
OF_COMPLIANCE = "smt_compliance_metrics_"
