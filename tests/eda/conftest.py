# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of the remediation use the helpers of the unit tests, and the simulated hosts of those of playbooks."""

from __future__ import annotations

import pathlib
import sys

TESTS = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "unit" / "support"), str(TESTS / "playbooks")]
