# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arms of SMT, which both the host and the controller know by name; every other arm brings its title along in the result."""

SMT_ON, SMT_OFF, AS_FOUND = "smt_on", "smt_off", "as_found"
TITLES = {SMT_ON: "SMT on", SMT_OFF: "SMT off", AS_FOUND: "as found"}
