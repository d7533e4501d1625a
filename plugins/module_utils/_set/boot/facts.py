# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot part of the facts: SMT arguments of the running kernel, those of the next boot,
and whether a reboot would change them.
"""

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import detection, entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.arguments import (
    are_same,
    smt_arguments,
    split_arguments,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import registry

_NAMES = [loader.name for loader in registry.LOADERS]


class BootFacts(TypedDict):
    """Facts about boot arguments. The lists hold the arguments that affect SMT, in order.

    Attributes:
        running: arguments of the running kernel; None when they cannot be read.
        configured: arguments of the next boot; None when it is not known which entry boots next.
        loader: name of the boot loader.
        reboot_required: whether the two lists differ; None when one of them is unknown.
    """

    running: "list[str] | None"
    configured: "list[str] | None"
    loader: str
    reboot_required: "bool | None"


class BootMethods(TypedDict):
    """Methods to set a boot argument.

    Attributes:
        chosen: the method for this host, or None.
        possible: methods that work on this host.
        impossible: for each other method the reason why it does not.
    """

    chosen: "str | None"
    possible: "list[str]"
    impossible: "dict[str, str]"


def read(fs: host_files.HostFs, detected: detection.DetectedLoader) -> BootFacts:
    """Return the facts about boot arguments.

    Args:
        fs: the host's files.
        detected: the host's boot loader.

    Returns:
        The facts.
    """
    cmdline = fs.read("proc/cmdline")
    running = None if cmdline is None else list(dict.fromkeys(smt_arguments(split_arguments(cmdline))))
    configured = None if detected.loader is None else _configured(detected.loader.read_entries(fs))
    reboot_required = None if running is None or configured is None else not are_same(running, configured)
    return {"running": running, "configured": configured, "loader": detected.name, "reboot_required": reboot_required}


def _configured(entries: "list[boot_entries.Entry]") -> "list[str] | None":
    """Return the SMT arguments on which all entries that can boot by default agree;
    None when there are no such entries or they differ.

    The default entry can depend on variables, fallbacks and the last choice in the menu, so no single entry is trusted.
    Entries for recovery do not boot by default, and those written by hand or for another system are not generated from
    this host's settings.
    """
    normal = [entry for entry in entries if entry.generated and not entry.is_rescue]
    # What another tool sets, too, is there once. What one setting has twice, smt_boot_args would change.
    distinct = {
        tuple(
            smt_arguments(
                [*entry.arguments, *(argument for argument in entry.borrowed if argument not in entry.arguments)]
            )
        )
        for entry in normal
    }
    return list(distinct.pop()) if len(distinct) == 1 else None


def methods(detected: detection.DetectedLoader, blocked_by: "str | None") -> BootMethods:
    """Return the methods to set a boot argument, possible and impossible ones.

    Args:
        detected: the host's boot loader.
        blocked_by: why the boot configuration cannot be written at all, or None.

    Returns:
        The methods.
    """
    if detected.loader is None or detected.blocked_by is not None:
        reasons = dict.fromkeys(_NAMES, detected.blocked_by or "no boot loader was found")
    else:
        reasons = dict.fromkeys(_NAMES, f"the boot loader found here is {detected.name}")
        del reasons[detected.name]
        if blocked_by is not None:
            reasons[detected.name] = blocked_by
    possible = [] if len(reasons) == len(_NAMES) else [detected.name]
    return {"chosen": possible[0] if possible else None, "possible": possible, "impossible": reasons}
