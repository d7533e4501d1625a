# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a CPU mask is: the system's - root, system users, services - or that of an ordinary user,
who may pin tasks of their own (sched_setaffinity(2)).

The cgroup does not tell: cron, atd, a mail server (``~/.forward``), a web server with pools of users and a batch system
run what users wrote inside of their own units. A task with an ordinary user's id is a service's only where an
administrator or a package said so: by ``User=`` of its unit file, or by a container.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files

# Start of the ids of ordinary users where /etc/login.defs does not set UID_MIN (login.defs(5)).
FIRST_USER = 1000
# A user of whom there is no record: the kernel's overflow id (/proc/sys/kernel/overflowuid), which no one can log in
# with.
NO_RECORD = 65534
NO_LOGIN = 0xFFFFFFFF

# Where administrators and packages put unit files; the first of a name counts (systemd.unit(5)). Not where generators
# write, which make units of users' crontabs, nor those of transient units, with which batch systems and notebook
# servers start what users wrote.
_UNIT_DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
_SETTING = re.compile(r"^(User|DynamicUser)[ \t]*=[ \t]*(.*?)[ \t]*$")
_TRUE = ("1", "yes", "y", "true", "t", "on")
# The ids of DynamicUser= (systemd.exec(5), https://systemd.io/UIDS-GIDS).
_DYNAMIC = range(61184, 65520)
# Cgroups of containers that root runs: of Docker, containerd, CRI-O, Podman, LXC, systemd-nspawn and Kubernetes, with
# systemd and without.
_CONTAINER = re.compile(
    r"/(docker|kubepods|machine|lxc|lxc\.payload[^/]*)(\.slice)?/"
    r"|/([^/]+\.slice/)*((docker|nerdctl|cri-containerd|crio|libpod)-[^/]+\.scope|[^/]+\.service/libpod-payload-[^/]+)(/|$)"
)
_LOGIN_SLICE = re.compile(r"/user\.slice/user-([0-9]{1,10})\.slice(?:/|$)")


class Origins:
    """Whose the masks of one host are; unit files are read once.

    Args:
        host: the host.
    """

    def __init__(self, host: kernel_files.KernelFiles) -> None:
        self._host = host
        self._first_user = _first_user(host)
        self._users: dict[str, tuple[str, bool]] = {}
        self._named: dict[int, bool] = {}

    def of_task(self, folder: str, uid: int, cgroups: "t.Sequence[str]") -> "int | None":
        """Return the id of the ordinary user who set the mask of a task, ``NO_RECORD`` if nothing says which;
        None if it is the system's.

        A mask survives exec(2). A set-user-ID program may therefore still have the mask that an ordinary user set
        (``taskset -c 3 su``).

        Args:
            folder: of the task, ``proc/PID/task/TID``.
            uid: real user id of its process.
            cgroups: paths of its cgroups.
        """
        if uid < self._first_user and not self._host.is_setuid(folder + "/exe"):
            return None
        if uid >= self._first_user and (any(map(is_of_container, cgroups)) or self._is_of_service(uid, cgroups)):
            return None
        login = self._login(folder, cgroups)
        if uid >= self._first_user and (login == uid or self._has_name(uid)):
            return uid
        # A set-user-ID program, or an id without a name: one of the thousands that a user is given for containers
        # (subuid(5)).
        if login is None:
            return NO_RECORD
        return login if login >= self._first_user else None if uid < self._first_user else NO_RECORD

    def of_cpuset(self, owner: int, cgroup: str) -> "int | None":
        """Return the id of the ordinary user to whom a part of the cgroup tree was delegated;
        None if it is the system's.

        Args:
            owner: owner of the cpuset's file.
            cgroup: path of its cgroup.
        """
        return None if owner < self._first_user or self._is_of_service(owner, [cgroup]) else owner

    def _login(self, folder: str, cgroups: "t.Iterable[str]") -> "int | None":
        """Return the user whose login started a task; None if there is no record of one.

        The kernel keeps the login uid: PAM sets it once (pam_loginuid(8)), where it is configured also for crontabs,
        and children inherit it. Without auditing in the kernel, systemd's slice of the user is used.
        """
        text = (self._host.read(folder + "/loginuid") or "").strip()
        login = int(text) if text.isdigit() and len(text) < 11 else NO_LOGIN
        if login != NO_LOGIN:
            return login
        return next((int(match.group(1)) for match in map(_LOGIN_SLICE.match, cgroups) if match), None)

    def _is_of_service(self, uid: int, cgroups: "t.Iterable[str]") -> bool:
        """Return whether the unit file of a service says that it runs as this user.

        The service of a user's own manager (user@.service) is none.
        """
        return any(self._runs_as(unit, uid) for unit in _services(cgroups))

    def _has_name(self, uid: int) -> bool:
        # The answer may come from a directory server, and a process may have thousands of threads.
        if uid not in self._named:
            self._named[uid] = self._host.user_name(uid) != str(uid)
        return self._named[uid]

    def _runs_as(self, unit: str, uid: int) -> bool:
        if unit not in self._users:
            self._users[unit] = self._settings(unit)
        user, is_dynamic = self._users[unit]
        return (
            user == str(uid)
            or (self._has_name(uid) and user == self._host.user_name(uid))
            or (is_dynamic and uid in _DYNAMIC)
        )

    def _settings(self, unit: str) -> "tuple[str, bool]":
        """Return ``User=`` and ``DynamicUser=`` of a unit's file and its drop-ins."""
        template, _at, instance = unit.rpartition(".")[0].partition("@")
        names = [unit, f"{template}@.service"] if _at else [unit]
        unit_files = [
            path
            for name in names
            for path in (f"{directory}/{name}" for directory in _UNIT_DIRECTORIES)
            if self._host.exists(path)
        ][:1]
        # Of drop-ins with the same name the first counts; they are read in the order of their names.
        drop_ins: dict[str, str] = {}
        for directory in _UNIT_DIRECTORIES:
            for name in (*names, "service"):
                for part in self._host.names(f"{directory}/{name}.d"):
                    if part.endswith(".conf"):
                        drop_ins.setdefault(part, f"{directory}/{name}.d/{part}")
        user, is_dynamic = "", False
        for path in unit_files + [drop_ins[name] for name in sorted(drop_ins)] if unit_files else ():
            for key, value in _service_settings(self._host.read(path) or ""):
                if key == "User":
                    user = re.sub(r"%[iI]", lambda _found: instance, value)
                else:
                    is_dynamic = value.lower() in _TRUE
        return user, is_dynamic


def service(cgroups: "t.Iterable[str]") -> "str | None":
    """Return the service of the system that a task with these cgroups belongs to; None without one.
    The service of a user's own manager (user@.service) is none.
    """
    return next(_services(cgroups), None)


def is_of_container(cgroup: str) -> bool:
    """Return whether a cgroup is one of a container that root runs, or holds one."""
    return _CONTAINER.match(cgroup) is not None


def _first_user(host: kernel_files.KernelFiles) -> int:
    """Return the lowest user id of an ordinary user on this host."""
    match = re.search(r"^[ \t]*UID_MIN[ \t]+([0-9]{1,9})[ \t]*$", host.read("etc/login.defs") or "", re.MULTILINE)
    return int(match.group(1)) if match else FIRST_USER


def _system_unit(cgroup: str) -> "str | None":
    """Return the service of the system that a cgroup belongs to.

    It lies in slices only; what is below it may have been delegated to anybody.
    """
    for part in cgroup.strip("/").split("/"):
        if not part.endswith(".slice"):
            return part if part.endswith(".service") else None
    return None


def _services(cgroups: "t.Iterable[str]") -> "t.Iterator[str]":
    """Yield the services of the system that cgroups belong to."""
    return filter(None, (_system_unit(path) for path in cgroups if not _LOGIN_SLICE.match(path)))


def _service_settings(text: str) -> "t.Iterator[tuple[str, str]]":
    """Yield the settings of the section [Service] of a unit file that say who runs it (systemd.syntax(7))."""
    section = ""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        if line.startswith("["):
            section = line.strip()
        match = _SETTING.match(line.strip()) if section == "[Service]" else None
        if match:
            yield match.group(1), match.group(2)
