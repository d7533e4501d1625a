# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host keeps of its state from before a policy changed it,
from before the first change until nobody needs it any more.

If the controller dies in between, the host still has it, also after a reboot.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict

FILE = state_file.StateFile(
    "var/lib/threadwise-smt/rollout-rollback.json", "threadwise.smt/rollout-rollback", limit=host_files.LARGE
)


class Pending(TypedDict):
    """What the facts say of it. Both are None where the file is damaged, or cannot be read by this user.

    Attributes:
        since: when it was saved, UTC.
        back_to: the state in a few words.
    """

    since: "str | None"
    back_to: "str | None"


def pending(fs: host_files.HostFs) -> "Pending | None":
    """Return what a rollout has saved before it changed this host, unless the host was found healthy since;
    None without.

    Args:
        fs: the host's files; `fs.problems` gets the reason why the file cannot be used.
    """
    try:
        return FILE.load(fs, _pending)
    except state_file.StateFileError as error:
        fs.note(f"The pending rollback of the last rollout was ignored: {error}.")
        return {"since": None, "back_to": None}


def _pending(document: "t.Mapping[str, t.Any]") -> "Pending | None":
    if document["rollout"] is not True:
        return None
    return {"since": str(document["saved_at"])[:100], "back_to": str(document["back_to"])[:2000]}
