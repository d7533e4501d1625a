# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root file systems and the disks they lie on, without a loop device, a mount or root."""

from __future__ import annotations

import os
import pathlib
import shlex

import archives
from common import RECIPE, run

HOST_PACKAGES = ("mmdebstrap", "debootstrap", "fdisk", "e2fsprogs", "openssh-client", "fakeroot")
DISK_MB = 4096
EXCLUDED_PATHS = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
HOST_KEY_ALIAS = "threadwise-lab"
# What the recipe's scripts find in /root/lab of a new root file system.
LOGIN_KEY, HOST_KEY = "id_ed25519", "host_ed25519"
GIVEN = (f"{LOGIN_KEY}.pub", HOST_KEY, f"{HOST_KEY}.pub")


def packages(*recipes: str) -> list[str]:
    """Package names of the recipes' lists, named by their folders: one a line, comments start with #."""
    names = []
    for recipe in recipes:
        lines = (RECIPE / recipe / "packages").read_text(encoding="utf-8").splitlines()
        names += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return names


def make_keys(work: pathlib.Path) -> None:
    """A key for those who log in, a key for the guests, and a known_hosts file that knows the guests by an alias."""
    for name in (LOGIN_KEY, HOST_KEY):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "threadwise lab", "-f", str(work / name)])
    public = (work / f"{HOST_KEY}.pub").read_text(encoding="ascii")
    (work / "known_hosts").write_text(f"{HOST_KEY_ALIAS} {public}", encoding="ascii")


def bootstrap(suite: str, work: pathlib.Path, recipe: str, *hooks: str) -> None:
    """Make root.tar of this machine's architecture by mmdebstrap: the packages of the common recipe and of this one,
    customized by both.

    Args:
        suite: Debian's codename.
        work: the directory that has the keys, and gets root.tar.
        recipe: the folder of the kind's recipe.
        hooks: further hooks of mmdebstrap, as its option --customize-hook takes them.
    """
    (work / "apt.conf").write_text(archives.apt_options(run(["apt-config", "dump"]).stdout), encoding="utf-8")
    (work / "sources.list").write_text(archives.machine_sources(suite), encoding="utf-8")
    command = [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(packages('common', recipe))}",
        f"--aptopt={work / 'apt.conf'}",
        *(f"--dpkgopt=path-exclude={path}" for path in EXCLUDED_PATHS),
        '--customize-hook=mkdir "$1/root/lab"',
        # Inside the root file system, because hooks may run as another user who cannot read this directory.
        f"--customize-hook=copy-in {quoted(*(work / name for name in GIVEN))} /root/lab",
    ]
    for script in (RECIPE / recipe / "customize.sh", RECIPE / "common" / "customize.sh"):
        command += [
            f"--customize-hook=copy-in {quoted(script)} /root/lab",
            '--customize-hook=chroot "$1" sh /root/lab/customize.sh',
        ]
    command += [*(f"--customize-hook={hook}" for hook in hooks), suite, str(work / "root.tar")]
    if (work / "sources.list").stat().st_size:
        command.append(str(work / "sources.list"))
    run(command)


def quoted(*paths: pathlib.Path) -> str:
    """Paths as words of a shell."""
    return " ".join(shlex.quote(str(path)) for path in paths)


def empty_disk(work: pathlib.Path) -> pathlib.Path:
    """disk.img, which takes no room yet."""
    disk = work / "disk.img"
    with open(disk, "wb") as handle:
        os.truncate(handle.fileno(), DISK_MB << 20)
    return disk


def partition(disk: pathlib.Path, table: str) -> None:
    """Write a table of partitions, as sfdisk reads it."""
    description = disk.with_name("partitions")
    with open(description, "w+", encoding="ascii") as handle:
        handle.write(table)
        handle.seek(0)
        run(["sfdisk", "--quiet", str(disk)], stdin=handle)


def as_root(script: str, work: pathlib.Path, **options) -> None:
    """Run a shell script in ``work`` as root, or in one session of fakeroot,
    in which files keep the owners that it gave them.
    """
    run([*([] if os.geteuid() == 0 else ["fakeroot"]), "sh", "-ec", script], cwd=work, **options)


def unpack_to_disk(offset_mb: int, label: str) -> str:
    """The script that makes the root file system on disk.img of what is in root/, from an offset to the disk's end."""
    return (
        f" mke2fs -q -t ext4 -L {label} -d root -E offset={offset_mb << 20} disk.img {DISK_MB - offset_mb - 1}M; rm -r"
        " root"
    )


def escaped(path: pathlib.Path | str) -> str:
    """A path as a value within a QEMU option, where a comma ends the value unless it is doubled."""
    return str(path).replace(",", ",,")
