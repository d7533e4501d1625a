# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The class of all errors of this package."""

from __future__ import annotations


class FleetError(Exception):
    """A policy or a result cannot be used for a host; the message gives the reason and what to do."""
