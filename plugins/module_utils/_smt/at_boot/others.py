# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else of a host sets the state of its CPUs at boot or at times: cron, units, rc.local, POWER's smtstate.service.

It is named, and left alone: it is the administrator's.
"""

import re

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.text import printable

# Files with commands, and folders of such files.
_FILES = ("etc/crontab", "etc/rc.local", "etc/rc.d/rc.local", "var/spool/cron/root", "var/spool/cron/crontabs/root")
_FOLDERS = ("etc/cron.d", "etc/cron.hourly", "etc/cron.daily", "etc/systemd/system", "usr/local/lib/systemd/system")
# What writes the files of CPUs, as a line of a script or of a unit does it.
_SETS = re.compile(
    r"ppc64_cpu\s+--smt(?!\s*$)|chcpu\s+(?:-e|--enable|-d|--disable)"
    r"|(?:>|\btee\b|\bof=)\s*\S*(?:/smt/control|/cpu[^/\s]+/online)"
)
# powerpc-utils saves the state at each shutdown, and sets it again at boot.
_SMTSTATE = "smtstate.service"
_TARGETS = ("multi-user", "sysinit", "basic")
MAX_FILES = 1000
_OURS = "threadwise-smt"


def found(fs: host_files.HostFs) -> "list[str]":
    """Return a sentence about each file that sets the state of CPUs.

    Args:
        fs: the host's files.
    """
    paths = [path for path in _FILES if fs.status(path) is not None]
    paths += [f"{folder}/{name}" for folder in _FOLDERS for name in fs.names(folder) if not name.startswith(_OURS)]
    # Its own reader: what is no text is no problem of the host.
    reader = host_files.HostFs(fs.sysroot)
    sentences = []
    for path in paths[:MAX_FILES]:
        lines = (line.strip() for line in (reader.head(path, host_files.SMALL) or "").splitlines())
        line = next((line for line in lines if line[:1] not in ("", "#", ";") and _SETS.search(line)), None)
        if line is not None:
            sentences.append(f"{fs.path(path)} sets the state of CPUs by itself: {printable(line, 120)}")
    if any(_SMTSTATE in fs.names(f"etc/systemd/system/{target}.target.wants") for target in _TARGETS):
        sentences.append(f"{_SMTSTATE} is enabled, which sets the state of the last shutdown again at each boot")
    return sentences
