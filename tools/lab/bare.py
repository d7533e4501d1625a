# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the README's two commands need nothing but what it says:
both are run in a clone of HEAD on a bare Debian 12.

usage: bare.py [COMMAND...]     as root; without a command: make eval, then make test

The Debian is a new root file system with git, make and Python 3.11; kernel, CPUs and network are those of this machine.
What runs there is ended, and everything is unmounted and removed again, also after Ctrl-C and SIGTERM. The exit code is
0 when no command failed.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from archives import apt_options, machine_sources
from common import ROOT, LabError, need_packages, run, say

SUITE = "bookworm"
PACKAGES = ("git", "make", "python3.11", "python3", "ca-certificates")
COMMANDS = (["make", "eval"], ["make", "test"])
# How the package registries are reached is the machine's own business: the same files and variables hold in there.
FILES = ("/etc/pip.conf", "/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")
VARIABLES = (
    "PIP_CERT",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_INDEX_URL",
    "SSL_CERT_FILE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "TERM",
)
# Data of others that tests use where they lie beside the repository: they are no part of it.
BESIDE = ROOT.parent / "shared" / "topologies"


def main(commands: list[list[str]]) -> int:
    """Run the commands one after the other; ends at the first that fails."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    try:
        if os.geteuid():
            raise LabError("a bare machine takes root, for chroot and mount")
        need_packages("mmdebstrap", "git", "util-linux")
        with bare_root() as root:
            return next((code for code in (call(root, command) for command in commands) if code), 0)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


@contextlib.contextmanager
def bare_root() -> Iterator[pathlib.Path]:
    """A bare Debian with a clone of HEAD in /root/project; at the end nothing of it is left.

    Raises:
        LabError: it could not be made, or not be cleared away.
    """
    # /tmp may be small, and forget.
    root = pathlib.Path(tempfile.mkdtemp(prefix="threadwise-bare-", dir="/var/tmp"))
    try:
        say(f"a bare Debian in {root} ...")
        make(root)
        for kind, source, place in (("proc", "proc", "proc"), ("sysfs", "sysfs", "sys")):
            run(["mount", "-t", kind, source, str(root / place)])
        run(["mount", "--rbind", "/dev", str(root / "dev")])
        run(["mount", "--make-rslave", str(root / "dev")])
        run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(root / "root/project")])
        if BESIDE.is_dir():
            shutil.copytree(BESIDE, root / "root/shared/topologies")
        yield root
    finally:
        # A second Ctrl-C would leave half of it mounted.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        clear(root)
        say(f"{root} is removed")


def make(root: pathlib.Path) -> None:
    """The root file system, reached by the same archives as this machine's."""
    with tempfile.TemporaryDirectory() as work:
        options, sources = pathlib.Path(work, "apt.conf"), pathlib.Path(work, "sources.list")
        options.write_text(apt_options(run(["apt-config", "dump"]).stdout), encoding="utf-8")
        sources.write_text(machine_sources(SUITE), encoding="utf-8")
        run(
            [
                "mmdebstrap",
                "--variant=important",
                f"--include={','.join(PACKAGES)}",
                f"--aptopt={options}",
                SUITE,
                str(root),
                *([str(sources)] if sources.stat().st_size else []),
            ]
        )
    for file in FILES:
        if pathlib.Path(file).exists():
            shutil.copy(file, f"{root}{file}")


def call(root: pathlib.Path, command: list[str]) -> int:
    """Run a command in the clone and say how it ended."""
    environment = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    environment.update(
        HOME="/root", LANG="C.UTF-8", PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    )
    begun = time.monotonic()
    say(f"bare machine: {' '.join(command)}")
    code = subprocess.run(
        ["chroot", str(root), "env", "--chdir=/root/project", *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    ).returncode
    say(f"bare machine: {' '.join(command)} ended with {code} after {time.monotonic() - begun:.0f} s")
    return code


def clear(root: pathlib.Path) -> None:
    """End what runs in there, unmount and remove.

    Raises:
        LabError: something is still mounted; nothing is removed then.
    """
    # A process that is ended may have started another one before.
    while pids := inhabitants(root):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    # Those of a mmdebstrap that was ended are among them. What was mounted later may lie on what was mounted before.
    for place in reversed(mounted(root)):
        subprocess.run(["umount", "--lazy", place], stderr=subprocess.DEVNULL, check=False)
    left = mounted(root)
    if left:
        raise LabError(f"{root} was not removed, because this is still mounted: {', '.join(left)}")
    shutil.rmtree(root)


def mounted(root: pathlib.Path) -> list[str]:
    """What is mounted below it, in the order in which it was."""
    lines = pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [place for place in (line.split(" ")[1] for line in lines) if place.startswith(f"{root}/")]


def inhabitants(root: pathlib.Path) -> list[int]:
    """Processes whose root directory it is."""
    pids = []
    for entry in pathlib.Path("/proc").iterdir():
        # One that has ended, and waits for its parent to notice, has no root any more.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "root") == str(root):
                pids.append(int(entry.name))
    return pids


if __name__ == "__main__":
    sys.exit(main([sys.argv[1:]] if sys.argv[1:] else [*COMMANDS]))
