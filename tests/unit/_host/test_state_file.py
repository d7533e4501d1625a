# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that a host keeps from one run to the next: only root's, only whole ones,
and no content that breaks the reader.
"""

from __future__ import annotations

import os
import types

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    files as host_files,
    state_file,
    text as host_text,
)

PATH = "var/lib/threadwise-smt/x.json"
FILE = state_file.StateFile(PATH, "threadwise.smt/x")


class HostOf(host_files.HostFs):
    """A tree that is treated like `/`, in which root owns everything but what is said."""

    is_host = True

    def __init__(self, sysroot, **statuses):
        super().__init__(str(sysroot))
        self.statuses = statuses

    def status(self, path):
        real = super().status(path)
        if real is None:
            return None
        shown = {"st_mode": real.st_mode, "st_uid": 0, **self.statuses.get(os.path.basename(path), {})}
        return types.SimpleNamespace(**shown)

    def path(self, path):
        return os.path.join(self.sysroot, path)

    def _open(self, path):
        return os.open(self.path(path), os.O_RDONLY)


@pytest.fixture(name="fs")
def tree(tmp_path):
    return host_files.HostFs(str(tmp_path))


def test_what_is_saved_is_loaded(fs, tmp_path):
    assert FILE.load(fs, dict) is None
    assert FILE.save(fs, {"a": [1]})
    assert FILE.load(fs, lambda document: document["a"]) == [1]
    assert (tmp_path / PATH).stat().st_mode & 0o777 == 0o600
    assert FILE.remove(fs) and not FILE.remove(fs) and FILE.load(fs, dict) is None


def test_an_unchanged_file_is_not_written_again_but_for_that_of_another_user(fs, tmp_path):
    written = []
    for host, value in ((fs, 1), (fs, 1), (fs, 2), (HostOf(tmp_path, **{"x.json": {"st_uid": 1000}}), 2)):
        before = (tmp_path / PATH).stat().st_ino if written else None
        written.append(FILE.save(host, {"a": value}))
        assert written[-1] == ((tmp_path / PATH).stat().st_ino != before)
    assert written == [True, False, True, True]


HEAD = '{"schema": "threadwise.smt/x", "schema_version": 1, "a": '
DAMAGED = {
    "empty": "",
    "not complete": "{",
    "null": "null",
    "deep lists": "[" * 100_000,
    "many digits": HEAD + "9" * 400 + "}",
    "infinite": HEAD + "1e999}",
    "NaN": HEAD + "NaN}",
    "no schema": "{}",
    "another schema": '{"schema": "y", "schema_version": 1}',
    "another version": '{"schema": "threadwise.smt/x", "schema_version": 2}',
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_one_error_that_names_it(fs, text):
    fs.write(PATH, text)
    with pytest.raises(state_file.StateFileError, match=r"x\.json cannot be used"):
        FILE.load(fs, dict)


def test_a_file_that_is_too_large_or_not_regular_is_not_read(fs, tmp_path):
    FILE.save(fs, {"a": "x" * 100})
    with pytest.raises(state_file.StateFileError, match=r"cannot be read: it is larger than 50 bytes"):
        FILE._replace(limit=50).load(fs, dict)
    (tmp_path / PATH).unlink()
    os.mkfifo(tmp_path / PATH)
    with pytest.raises(state_file.StateFileError, match=r"cannot be read: it is not a regular file"):
        FILE.load(fs, dict)
    assert fs.problems == []


@pytest.mark.parametrize("kind", [ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError])
def test_what_the_check_raises_is_that_error(fs, kind):
    def refuse(_document):
        raise kind("odd")

    FILE.save(fs, {})
    with pytest.raises(state_file.StateFileError, match="odd"):
        FILE.load(fs, refuse)


@pytest.mark.parametrize("name", ["x.json", "threadwise-smt"])
@pytest.mark.parametrize("status", [{"st_uid": 1000}, {"st_mode": 0o666}, {"st_mode": 0o620}, {"st_mode": 0o120777}])
def test_on_a_host_only_what_root_alone_can_write_is_used(fs, tmp_path, name, status):
    FILE.save(fs, {"a": 1})
    assert FILE.load(HostOf(tmp_path), dict)["a"] == 1
    with pytest.raises(state_file.StateFileError, match=name + r" is not owned by root, or is writable by other users"):
        FILE.load(HostOf(tmp_path, **{name: status}), dict)


LIMITS = [("[" * 100_000, "deeply"), ("9" * 101, "101 digits"), ("-1e999", "large"), ("NaN", "finite"), ("{", "quotes")]


@pytest.mark.parametrize(("text", "reason"), LIMITS, ids=[reason for _text, reason in LIMITS])
def test_json_beyond_the_limits_is_a_value_error(text, reason):
    with pytest.raises(ValueError, match=reason):
        host_text.parse_json(text)
    assert host_text.parse_json('{"a": [1.5, ' + "9" * 100 + ", null]}") == {"a": [1.5, int("9" * 100), None]}
