# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What takes long is made once for all workers of a test run."""

import contextlib
import fcntl
import os
import pickle
import re


@contextlib.contextmanager
def shared(tmp_path_factory, name):
    """A directory of this test run, which one worker has at a time."""
    base = tmp_path_factory.getbasetemp()
    # A path goes into commands of Ansible's as it is.
    directory = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / re.sub(r"[^A-Za-z0-9]+", "-", name)
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def once(tmp_path_factory, name, make):
    """Return what `make` returns for a directory; it is called by the first worker that needs it."""
    with shared(tmp_path_factory, name) as directory:
        kept = directory / "kept.pickle"
        if not kept.exists():
            made, partial = directory / "made", directory / "partial"
            made.mkdir()
            partial.write_bytes(pickle.dumps(make(made)))
            partial.rename(kept)
        return pickle.loads(kept.read_bytes())
