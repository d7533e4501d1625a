# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pending rollback that a rollout stores on a host."""

from __future__ import annotations

import os

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._facts import pending_rollback
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs


def load(root, text):
    path = root / pending_rollback.PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    fs = HostFs(str(root))
    return pending_rollback.load(fs), fs.problems


def test_a_valid_file(tmp_path):
    assert pending_rollback.load(HostFs(str(tmp_path))) is None
    assert load(tmp_path, b'{"running": {"state": "enabled"}}') == ({"running": {"state": "enabled"}}, [])


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"a": ' * 100_000])
def test_a_damaged_file_still_shows_that_there_was_a_change(tmp_path, text):
    rollback, problems = load(tmp_path, text)
    assert rollback == {} and pending_rollback.PATH in problems[0]


def test_a_file_that_others_may_write_is_ignored(tmp_path, monkeypatch):
    path = tmp_path / pending_rollback.PATH
    load(tmp_path, b'{"reboot": true}')
    monkeypatch.setattr(HostFs, "is_host", True)
    os.chmod(path, 0o666)
    fs = HostFs(str(tmp_path))
    assert pending_rollback.load(fs) == {} and "is not owned by root, or" in fs.problems[0]
