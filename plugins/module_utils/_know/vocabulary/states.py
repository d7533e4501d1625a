# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other words for the states of SMT.

Ansible makes ``on`` and ``off`` of YAML's true and false where these are the only such words among an option's choices.
"""

WORDS = {"on": "enabled", "off": "disabled"}


def named(given: "str | None") -> "str | None":
    """Return the name of a state that was given by its name or by another word for it; None for None."""
    return WORDS.get(given, given) if given is not None else None
