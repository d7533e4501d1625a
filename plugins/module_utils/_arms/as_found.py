# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host as it was found: the baseline of arms that change one thing, and the only arm where nothing is compared."""

from ansible_collections.threadwise.smt.plugins.module_utils._arms.base import Boot, RuntimeArm
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms


class AsFound(RuntimeArm):
    """The host as it was found; where arms are booted, a boot without arguments."""

    pattern = arms.AS_FOUND
    summary = "the host as it was found; nothing is switched"
    boot = Boot("", smt="enabled")


ARMS = (AsFound,)
