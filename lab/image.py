# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The disk image that all guests of a suite stand on: a Debian with grub, built once and kept under the name of what it is made of."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shlex
import shutil

from common import CACHE, RECIPE, LabError, locked, run, step
from machine import GUESTS, Machine, hardware
from shape import Shape

HOST_PACKAGES = ("qemu-system-x86", "qemu-utils", "mmdebstrap", "fdisk", "e2fsprogs", "openssh-client", "fakeroot")
SUITES = ("bookworm", "trixie")
DISK_MB = 4096
PARTITION_OFFSET_MB = 1
EXCLUDED_PATHS = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# The parts of apt's configuration that decide how an archive is reached; the rest is the machine's own business.
APT_OPTIONS = re.compile(r'Acquire::(https?|Check-Valid-Until|Check-Date|ForceIPv[46]|Retries)\b.* ".+";')
HOST_KEY_ALIAS = "threadwise-lab"


def packages(recipe: str) -> list[str]:
    """Package names of a recipe's list: one a line, comments start with #."""
    return [line.strip() for line in recipe.splitlines() if line.strip() and not line.startswith("#")]


def image_key(suite: str, recipe: pathlib.Path = RECIPE) -> str:
    """A short name that changes whenever an image would: suite, recipe files, and the code that builds it."""
    digest = hashlib.sha256(suite.encode())
    for path in (*sorted(recipe.iterdir()), pathlib.Path(__file__)):
        digest.update(f"\0{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return f"{suite}-{digest.hexdigest()[:12]}"


def image(key: str) -> pathlib.Path:
    """The directory of an image: disk.img, the keys id_ed25519 and known_hosts, and later the snapshots that stand on it."""
    return CACHE / key


def need_image(suite: str) -> str:
    """The key of the suite's image, which is built first when it is not there.

    Raises:
        LabError: it could not be built.
    """
    key = image_key(suite)
    directory = image(key)
    if not directory.exists():
        with locked(CACHE / f"{key}.lock", f"the image {key}"):
            if not directory.exists():
                with step(f"image {key}, built once"):
                    _build(suite, directory)
    return key


def _build(suite: str, directory: pathlib.Path) -> None:
    """Build beside and rename: an image is there whole or not at all. What an interrupted build left goes first."""
    work = directory.with_name(f"{directory.name}.building")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        _make_keys(work)
        with step(f"root file system of {suite} by mmdebstrap"):
            _make_root(suite, work)
        with step("disk by sfdisk and mke2fs"):
            _make_disk(work)
        with step("grub by one boot of the disk"):
            _install_grub(work, directory.name)
        shutil.rmtree(work / "boot")
        os.rename(work, directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _make_keys(work: pathlib.Path) -> None:
    """A key for those who log in, a key for the guests, and a known_hosts file that knows the guests by an alias."""
    for name in ("id_ed25519", "host_ed25519"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "threadwise lab", "-f", str(work / name)])
    public = (work / "host_ed25519.pub").read_text(encoding="ascii")
    (work / "known_hosts").write_text(f"{HOST_KEY_ALIAS} {public}", encoding="ascii")


def _make_root(suite: str, work: pathlib.Path) -> None:
    """The root file system as root.tar."""
    (work / "apt.conf").write_text(apt_options(run(["apt-config", "dump"]).stdout), encoding="utf-8")
    (work / "sources.list").write_text(machine_sources(suite), encoding="utf-8")
    # Inside the root file system, because hooks may run as another user who cannot read this directory.
    files = " ".join(shlex.quote(str(path)) for path in (work / "id_ed25519.pub", work / "host_ed25519", work / "host_ed25519.pub", RECIPE / "customize.sh"))
    command = [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(packages((RECIPE / 'packages').read_text(encoding='utf-8')))}",
        f"--aptopt={work / 'apt.conf'}",
        *(f"--dpkgopt=path-exclude={path}" for path in EXCLUDED_PATHS),
        '--customize-hook=mkdir "$1/root/lab"',
        f"--customize-hook=copy-in {files} /root/lab",
        '--customize-hook=chroot "$1" sh /root/lab/customize.sh',
        f"--customize-hook=copy-in {shlex.quote(str(RECIPE / 'install-grub.sh'))} /usr/local/sbin",
        suite,
        str(work / "root.tar"),
    ]
    if (work / "sources.list").stat().st_size:
        command.append(str(work / "sources.list"))
    run(command)


def machine_sources(suite: str) -> str:
    """This machine's apt sources for the suite; read without the package lists, which a fresh machine has not got."""
    targets = run(["apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"])
    release = re.search(r"^VERSION_CODENAME=(\w+)$", pathlib.Path("/etc/os-release").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return suite_sources(targets.stdout, release.group(1) if release else "", suite)


def apt_options(dump: str) -> str:
    """Those lines of ``apt-config dump`` that say how an archive is reached: proxies, certificates, checks."""
    return "".join(f"{line}\n" for line in dump.splitlines() if APT_OPTIONS.fullmatch(line))


def suite_sources(targets: str, machine_suite: str, suite: str) -> str:
    """sources.list for ``suite`` from the archives that serve this machine's own Debian; empty when there are none.

    Args:
        targets: lines ``URI RELEASE COMPONENT``, as apt lists them.
        machine_suite: the codename of the Debian that this machine runs.
        suite: the codename wanted.
    """
    lines = []
    for line in targets.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[2] == "main" and fields[1] in (machine_suite, f"{machine_suite}-updates", f"{machine_suite}-security"):
            lines.append(f"deb {fields[0]} {suite}{fields[1][len(machine_suite) :]} main\n")
    return "".join(dict.fromkeys(lines))


def _make_disk(work: pathlib.Path) -> None:
    """disk.img from root.tar, without a loop device or a mount; kernel and initrd stay in boot/ for the first boot."""
    disk = work / "disk.img"
    with open(disk, "wb") as handle:
        os.truncate(handle.fileno(), DISK_MB << 20)
    with open(work / "partitions", "w+", encoding="ascii") as table:
        table.write(f"label: dos\nstart={PARTITION_OFFSET_MB}MiB, type=83, bootable\n")
        table.seek(0)
        run(["sfdisk", "--quiet", str(disk)], stdin=table)
    # In one fakeroot session, so that the files keep their owners also when this is not root.
    script = (
        "set -e; mkdir root; tar -xf root.tar -C root; mkdir boot; cp -L root/vmlinuz root/initrd.img boot;"
        f" mke2fs -q -t ext4 -d root -E offset={PARTITION_OFFSET_MB << 20} disk.img {DISK_MB - PARTITION_OFFSET_MB - 1}M; rm -r root root.tar"
    )
    run([*([] if os.geteuid() == 0 else ["fakeroot"]), "sh", "-c", script], cwd=work)


def _install_grub(work: pathlib.Path, key: str) -> None:
    """Boot the disk once with a kernel from outside; its init installs grub and powers off."""
    machine = Machine(GUESTS / f".image-{key}")
    machine.stop()
    try:
        machine.start(
            [
                *hardware(Shape(1, 1, 1), 1024),
                "-no-reboot",
                "-drive",
                f"file={escaped(work / 'disk.img')},format=raw,if=virtio,cache=unsafe",
                "-kernel",
                str(work / "boot" / "vmlinuz"),
                "-initrd",
                str(work / "boot" / "initrd.img"),
                "-append",
                "root=/dev/vda1 console=ttyS0 init=/usr/local/sbin/install-grub.sh",
            ]
        )
        machine.wait(timeout=300)
        if "lab: grub is installed" not in machine.console_text():
            raise LabError(f"grub could not be installed; the console's last lines:\n{machine.last_words()}")
    finally:
        machine.stop()
        machine.remove()


def escaped(path: pathlib.Path) -> str:
    """A path as a value within a QEMU option, where a comma ends the value unless it is doubled."""
    return str(path).replace(",", ",,")
