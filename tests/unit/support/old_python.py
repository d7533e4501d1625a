# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The oldest Python of a managed host: which one it is, and a real one on this machine."""

import pathlib
import shutil
import subprocess

import pytest

OLDEST = (3, 6)


def _find() -> str | None:
    """Return the path of a Python 3.6 that runs, or None."""
    name = ".".join(map(str, OLDEST))
    versions = sorted(pathlib.Path.home().glob(f".pyenv/versions/{name}.*/bin/python"))
    return next(filter(_runs, filter(None, [shutil.which(f"python{name}"), *map(str, versions)])), None)


def _runs(python: str) -> bool:
    """Say whether it is one: a name on the PATH may be that of pyenv."""
    command = [python, "-c", "import sys; print(sys.version_info[:2])"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() == str(OLDEST)


PYTHON = _find()
needed = pytest.mark.skipif(PYTHON is None, reason="there is no python3.6 on this machine, also none of pyenv")
