# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host as it was found: the baseline of arms that change one thing, and the only arm where nothing is compared.
Once more, alike or with more work, it shows what a comparison says where the truth is known.
"""

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import Boot, RuntimeArm


class AsFound(RuntimeArm):
    """The host as it was found; where arms are booted, a boot without arguments."""

    pattern = arms.AS_FOUND
    summary = "the host as it was found; nothing is switched"
    boot = Boot("", smt="enabled")


class Again(RuntimeArm):
    """The same as the host as it was found; a comparison of the two has nothing to find."""

    pattern = "again"
    summary = "the host as it was found, a second time: what a comparison of two equal arms says"


class MoreWork(RuntimeArm):
    """The host as it was found, and more work in each sample: an effect whose size is known."""

    pattern = "more_work_[1-9][0-9]?"
    written = ("more_work_N",)
    summary = "the host as it was found, with N percent more work in each sample: an effect of known size"
    needs = "workloads with an amount of work in their command, such as `python_loop`"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        percent = int(name.rpartition("_")[2])
        self.more_work = 1 + percent / 100
        self.settings = {"more_work": self.more_work}

    @property
    def title(self) -> str:
        """How much more."""
        return f"{self.name.rpartition('_')[2]} % more work"


ARMS = (AsFound, Again, MoreWork)
