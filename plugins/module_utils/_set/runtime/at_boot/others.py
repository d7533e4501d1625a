# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else of a host sets the state of its CPUs at boot or at times: cron, units and the scripts that they start,
rc.local, tmpfiles.d, sysfsutils, cloud-init at each boot, TuneD's profile, POWER's smtstate.service.

It is named, and left alone: it is the administrator's.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.text import printable
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import tuned_profiles

# Files with commands or values, and folders of such files.
_FILES = (
    "etc/crontab",
    "etc/rc.local",
    "etc/rc.d/rc.local",
    "etc/sysfs.conf",
    "var/spool/cron/root",
    "var/spool/cron/crontabs/root",
)
_UNITS = "etc/systemd/system"
_TARGETS = ("multi-user", "sysinit", "basic", "graphical", "default")
_FOLDERS = (
    *(f"etc/cron.{when}" for when in ("d", "hourly", "daily", "weekly", "monthly")),
    *(f"{above}/tmpfiles.d" for above in ("etc", "run", "usr/local/lib")),
    "etc/sysfs.d",
    "etc/local.d",
    "etc/init.d",
    "var/lib/cloud/scripts/per-boot",
    _UNITS,
    *(f"{_UNITS}/{target}.target.wants" for target in _TARGETS),
    "usr/local/lib/systemd/system",
)
# What cloud-init made of a user's data; of its commands only those of bootcmd are run at each boot.
_CLOUD_CONFIG = ("etc/cloud/cloud.cfg", "var/lib/cloud/instance/cloud-config.txt")
_CLOUD_FOLDER = "etc/cloud/cloud.cfg.d"
_BOOTCMD = re.compile(r"^bootcmd:[^\n]*\n((?:(?:[ \t-][^\n]*)?(?:\n|\Z))*)", re.MULTILINE)
# What writes the files of CPUs, as a line of a script or of a unit does it, and as a list of values does.
_SETS = re.compile(
    r"ppc64_cpu\s+--smt(?!\s*$)|smtstate\s+--load|chcpu\s+(?:-e|--enable|-d|--disable)"
    r"|(?:>|\btee\b|\bof=)\s*\S*(?:/smt/control|/cpu[^/\s]+/online)"
    r"|^(?:w\S*\s+)?/?(?:sys/)?devices/system/cpu/(?:smt/control|cpu[^/\s]+/online)(?:\s|=)"
)
# A loop names the folder of a CPU by a variable.
_SETS_IN_LOOP = re.compile(r"(?:>|\btee\b|\bof=)\s*[\"']?\$\{?\w+\}?[\"']?/online\b")
_CPUS = "/sys/devices/system/cpu"
# Scripts that are no package's, as a unit or a table of cron names them.
_SCRIPT = re.compile(r"(?<![\w/.])/((?:usr/local|opt|root|etc|srv|home|var)/[\w./@+-]+)")
# powerpc-utils saves the state at each shutdown, and sets it again at boot.
_SMTSTATE = "smtstate.service"
MAX_FILES = 1000
_OURS = "threadwise-smt"


def find(fs: host_files.HostFs) -> "list[str]":
    """Return a sentence about each file that sets the state of CPUs.

    Args:
        fs: the host's files.
    """
    # Its own reader: what is no text is no problem of the host.
    reader = host_files.HostFs(fs.sysroot)
    sentences: dict[str, str] = {}
    profiles = {profile.folder: profile.name for profile in tuned_profiles.active(reader)}
    for path in _paths(reader, profiles)[:MAX_FILES]:
        text = _read(reader, path)
        line = _setting_line(text)
        profile = profiles.get(path.rpartition("/")[0])
        if line is not None:
            by = f"TuneD's profile {profile} ({fs.path(path)})" if profile else fs.path(path)
            sentences.setdefault(line, f"{by} sets the state of CPUs by itself: {printable(line, 120)}")
            continue
        for script in dict.fromkeys(_SCRIPT.findall("\n".join(_lines(text)))):
            line = _setting_line(_read(reader, script))
            if line is not None and script != path:
                by = f"{fs.path(script)}, which {fs.path(path)} names,"
                sentences.setdefault(line, f"{by} sets the state of CPUs by itself: {printable(line, 120)}")
    if any(_SMTSTATE in reader.names(f"{_UNITS}/{target}.target.wants") for target in _TARGETS):
        sentences[_SMTSTATE] = f"{_SMTSTATE} is enabled, which sets the state of the last shutdown again at each boot"
    return list(sentences.values())


def _paths(reader: host_files.HostFs, profiles: "t.Iterable[str]") -> "list[str]":
    paths = [path for path in (*_FILES, *_CLOUD_CONFIG) if reader.status(path) is not None]
    paths += [
        f"{folder}/{name}"
        for folder in (*profiles, _CLOUD_FOLDER, *_FOLDERS)
        for name in reader.names(folder)
        if not name.startswith(_OURS) and name != _SMTSTATE
    ]
    return paths


def _read(reader: host_files.HostFs, path: str) -> str:
    text = reader.head(path, host_files.SMALL) or ""
    if path in _CLOUD_CONFIG or path.startswith(_CLOUD_FOLDER):
        return "\n".join(_BOOTCMD.findall(text))
    return text


def _lines(text: str) -> "list[str]":
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line[:1] not in ("", "#", ";")]


def _setting_line(text: str) -> "str | None":
    lines = _lines(text)
    is_about_cpus = any(_CPUS in line for line in lines)
    return next((line for line in lines if _SETS.search(line) or (is_about_cpus and _SETS_IN_LOOP.search(line))), None)
