# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host as it was found: the baseline of arms that change one thing, and the only arm where nothing is compared."""

from ansible_collections.threadwise.smt.plugins.module_utils._arms.base import Arm
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms


class AsFound(Arm):
    """The host as it was found."""

    pattern = arms.AS_FOUND
    summary = "the host as it was found; nothing is switched"

    @classmethod
    def title_of(cls, name: str) -> str:
        """Return the title of the arm with a name."""
        return arms.TITLES[name]


ARMS = (AsFound,)
