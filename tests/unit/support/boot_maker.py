# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trees of hosts with a boot loader, and stand-ins for its tools that work below such a tree."""

import os
import pathlib
import stat
import sys

KERNELS = ("6.1.0-13-amd64", "6.1.0-12-amd64")
CONFIG = "CONFIG_SMP=y\nCONFIG_HOTPLUG_SMT=y\n"

MKCONFIG = r"""#!/bin/sh
set -e
root=%(root)s
[ "$1" = -o ] && out="$2"
[ ! -e "$root/mkconfig-fails" ] || { echo 'grub-probe: error: cannot find a device for /.' >&2; exit 1; }
if test -f "$root/etc/default/grub"; then . "$root/etc/default/grub"; fi
# reads /etc/default/grub.d
if [ %(drop_ins)s = yes ]; then
for x in "$root"/etc/default/grub.d/*.cfg; do if [ -e "$x" ]; then . "$x"; fi; done; fi
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
        args = re.sub(re.escape(of_root) + '[ \t]*', '', args, count=1) if of_root else args
        print('index=%%d\nkernel="%%s"\nargs="%%s"' %% (index, value(text, 'linux'), args))
        if of_root:
            print('root="%%s"' %% of_root[len('root='):])
        print('initrd="%%s"\ntitle="%%s"' %% (value(text, 'initrd'), value(text, 'title')))
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
    root, cmdline="BOOT_IMAGE=/boot/vmlinuz-6.1.0-13-amd64 root=UUID=1 ro quiet", online="0-7",
    numbering="adjacent", control="on", active="1",
):  # fmt: skip
    """The running system: 2 sockets x 2 cores x 2 threads, with all CPUs online."""
    write(root, "proc/cmdline", cmdline + "\n")
    write(root, "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n")
    write(root, "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    base = "sys/devices/system/cpu/"
    shown = {"present": "0-7", "possible": "0-7", "online": online, "smt/control": control, "smt/active": active}
    for number in range(4):
        core = (2 * number, 2 * number + 1) if numbering == "adjacent" else (number, number + 4)
        for cpu in core:
            of_cpu = {
                "core_cpus_list": f"{core[0]},{core[1]}",
                "physical_package_id": number // 2,
                "core_id": number % 2,
            }
            shown |= {f"cpu{cpu}/topology/{name}": text for name, text in of_cpu.items()}
    for name, text in shown.items():
        write(root, base + name, f"{text}\n")


def grub_tree(
    root: pathlib.Path,
    settings='GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n',
    drop_ins=None,
    suse=False,
) -> pathlib.Path:
    """A host with grub and a grub.cfg that was made from its settings."""
    running(root)
    grub = "grub2" if suse else "grub"
    write(root, "etc/default/grub", settings)
    for name, text in (drop_ins or {}).items():
        write(root, "etc/default/grub.d/" + name, text)
    for kernel in KERNELS:
        for name, text in (("vmlinuz", ""), ("initrd.img", ""), ("config", CONFIG)):
            write(root, f"boot/{name}-{kernel}", text)
    custom = "### BEGIN /etc/grub.d/40_custom ###\n### END /etc/grub.d/40_custom ###\n"
    check = f'[ ! -e {root}/script-check-fails ] || {{ echo "error: syntax error. Incorrect command." >&2; exit 1; }}'
    programs = {
        f"usr/sbin/{grub}-mkconfig": MKCONFIG % {"root": root, "drop_ins": "no" if suse else "yes"},
        f"usr/bin/{grub}-script-check": f'#!/bin/sh\n{check}\nexec test -s "$1"\n',
        **dict.fromkeys(("etc/grub.d/00_header", "etc/grub.d/10_linux"), "#!/bin/sh\n"),
        "etc/grub.d/40_custom": custom,
        **({"usr/sbin/update-bootloader": ""} if suse else {}),
    }
    for path, text in programs.items():
        write(root, path, text, executable=True)
    cfg = root / "boot" / grub / "grub.cfg"
    cfg.parent.mkdir(parents=True)
    assert os.system(f"{root}/usr/sbin/{grub}-mkconfig -o {cfg}") == 0
    cfg.chmod(0o600)
    return root


def _entry(root, directory, kernel, files, options):
    """An entry of the Boot Loader Specification, and what the kernel was built with."""
    number = kernel.removeprefix("m-")
    lines = f"title Linux {number}\nversion {number}\nlinux {files[0]}\ninitrd {files[1]}\noptions {options}\n"
    write(root, f"{directory}/loader/entries/{kernel}.conf", lines)
    write(root, f"boot/config-{number}", CONFIG)


def grubby_tree(
    root: pathlib.Path, options=("root=/dev/sda2 ro quiet",) * 3, release=69, kernelopts=None,
    cmdline="root=/dev/sda2 ro quiet\n",
) -> pathlib.Path:  # fmt: skip
    """A host with grubby, 8.40 of some release, and entries of the Boot Loader Specification."""
    running(root)
    grubby = GRUBBY % {"python": sys.executable, "root": str(root), "release": release}
    write(root, "usr/sbin/grubby", grubby, executable=True)
    for number, line in enumerate(options):
        kernel = f"5.14.0-{number}"
        _entry(root, "boot", f"m-{kernel}", (f"/vmlinuz-{kernel}", f"/initramfs-{kernel}.img"), line)
    if kernelopts is not None:
        write(root, "boot/grub2/grubenv", f"# GRUB Environment Block\nkernelopts={kernelopts}\n####\n")
    if cmdline is not None:
        write(root, "etc/kernel/cmdline", cmdline)
    return root


def systemd_tree(root: pathlib.Path, options="root=UUID=1 ro", cmdline="root=UUID=1 ro\n") -> pathlib.Path:
    """A host with systemd-boot."""
    running(root)
    _entry(root, "efi", "m-6.1.0-13", ("/m/6.1.0-13/linux", "/m/6.1.0-13/initrd"), options)
    if cmdline is not None:
        write(root, "etc/kernel/cmdline", cmdline)
    return root


def snapshot(root: pathlib.Path) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of each file of the boot configuration."""
    files = [path for top in ("etc", "boot", "efi") for path in (root / top).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes()) for path in files}
