# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forms of /etc/default/grub and its drop-ins as hosts have them, each with the real grub-mkconfig: what smt_boot_args
says in check mode, what it does, and what the entries have afterwards.

usage: forms.py SMT...     (states of smt_boot_args; one line of JSON for each form and state)
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change

SETTINGS = pathlib.Path("/etc/default/grub")
DROP_INS = pathlib.Path("/etc/default/grub.d")
CFG = pathlib.Path("/boot/grub/grub.cfg")
BASE = 'GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_TERMINAL=serial\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'
# The name of a form, the text after BASE, and drop-ins.
FORMS = {
    "double quotes": ('GRUB_CMDLINE_LINUX="ro nosmt quiet"\n', {}),
    "single quotes": ("GRUB_CMDLINE_LINUX='ro nosmt quiet'\n", {}),
    "no quotes": ("GRUB_CMDLINE_LINUX=nosmt\n", {}),
    "nothing": ("", {}),
    "of normal entries alone": ('GRUB_CMDLINE_LINUX_DEFAULT="quiet nosmt"\n', {}),
    "in both": ('GRUB_CMDLINE_LINUX_DEFAULT="quiet nosmt"\nGRUB_CMDLINE_LINUX="nosmt"\n', {}),
    "a backslash in quotes": ('GRUB_CMDLINE_LINUX="ro \\\nnosmt quiet"\n', {}),
    "a backslash outside quotes": ('GRUB_CMDLINE_LINUX="ro"\\\n" nosmt"\n', {}),
    "a newline in quotes": ('GRUB_CMDLINE_LINUX="ro\nnosmt quiet"\n', {}),
    "a newline in quotes after it": ('GRUB_CMDLINE_LINUX="nosmt\nquiet"\n', {}),
    "bash's +=": ('GRUB_CMDLINE_LINUX="ro"\nGRUB_CMDLINE_LINUX+=" nosmt"\n', {}),
    "exported": ('export GRUB_CMDLINE_LINUX="ro nosmt"\n', {}),
    "exported later": ('GRUB_CMDLINE_LINUX="ro nosmt"\nexport GRUB_CMDLINE_LINUX\n', {}),
    "its own value and more": ('GRUB_CMDLINE_LINUX=ro\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX nosmt"\n', {}),
    "more where there is some": ('GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX:+$GRUB_CMDLINE_LINUX }nosmt"\n', {}),
    "a default": (': "${GRUB_CMDLINE_LINUX:=ro nosmt}"\n', {}),
    "a command": ('GRUB_CMDLINE_LINUX="ro $(echo nosmt)"\n', {}),
    "a loop": ('for word in ro nosmt; do GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX $word"; done\n', {}),
    "a condition": ('if [ -e /boot ]; then GRUB_CMDLINE_LINUX="nosmt"; fi\n', {}),
    "a function": ('add() { GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX $1"; }\nadd nosmt\n', {}),
    "a comment behind it": ('GRUB_CMDLINE_LINUX="ro nosmt" # for security\n', {}),
    "a comment alone": ('#GRUB_CMDLINE_LINUX="nosmt"\n', {}),
    "a number sign in quotes": ('GRUB_CMDLINE_LINUX="ro x=#1 nosmt"\n', {}),
    "carriage returns": ('GRUB_CMDLINE_LINUX="ro nosmt quiet"\r\n', {}),
    "a carriage return behind a word": ("GRUB_CMDLINE_LINUX=nosmt\r\n", {}),
    "carriage returns and a blank line": ('GRUB_CMDLINE_LINUX="nosmt"\r\n\r\n', {}),
    "tabs": ('GRUB_CMDLINE_LINUX="ro\tnosmt\tquiet"\n', {}),
    "quotes in quotes": ('GRUB_CMDLINE_LINUX="dyndbg=\\"file smp.c +p\\" nosmt"\n', {}),
    "no line end": ('GRUB_CMDLINE_LINUX="ro nosmt"', {}),
    "bytes that are not text": ('# \udcff\udcfe\nGRUB_CMDLINE_LINUX="ro nosmt"\n', {}),
    "taken back": ("GRUB_CMDLINE_LINUX=nosmt\nunset GRUB_CMDLINE_LINUX\n", {}),
    "the rest is not read": ("GRUB_CMDLINE_LINUX=nosmt\nreturn 0\nGRUB_CMDLINE_LINUX=ro\n", {}),
    "a program that ends there": ("GRUB_CMDLINE_LINUX=nosmt\nexit 0\n", {}),
    "read only": ("readonly GRUB_CMDLINE_LINUX=nosmt\n", {}),
    "a command that fails": ("GRUB_CMDLINE_LINUX=nosmt\nfalse\n", {}),
    "a blank after the equals sign": ("GRUB_CMDLINE_LINUX= nosmt\n", {}),
    "a byte order mark": ("\ufeffGRUB_CMDLINE_LINUX=nosmt\n", {}),
    "an open quote": ('GRUB_CMDLINE_LINUX="ro nosmt\n', {}),
    "parts of others": ('GRUB_CMDLINE_LINUX="mds=full,nosmt l1tf=full,force"\n', {}),
    "other values": ('GRUB_CMDLINE_LINUX="nosmt=force maxcpus=4"\n', {}),
    "without recovery": ('GRUB_DISABLE_RECOVERY=true\nGRUB_CMDLINE_LINUX_DEFAULT="nosmt"\n', {}),
    "without a submenu": ('GRUB_DISABLE_SUBMENU=y\nGRUB_CMDLINE_LINUX="nosmt"\n', {}),
    "of recovery": ('GRUB_CMDLINE_LINUX_RECOVERY="single nosmt"\n', {}),
    "a cloud image": (
        'GRUB_CMDLINE_LINUX="nosmt"\n',
        {"50-cloudimg-settings.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0 nosmt"\n'},
    ),
    "a cloud image that adds": (
        'GRUB_CMDLINE_LINUX_DEFAULT="nosmt"\n',
        {"50-cloudimg-settings.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT console=ttyS0"\n'},
    ),
    "kdump-tools": (
        'GRUB_CMDLINE_LINUX="nosmt"\n',
        {"kdump-tools.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=384M-:128M"\n'},
    ),
    "a drop-in that takes away": (
        'GRUB_CMDLINE_LINUX="ro nosmt"\n',
        {"60-x.cfg": 'GRUB_CMDLINE_LINUX="$(echo "$GRUB_CMDLINE_LINUX" | sed s/nosmt//)"\n'},
    ),
    "read after ours": ("", {"zzz.cfg": 'GRUB_CMDLINE_LINUX="nosmt=force"\n'}),
    "read after ours, as asked for": ("", {"zzz.cfg": 'GRUB_CMDLINE_LINUX="nosmt"\n'}),
    "read after ours, more": ("", {"zzz.cfg": 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX quiet"\n'}),
    "read after ours, another value": ("", {"zzz.cfg": "GRUB_TIMEOUT=0\n"}),
    "a drop-in of another name": ("", {"60-x.cfg.dpkg-old": 'GRUB_CMDLINE_LINUX="nosmt"\n'}),
    "a drop-in that is no shell": ("", {"60-x.cfg": "GRUB_CMDLINE_LINUX='nosmt\n"}),
}
WANTED = {"disabled": ["nosmt"], "enabled": [], "forced_off": ["nosmt=force"]}


def lay_out(text, drop_ins):
    for path in DROP_INS.glob("*"):
        path.unlink()
    DROP_INS.mkdir(exist_ok=True)
    CFG.unlink(missing_ok=True)
    SETTINGS.write_bytes((BASE + text).encode("utf-8", "surrogateescape"))
    for name, content in drop_ins.items():
        (DROP_INS / name).write_text(content)


def generate():
    """Whether grub-mkconfig makes a grub.cfg of the settings."""
    new = CFG.with_name("made")
    done = subprocess.run(["grub-mkconfig", "-o", new], capture_output=True, check=False)
    if done.returncode == 0 and new.exists() and "menuentry" in new.read_text():
        new.rename(CFG)
        return True
    new.unlink(missing_ok=True)
    return False


def files():
    paths = [SETTINGS, *DROP_INS.glob("*"), *CFG.parent.glob("*.cfg*"), *CFG.parent.glob(".*")]
    return {str(path): path.read_bytes() for path in sorted(paths)}


def ask(smt, check):
    """What the module says, without what differs on purpose."""
    try:
        result = change.run(host_files.HostFs("/"), change.Request(smt, None, False, check))
    except change.ERRORS as error:
        return {"refused": str(error)}
    return {"changed": result["changed"], "found": result["found"], "configured": result["configured"]}


def booted():
    """The arguments about SMT that GRUB gives to the kernel, entry by entry, without those for recovery; GRUB takes
    carriage returns away.
    """
    lines = [line for line in CFG.read_text().split("\n") if re.match(r"\s*linux\s", line)]
    entries = [shlex.split(line.replace("\r", " "))[2:] for line in lines]
    return [
        [word for word in words if re.match(r"nosmt|maxcpus|mds=|l1tf=", word)]
        for words in entries
        if "single" not in words
    ]


def play(name, smt):
    text, drop_ins = FORMS[name]
    lay_out(text, drop_ins)
    made = generate()
    if not made:
        # An administrator's edit that was never made into a grub.cfg.
        CFG.write_bytes(VALID)
    before = files()
    said = ask(smt, True)
    quiet = files() == before
    done = ask(smt, False)
    outcome = {"form": name, "smt": smt, "made": made, "check": said, "real": done, "quiet": quiet}
    if "refused" in done:
        outcome["as_before"] = files() == before
    else:
        outcome["booted"] = booted()
        outcome["again"] = ask(smt, False)
    return outcome


lay_out("", {})
assert generate()
VALID = CFG.read_bytes()
only = os.environ.get("FORMS")
for form in FORMS:
    for state in sys.argv[1:]:
        if not only or re.search(only, form):
            print(json.dumps(play(form, state)), flush=True)
