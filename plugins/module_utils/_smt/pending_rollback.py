# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pending rollback of a rollout's change, stored on the host from before the change until the host was found healthy.

If the controller dies in between, the host still knows how to undo the change, also after a reboot.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache

# The role smt_policy writes and removes it.
PATH = "var/lib/threadwise-smt/pending-rollback.json"


def load(fs: host_files.HostFs) -> dict[str, t.Any] | None:
    """Return what restores the state before a change whose host was not found healthy yet, or None if there is no such change.

    Args:
        fs: the host's files

    Returns:
        data as the role smt_policy wrote it. It is empty if the file is damaged or if users other than root could have written it: there was a change, but
            how to undo it is unknown. `fs.problems` then names the reason.
    """
    text = fs.read(PATH)
    if text is None:
        return None
    if not topology_cache.is_trusted(fs, PATH):
        return {}
    try:
        rollback = json.loads(text)
        if not isinstance(rollback, dict):
            raise ValueError("it is not a JSON object")
        return rollback
    except (ValueError, RecursionError) as error:
        fs.note(f"The pending rollback of the last rollout, {fs.path(PATH)}, is damaged and was ignored ({cpulist.quoted(str(error))}).")
        return {}
