# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory policy of a host as data, whatever it is: what a change puts back as `memory_change.PREVIOUS`."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import (
    facts as memory_facts,
    policy as memory_policy,
    snapshot as memory_snapshot,
    sysctl_files,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.services import oom_score


class Frame(TypedDict):
    """What is there, plain JSON data.

    Attributes:
        sysctls: values in the kernel by name, of all sysctls that it has.
        text: of this collection's sysctl.d file; None without one.
        drop_ins: text of each drop-in of this collection, by unit.
        snapshot: the policy from before the first change, which `restored` brings back.
    """

    sysctls: memory_policy.Settings
    text: "str | None"
    drop_ins: "dict[str, str]"
    snapshot: memory_snapshot.Snapshot


def present(fs: HostFs) -> Frame:
    """Return the present memory policy of a host.

    Args:
        fs: the host's files.

    Raises:
        MemoryPolicyError: a file of this collection is no text file, or the snapshot cannot be used.
    """
    texts = {unit: sysctl_files.own_text(fs, oom_score.drop_in_path(unit)) for unit in oom_score.with_drop_in(fs)}
    return {
        "sysctls": {name: value for name, value in memory_facts.read_settings(fs).items() if value is not None},
        "text": sysctl_files.own_text(fs, sysctl_files.OURS),
        "drop_ins": {unit: text for unit, text in texts.items() if text is not None},
        "snapshot": memory_snapshot.load(fs),
    }


def checked(document: t.Any) -> Frame:
    """Return a frame that comes from a file.

    Raises:
        ValueError: or KeyError, TypeError, AttributeError: it is not a valid one.
    """
    text, drop_ins = document["text"], dict(document["drop_ins"])
    if not (text is None or isinstance(text, str)) or not all(
        oom_score.NAME.match(unit) and isinstance(content, str) for unit, content in drop_ins.items()
    ):
        raise ValueError("its files of the memory policy are not valid")
    return {
        "sysctls": memory_snapshot.checked_sysctls(document["sysctls"]),
        "text": text,
        "drop_ins": drop_ins,
        "snapshot": memory_snapshot.checked(document["snapshot"]),
    }


def described(frame: Frame) -> str:
    """Return the policy in a few words:
    ``vm.overcommit_memory 2, vm.panic_on_oom 0, db.service spared by the OOM killer``.
    """
    values = [
        f"{name} {frame['sysctls'][name]}"
        for name in (memory_policy.OVERCOMMIT, memory_policy.ON_OOM)
        if name in frame["sysctls"]
    ]
    return ", ".join([*values, *(f"{unit} spared by the OOM killer" for unit in sorted(frame["drop_ins"]))])
