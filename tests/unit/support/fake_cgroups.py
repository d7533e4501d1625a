# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with SMT, cgroup v2 and a systemd, on a directory tree."""

import errno
import os
import pathlib
import shutil

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from fake_kernel import FakeKernel, numbered_cores

MOUNT = "sys/fs/cgroup"
CONTROL = "run/systemd/system.control"
DATABASE = "postgresql@15-main.service"
DATABASE_GROUP = "/system.slice/" + DATABASE
SESSION = "/user.slice/user-0.slice/session-3.scope"
HEADER = (
    '# This is a drop-in unit file extension, created via "systemctl set-property"\n# or an equivalent operation. Do'
    " not edit.\n"
)


def _new():
    return {"cpus": set(), "partition": "member", "down": False, "procs": []}


class CgroupHost(FakeKernel):
    """Two cores of four threads; the database has the processes 20 (pinned to CPU 5) and 21, ssh is pinned to CPU 1.

    ``old``: before Linux 6.1, which has no isolated partitions. Before 6.2 each change of a cpuset gives all its tasks
    the mask of the cpuset, and so does handing the controller down or taking it back (cgroup-v2.rst); later kernels
    have what it ``remembers``: the mask that was asked for.
    """

    def __init__(self, sysroot, cores=None, old=False, remembers=False, **options):
        ssh = "/system.slice/ssh.service"
        parents = ("/system.slice", "/user.slice", "/user.slice/user-0.slice")
        names = ("/", "/init.scope", *parents[:1], DATABASE_GROUP, ssh, *parents[1:], SESSION)
        self.groups, self.processes, self.commands = {name: _new() for name in names}, {}, []
        self.old, self.remembers, self.allowed = old, remembers, {DATABASE: ""}
        super().__init__(sysroot, cores or numbered_cores(2, 4, "adjacent"), **options)
        self.put("proc/self/mounts", f"cgroup2 /{MOUNT} cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\n")
        self.put("run/systemd/system/README", "")
        self.put(MOUNT + "/cgroup.controllers", "cpuset cpu io memory pids\n")
        places = {1: "/init.scope", 20: DATABASE_GROUP, 21: DATABASE_GROUP, 30: ssh, os.getpid(): SESSION}
        for pid, group in places.items():
            self.groups[group]["procs"].append(pid)
            self.processes[pid] = {"asked": set(), "mask": set(self.online)}
        self.set_affinity(20, {5} & self.online or {1})
        self.set_affinity(30, {1})

    # What the kernel shows --------------------------------------------------------------------------------------------
    def put(self, path, text):
        full = pathlib.Path(self.sysroot) / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text, encoding="utf-8")

    def above(self, group):
        return group.rpartition("/")[0] or "/"

    def has_cpuset(self, group):
        return group != "/" and self.groups[self.above(group)]["down"]

    def valid(self, group):
        one, above = self.groups[group], self.above(group)
        others = [
            other for name, other in self.groups.items() if name not in ("/", group) and self.above(name) == above
        ]
        exclusive = not any(one["cpus"] & other["cpus"] for other in others)
        is_root = one["partition"] != "member" and above == "/" and self.has_cpuset(group)
        return bool(is_root and one["cpus"] & self.online and exclusive)

    def effective(self, group):
        if group == "/":
            taken = [one["cpus"] for name, one in self.groups.items() if name != "/" and self.valid(name)]
            return self.online - set().union(*taken)
        if self.valid(group):
            return self.groups[group]["cpus"] & self.online
        above = self.effective(self.above(group))
        return (self.groups[group]["cpus"] & above or above) if self.has_cpuset(group) else above

    def masks(self):
        """Give each task whose cpuset has other CPUs than its mask allows the mask that the kernel gives it."""
        for group, one in self.groups.items():
            cpus = self.effective(group)
            for pid in one["procs"]:
                process = self.processes[pid]
                if process.get("cpus") not in (None, cpus):
                    process["mask"] = (process["asked"] & cpus or cpus) if self.remembers else set(cpus)
                process["cpus"] = set(cpus)

    def show(self):
        self.masks()
        for group, one in self.groups.items():
            folder = MOUNT + ("" if group == "/" else group)
            self.put(folder + "/cgroup.procs", "".join(f"{pid}\n" for pid in one["procs"]))
            self.put(folder + "/cgroup.subtree_control", "cpuset memory\n" if one["down"] else "memory\n")
            files = {"cpuset.cpus.effective": cpulist.render(self.effective(group))}
            if group != "/":
                invalid = one["partition"] != "member" and not self.valid(group)
                why = " invalid (Cpu list in cpuset.cpus not exclusive)" if invalid else ""
                files["cpuset.cpus"], files["cpuset.cpus.partition"] = (
                    cpulist.render(one["cpus"]),
                    one["partition"] + why,
                )
            for name, text in files.items():
                path = pathlib.Path(self.sysroot) / folder / name
                if group == "/" or self.has_cpuset(group):
                    self.put(f"{folder}/{name}", text + "\n")
                elif path.exists():
                    path.unlink()
            for pid in one["procs"]:
                self.show_process(pid, group)

    def show_process(self, pid, group):
        fields = ["S", "1"] + ["0"] * 4 + [str(0x400000)] + ["0"] * 12 + [str(1000 + pid)] + ["0"] * 20
        status = f"Name:\tp{pid}\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t{cpulist.render(self.processes[pid]['mask'])}\n"
        for folder in (f"proc/{pid}", f"proc/{pid}/task/{pid}", *(["proc/self"] if pid == os.getpid() else [])):
            self.put(folder + "/stat", f"{pid} (p{pid}) {' '.join(fields)}\n")
            self.put(folder + "/status", status)
            self.put(folder + "/cgroup", f"0::{group}\n")

    def group_of(self, pid):
        return next(name for name, one in self.groups.items() if pid in one["procs"])

    # What the kernel does ---------------------------------------------------------------------------------------------
    def make_directory(self, path):
        group = path[len(MOUNT) :]
        if group in self.groups:
            raise FileExistsError(errno.EEXIST, "File exists")
        self.groups[group] = _new()
        self.show()

    def remove_directory(self, path):
        group = path[len(MOUNT) :]
        if self.groups[group]["procs"]:
            raise OSError(errno.EBUSY, "Device or resource busy")
        del self.groups[group]
        shutil.rmtree(pathlib.Path(self.sysroot) / path)
        self.show()

    def set_affinity(self, pid, cpus):
        allowed = set(cpus) & self.effective(self.group_of(pid))
        if not allowed:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.processes[pid].update(asked=set(cpus), mask=allowed)
        self.show()

    def write(self, path, text):
        if not path.startswith(MOUNT):
            super().write(path, text)
            self.show()
            return
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        group, _slash, name = path[len(MOUNT) :].rpartition("/")
        getattr(self, "write_" + name.replace(".", "_"))(group or "/", text)
        self.show()

    def write_cgroup_subtree_control(self, group, text):
        children = [name for name in self.groups if name != "/" and self.above(name) == group]
        if text == "+cpuset" and group != "/" and not self.has_cpuset(group):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if text == "-cpuset":
            if any(self.groups[child]["down"] for child in children):
                raise OSError(errno.EBUSY, "Device or resource busy")
            for child in children:
                self.groups[child].update(cpus=set(), partition="member")
        self.hand_down(group, text == "+cpuset")

    def hand_down(self, group, down):
        if self.groups[group]["down"] == down:
            return
        self.groups[group]["down"] = down
        for name, one in self.groups.items():
            is_below = name != group and (name + "/").startswith(group.rstrip("/") + "/")
            for pid in one["procs"] if is_below and not self.remembers else ():
                self.processes[pid]["mask"] = set(self.effective(name))

    def write_cgroup_procs(self, group, text):
        if int(text) not in self.processes:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        self.groups[self.group_of(int(text))]["procs"].remove(int(text))
        self.groups[group]["procs"].append(int(text))

    def write_cpuset_cpus(self, group, text):
        self.groups[group]["cpus"] = set(cpulist.parse(text))

    def write_cpuset_cpus_partition(self, group, text):
        if text not in ("member", "root") and (text != "isolated" or self.old):
            raise OSError(errno.EINVAL, "Invalid argument")
        self.groups[group]["partition"] = text

    # What systemd does ------------------------------------------------------------------------------------------------
    def run(self, argv):
        self.commands.append(argv[2:])
        verb = argv[2]
        if verb == "daemon-reload":
            for unit in self.allowed:
                found = self.read(f"{CONTROL}/{unit}.d/50-AllowedCPUs.conf")
                self.allowed[unit] = "" if found is None else found.partition("AllowedCPUs=")[2].replace(",", " ")
            return 0, "", ""
        unit = argv[argv.index("--") + 1]
        if verb == "show":
            if unit not in self.allowed:
                return 0, f"Id={unit}\nLoadState=not-found\nActiveState=inactive\nControlGroup=\nAllowedCPUs=\n", ""
            state = f"LoadState=loaded\nActiveState=active\nControlGroup={DATABASE_GROUP}"
            return 0, f"Id={unit}\n{state}\nAllowedCPUs={self.allowed[unit]}\n", ""
        assert argv[2:4] == ["set-property", "--runtime"], argv
        cpus = argv[-1].partition("=")[2]
        self.allowed[unit] = cpus.replace(",", " ")
        self.put(f"{CONTROL}/{unit}.d/50-AllowedCPUs.conf", f"{HEADER}[Service]\nAllowedCPUs={cpus}\n")
        if cpus:
            # Without CPUs systemd has no need of the controller any more, and leaves what it wrote.
            self.hand_down("/", True)
            self.hand_down("/system.slice", True)
            self.groups[DATABASE_GROUP]["cpus"] = set(cpulist.parse(cpus))
        self.show()
        return 0, "", ""

    def everything(self):
        """Return the text of each file, and the directories, by path."""
        root = pathlib.Path(self.sysroot)
        return {str(one.relative_to(root)): one.read_text() if one.is_file() else None for one in root.rglob("*")}
