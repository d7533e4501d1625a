# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pending rollback of a rollout's change, stored on the host from before the change until the host was found healthy.

If the controller dies in between, the host still knows how to undo the change, also after a reboot.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, state_file

# The role smt_policy writes and removes it.
PATH = "var/lib/threadwise-smt/rollout-rollback.json"

_FILE = state_file.StateFile(PATH, mode=0o644)


def load(fs: host_files.HostFs) -> t.Optional[t.Dict[str, t.Any]]:
    """Return what restores the state before a change whose host was not found healthy yet, or None if there is no such change.

    Args:
        fs: the host's files

    Returns:
        data as the role smt_policy wrote it. It is empty if the file is damaged or if users other than root could have written it: there was a change, but
            how to undo it is unknown. `fs.problems` then names the reason.
    """
    try:
        return _FILE.load(fs, dict)
    except state_file.StateFileError as error:
        fs.note(f"The pending rollback of the last rollout was ignored: {error}.")
        return {}
