# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run-time state as data: which files of a host it may put back."""

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import frame
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence

CPU = {"control": "on", "active": True, "online": [0, 1], "present": [0, 1]}


@pytest.mark.parametrize(
    ("path", "text", "taken"),
    [(next(iter(persistence.PATHS)), "text", True), ("etc/passwd", "text", False), ("etc/passwd", None, False)],
)
def test_a_frame_puts_back_no_file_that_is_not_of_the_run_time_state(path, text, taken):
    document = {"cpu": CPU, "snapshot": None, "files": {path: text}}
    if taken:
        assert frame.check(document) == document
        return
    with pytest.raises(ValueError, match="etc/passwd"):
        frame.check(document)
