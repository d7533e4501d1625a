# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back of a rollout's change, kept on the host from before the change until the host was found healthy.

A controller that is killed in between knows nothing of it any more; the host does, also after a reboot.
"""

from __future__ import annotations

import json

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache

# The role smt_policy writes and removes it.
PATH = "var/lib/threadwise-smt/way-back.json"


def load(fs):
    """What leads back to the state before a change that nobody found to be well, or None where there is no such change.

    Args:
        fs: `files.HostFs`.

    Returns:
        dict as the role smt_policy wrote it; an empty one where the file is damaged or others than root could have written it, and `fs.problems`
            says so: there was a change all the same.
    """
    text = fs.read(PATH)
    if text is None:
        return None
    if not topology_cache.is_trusted(fs, PATH):
        return {}
    try:
        way = json.loads(text)
        if not isinstance(way, dict):
            raise ValueError("it is no object")
        return way
    except (ValueError, RecursionError) as error:
        fs.note(f"The way back of the last rollout, {fs.path(PATH)}, was left out: it is damaged ({cpulist.quoted(str(error))}).")
        return {}
