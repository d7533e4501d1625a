# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trees of hosts with a boot loader, and stand-ins for its tools that work below such a tree.

The stand-in for grub-mkconfig reads the settings as the real one does (a shell sources /etc/default/grub, then each
file of the directory in name order) and writes entries in the form of 10_linux. The stand-in for grubby has the habits
of real ones, also the bad ones, by their release: `boot/loaders/test_entry_files.py` holds it against calls
that were recorded.
"""

from __future__ import annotations

import os
import pathlib
import stat
import sys

KERNELS = ("6.1.0-13-amd64", "6.1.0-12-amd64")

MKCONFIG = r"""#!/bin/sh
set -e
root=%(root)s
[ "$1" = -o ] && out="$2"
[ ! -e "$root/mkconfig-fails" ] || { echo 'grub-probe: error: cannot find a device for / (is /dev mounted?).' >&2
    exit 1; }
if test -f "$root/etc/default/grub"; then . "$root/etc/default/grub"; fi
# reads /etc/default/grub.d
if [ %(drop_ins)s = yes ]; then
for x in "$root"/etc/default/grub.d/*.cfg; do if [ -e "$x" ]; then . "$x"; fi; done
fi
entry() {
    printf "menuentry '%%s' --class debian \$menuentry_id_option 'gnulinux-%%s' {\n" "$1" "$1"
    printf "\tlinux\t/boot/vmlinuz-%%s root=UUID=1 ro %%s\n" "$2" "$3"
    printf "\tinitrd\t/boot/initrd.img-%%s\n}\n" "$2"
}
{
echo '### BEGIN /etc/grub.d/00_header ###'
echo '### END /etc/grub.d/00_header ###'
echo '### BEGIN /etc/grub.d/10_linux ###'
if [ ! -e "$root/mkconfig-finds-no-kernel" ]; then
for kernel in "$root"/boot/vmlinuz-*; do
    version="${kernel##*/vmlinuz-}"
    entry "Debian, with Linux $version" "$version" "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"
    entry "Debian, with Linux $version (recovery mode)" "$version" "single $GRUB_CMDLINE_LINUX"
done
fi
echo '### END /etc/grub.d/10_linux ###'
cat "$root/etc/grub.d/40_custom"
} >"$out"
"""

GRUBBY = r"""#!%(python)s -IS
import glob, os, re, sys
root = %(root)r
release = %(release)d
env = root + '/boot/grub2/grubenv'
cmdline = root + '/etc/kernel/cmdline'
settings = root + '/etc/default/grub'
options = dict(word.lstrip('-').partition('=')[::2] for word in sys.argv[1:])
with open(root + '/grubby.log', 'a') as log:
    log.write(' '.join(sys.argv[1:]) + '\n')

def value(text, key):
    return (re.findall(r'^%%s[ \t]+(.*)$' %% key, text, re.M) or [''])[0]

def without(line, argument, is_value):
    # A blank is part of the match, so of two equal ones side by side one stays.
    if is_value:
        return re.sub(r'(^|\s)%%s(\s|$)' %% argument, ' ', line, count=1)
    return re.sub(r'(^|\s)%%s((\s|$)|(=[^ ]*))' %% argument, ' ', line)

def changed(line):
    new = options.get('args', '').split()
    for gone in options.get('remove-args', '').split():
        line = re.sub(gone + '[^ ]*', '', line, count=1) if release < 21 else without(line, gone, '=' in gone)
        line = ' '.join(line.split())
    if release < 21:
        for one in new:
            name, equals, its_value = one.partition('=')
            if equals and name + '=' in line:
                line = re.sub(re.escape(name) + '=[^ ]*', one, line, count=1)
            elif equals or one not in line:
                line = line + ' ' + one
        return ' '.join(line.split())
    for one in new:
        line = ' '.join(without(line, one.partition('=')[0], False).split())
    return ' '.join([line, *new]).strip()

def kernelopts():
    try:
        return value(open(env).read().replace('kernelopts=', 'kernelopts '), 'kernelopts')
    except FileNotFoundError:
        return ''

def expanded(line):
    words = line.split()
    if '$kernelopts' in words and kernelopts():
        return ' '.join(line.replace('$kernelopts', kernelopts(), 1).split())
    return line

files = sorted(glob.glob(root + '/boot/loader/entries/*.conf'), reverse=True)
texts = [open(name).read() for name in files]
if 'info' in options:
    for index, (name, text) in enumerate(zip(files, texts)):
        args = ' '.join(expanded(value(text, 'options')).split())
        of_root = next((word for word in args.split() if word.startswith('root=')), '') if release > 20 else ''
        print('index=%%d' %% index)
        print('kernel="%%s"' %% value(text, 'linux'))
        print('args="%%s"' %% (re.sub(re.escape(of_root) + '[ \t]*', '', args, count=1) if of_root else args))
        if of_root:
            print('root="%%s"' %% of_root[len('root='):])
        print('initrd="%%s"' %% value(text, 'initrd'))
        print('title="%%s"' %% value(text, 'title'))
        print('id="%%s"' %% os.path.basename(name)[:-len('.conf')])
    sys.exit(0)
target = options['update-kernel']
if target == 'ALL' and release > 40 and os.path.exists(settings):
    import subprocess
    asked = subprocess.run(['sh', '-c', '. "$1"; echo $GRUB_CMDLINE_LINUX', 'sh', settings], capture_output=True,
        text=True, check=True).stdout.strip()
    if asked:
        text = re.sub(r'^GRUB_CMDLINE_LINUX.*', 'GRUB_CMDLINE_LINUX="%%s"' %% changed(asked), open(settings).read(),
            flags=re.M)
        open(settings, 'w').write(text)
if target == 'ALL' and release > 27 and kernelopts():
    text = open(env).read().replace('kernelopts=' + kernelopts(), 'kernelopts=' + changed(kernelopts()))
    open(env, 'w').write(text)
chosen = [name for name, text in zip(files, texts) if target in ('ALL', value(text, 'linux'))]
fails = glob.glob(root + '/grubby-fails-at-*')
skips = glob.glob(root + '/grubby-skips-*')
for number, name in enumerate(chosen):
    if fails and number == int(fails[0].rpartition('-')[2]):
        sys.stderr.write('grubby: cannot write %%s\n' %% name)
        sys.exit(1)
    if skips and number == int(skips[0].rpartition('-')[2]):
        continue
    text = open(name).read()
    line = value(text, 'options')
    if target != 'ALL' or '$kernelopts' not in line.split():
        open(name, 'w').write(text.replace('options ' + line, 'options ' + changed(expanded(line))))
# Without the directory, the real one complains and goes on.
if target == 'ALL' and release > 65 and os.path.isdir(os.path.dirname(cmdline)):
    if not os.path.exists(cmdline):
        open(cmdline, 'w').write(expanded(value(texts[-1], 'options')) + '\n')
    line = open(cmdline).readline()
    open(cmdline, 'w').write(changed(line) + '\n')
"""


def write(root: pathlib.Path, path: str, text: str, executable: bool = False) -> pathlib.Path:
    """A file below the tree."""
    full = root / path
    full.parent.mkdir(parents=True, exist_ok=True)
    full.write_text(text)
    if executable:
        full.chmod(full.stat().st_mode | stat.S_IXUSR)
    return full


def running(
    root: pathlib.Path,
    cmdline: str = "BOOT_IMAGE=/boot/vmlinuz-6.1.0-13-amd64 root=UUID=1 ro quiet",
    online: str = "0-7",
    numbering: str = "adjacent",
    control: str = "on",
    active: str = "1",
) -> None:
    """The running system: 2 sockets x 2 cores x 2 threads, with all CPUs online."""
    write(root, "proc/cmdline", cmdline + "\n")
    write(root, "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n")
    write(root, "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    base = "sys/devices/system/cpu/"
    for name, text in (
        ("present", "0-7"),
        ("possible", "0-7"),
        ("online", online),
        ("smt/control", control),
        ("smt/active", active),
    ):
        write(root, base + name, text + "\n")
    cores = (
        [(first, first + 1) for first in range(0, 8, 2)]
        if numbering == "adjacent"
        else [(first, first + 4) for first in range(4)]
    )
    for number, core in enumerate(cores):
        for cpu in core:
            write(root, f"{base}cpu{cpu}/topology/core_cpus_list", f"{core[0]},{core[1]}\n")
            write(root, f"{base}cpu{cpu}/topology/physical_package_id", f"{number // 2}\n")
            write(root, f"{base}cpu{cpu}/topology/core_id", f"{number % 2}\n")


def grub_tree(
    root: pathlib.Path,
    settings: str = 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n',
    drop_ins: dict[str, str] | None = None,
    suse: bool = False,
) -> pathlib.Path:
    """A host with grub and a grub.cfg that was made from its settings."""
    running(root)
    grub = "grub2" if suse else "grub"
    write(root, "etc/default/grub", settings)
    for name, text in (drop_ins or {}).items():
        write(root, "etc/default/grub.d/" + name, text)
    for kernel in KERNELS:
        write(root, f"boot/vmlinuz-{kernel}", "")
        write(root, f"boot/initrd.img-{kernel}", "")
        write(root, f"boot/config-{kernel}", "CONFIG_SMP=y\nCONFIG_HOTPLUG_SMT=y\n")
    for name in ("00_header", "10_linux"):
        write(root, "etc/grub.d/" + name, "#!/bin/sh\n", executable=True)
    write(
        root,
        "etc/grub.d/40_custom",
        "### BEGIN /etc/grub.d/40_custom ###\n### END /etc/grub.d/40_custom ###\n",
        executable=True,
    )
    tool = write(
        root,
        f"usr/sbin/{grub}-mkconfig",
        MKCONFIG % {"root": root, "drop_ins": "no" if suse else "yes"},
        executable=True,
    )
    check = (
        f'#!/bin/sh\n[ ! -e {root}/script-check-fails ] || {{ echo "error: syntax error. Incorrect command." >&2; exit'
        ' 1; }\nexec test -s "$1"\n'
    )
    write(root, f"usr/bin/{grub}-script-check", check, executable=True)
    if suse:
        write(root, "usr/sbin/update-bootloader", "", executable=True)
    (root / "boot" / grub).mkdir(parents=True)
    cfg = root / "boot" / grub / "grub.cfg"
    assert os.system(f"{tool} -o {cfg}") == 0
    cfg.chmod(0o600)
    return root


def grubby_tree(
    root: pathlib.Path,
    options: tuple[str, ...] = ("root=/dev/sda2 ro quiet",) * 3,
    release: int = 69,
    kernelopts: str | None = None,
    cmdline: str | None = "root=/dev/sda2 ro quiet\n",
) -> pathlib.Path:
    """A host with grubby, 8.40 of some release, and entries of the Boot Loader Specification."""
    running(root)
    write(
        root,
        "usr/sbin/grubby",
        GRUBBY % {"python": sys.executable, "root": str(root), "release": release},
        executable=True,
    )
    for number, line in enumerate(options):
        write(
            root,
            f"boot/loader/entries/m-5.14.0-{number}.conf",
            f"title Linux 5.14.0-{number}\nversion 5.14.0-{number}\nlinux /vmlinuz-5.14.0-{number}\ninitrd"
            f" /initramfs-5.14.0-{number}.img\noptions {line}\n",
        )
        write(root, f"boot/config-5.14.0-{number}", "CONFIG_SMP=y\nCONFIG_HOTPLUG_SMT=y\n")
    if kernelopts is not None:
        write(root, "boot/grub2/grubenv", f"# GRUB Environment Block\nkernelopts={kernelopts}\n####\n")
    if cmdline is not None:
        write(root, "etc/kernel/cmdline", cmdline)
    return root


def systemd_tree(
    root: pathlib.Path, options: str = "root=UUID=1 ro", cmdline: str | None = "root=UUID=1 ro\n"
) -> pathlib.Path:
    """A host with systemd-boot."""
    running(root)
    write(
        root,
        "efi/loader/entries/m-6.1.0-13.conf",
        f"title Linux\nversion 6.1.0-13\nlinux /m/6.1.0-13/linux\ninitrd /m/6.1.0-13/initrd\noptions {options}\n",
    )
    write(root, "boot/config-6.1.0-13", "CONFIG_SMP=y\nCONFIG_HOTPLUG_SMT=y\n")
    if cmdline is not None:
        write(root, "etc/kernel/cmdline", cmdline)
    return root


def snapshot(root: pathlib.Path) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of each file of the boot configuration."""
    files = [path for top in ("etc", "boot", "efi") for path in (root / top).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes()) for path in files}
