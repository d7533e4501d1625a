# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container's root may not do, by real namespaces of the kernel."""

import functools
import os
import subprocess
import sys

UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && '


@functools.cache
def why_none():
    """Return why this machine makes no such namespaces, or None."""
    try:
        done = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()


def run(program, directory, read_only=False):
    """Run a Python program as a container's root; it gets the directory as its argument. Returns what it printed."""
    shell = (READ_ONLY if read_only else "") + 'exec "$2" -c "$3" "$1"'
    # One user of this machine is known to it: root if that is who runs the tests.
    command = [*UNSHARE, "sh", "-c", shell, "sh", str(directory), sys.executable, program]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
