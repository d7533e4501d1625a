# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kernel's SMT control and CPU hotplug on a directory tree, after kernel/cpu.c of 6.1 and of 6.12."""

import contextlib
import errno
import os
import shutil

from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state

CPUS = smt_state.CPU_DIRECTORY


def numbered_cores(count: int, threads: int, numbering: str) -> list[tuple[int, ...]]:
    """Cores as CPU tuples: ``adjacent`` (0,1)(2,3) or ``split`` (0,4)(1,5)."""
    if numbering == "adjacent":
        return [tuple(range(core * threads, (core + 1) * threads)) for core in range(count)]
    return [tuple(core + thread * count for thread in range(threads)) for core in range(count)]


def cpulist(cpus) -> str:
    """Not in the kernel's shortest form: readers have to take others as well."""
    return ",".join(str(cpu) for cpu in sorted(cpus))


class FakeKernel(kernel_files.KernelFiles):
    """``control`` None: without the file; ``numeric``: powerpc's number of threads; ``modern``: 6.6 and later."""

    def __init__(self, sysroot, cores, control="on", modern=False, numeric=False, offline=()):
        super().__init__(str(sysroot))
        self.cores = [tuple(core) for core in cores]
        self.core_of = {cpu: core for core in self.cores for cpu in core}
        self.present, self.most = set(self.core_of), max(map(len, self.cores))
        self.modern, self.numeric, self.control = modern or numeric, numeric, control
        is_off = control in ("off", "forceoff")
        self.allowed_threads = 1 if is_off else self.most
        self.online = {cpu for cpu in self.present - set(offline) if self._primary(cpu) or not is_off}
        self.refusals, self.writes = {}, []  # (cpu, online) -> errno
        self.writes_left = None  # raises Killed before the write that would be one too many
        self.swallow_off = 0  # so many writes of off end half way and report success
        self.faults = None  # what counts each write, see faults.py
        self.read_only, self._shown, self._pid = False, {}, os.getpid()
        for name in ("present", "possible"):
            self._put(f"{CPUS}/{name}", cpulist(self.present))
        self._show()

    # What the kernel shows --------------------------------------------------------------------------------------------
    def _put(self, path, text):
        if self._shown.get(path) == text:
            return
        self._shown[path] = text
        full = os.path.join(self.sysroot, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="ascii") as handle:
            handle.write(text + "\n")

    def _show(self):
        self._put(CPUS + "/online", cpulist(self.online))
        self._put(CPUS + "/offline", cpulist(self.present - self.online))
        if self.control is not None:
            self._put(smt_state.CONTROL, self._control_text())
            self._put(smt_state.ACTIVE, "1" if self._active() else "0")
        for cpu in self.present:
            folder = f"{CPUS}/cpu{cpu}"
            self._put(folder + "/online", str(int(cpu in self.online)))
            if cpu in self.online:
                siblings = cpulist(set(self.core_of[cpu]) & self.online)
                core = str(self.cores.index(self.core_of[cpu]))
                topology = {"core_cpus_list": siblings, "thread_siblings_list": siblings, "core_id": core}
                for name, text in {**topology, "physical_package_id": "0"}.items():
                    self._put(f"{folder}/topology/{name}", text)
            elif folder + "/topology/core_id" in self._shown:
                shutil.rmtree(os.path.join(self.sysroot, folder, "topology"))
                kept = {path: text for path, text in self._shown.items() if not path.startswith(folder + "/topology/")}
                self._shown = kept

    def put_present(self, cpus):
        """Show other CPUs as present, as after a hot-plug of the machine's processors."""
        self._put(CPUS + "/present", cpulist(cpus))
        self._put(CPUS + "/online", cpulist(self.online))

    def _control_text(self):
        if self.control == "on" and self.modern and self.allowed_threads != self.most:
            return str(self.allowed_threads)
        return self.control

    def _active(self):
        return any(len(self.online.intersection(core)) > 1 for core in self.cores)

    # What the kernel does ---------------------------------------------------------------------------------------------
    def _primary(self, cpu):
        return self.core_of[cpu][0] == cpu

    def _thread_allowed(self, cpu):
        return not self.numeric or self.core_of[cpu].index(cpu) < self.allowed_threads

    def _set(self, cpu, online):
        refusal = self.refusals.get((cpu, online))
        if refusal:
            raise OSError(refusal, os.strerror(refusal))
        if not online and self.online == {cpu}:
            raise OSError(errno.EBUSY, "last CPU")
        is_allowed = self.control in (None, "on", "notsupported", "notimplemented") and self._thread_allowed(cpu)
        if online and not self._primary(cpu) and not is_allowed:
            raise OSError(errno.EPERM, "SMT is off")
        (self.online.add if online else self.online.discard)(cpu)

    def _read_again(self):
        """In a process that was forked, such as the watchdog, the memory is that of the fork."""
        if os.getpid() == self._pid:
            return
        self._pid, self._shown, self.writes_left = os.getpid(), {}, None
        self.online = set(smt_state.read(files=self)["online"])
        shown = self.read(smt_state.CONTROL)
        if shown is not None:
            self.control = "on" if shown.isdigit() else shown
            self.allowed_threads = int(shown) if shown.isdigit() else self.most if shown == "on" else 1

    def write(self, path, text):
        self._read_again()
        if self.faults is not None:
            self.faults.write(None)
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise Killed
            self.writes_left -= 1
        self.writes.append((path, text))
        if self.read_only:
            raise OSError(errno.EROFS, "read-only")
        if not self.exists(path):
            raise OSError(errno.ENOENT, path)
        with self.faults.paused() if self.faults else contextlib.nullcontext():
            try:
                if path == smt_state.CONTROL:
                    self._write_control(text)
                else:
                    self._set(int(path.split("/cpu")[-1].split("/")[0]), text == "1")
            finally:
                self._show()

    def _write_control(self, text):
        if self.control == "forceoff":
            raise OSError(errno.EPERM, "forceoff")
        if self.control in ("notsupported", "notimplemented"):
            raise OSError(errno.ENODEV, "no SMT")
        numbers = range(1, self.most + 1) if self.numeric else (1, self.most)
        wanted = {"on": self.most, "off": 1}.get(text)
        if wanted is None and self.modern and text.isdigit() and int(text) in numbers:
            wanted = int(text)
        if wanted is None:
            raise OSError(errno.EINVAL, "no such control")
        if self.modern:
            self._modern(wanted)
        elif (wanted == 1) != (self.control == "off"):
            self._old(wanted)

    def _old(self, wanted):
        if wanted > 1:
            self.control = "on"
            self._raise(self.present)
        elif self.swallow_off:
            self.swallow_off -= 1
        else:
            for cpu in sorted(self.online):
                if not self._primary(cpu):
                    self._set(cpu, False)
            self.control = "off"

    def _modern(self, wanted):
        before, self.allowed_threads = self.allowed_threads, wanted
        if wanted > before:
            self.control = "on"
            # topology_is_core_online: a core that is wholly off stays so.
            there = [cpu for core in self.cores if self.online.intersection(core) for cpu in core]
            self._raise({cpu for cpu in there if self._thread_allowed(cpu)})
        elif wanted < before:
            control = "off" if wanted == 1 else "on"
            for cpu in sorted(self.online):
                if self._primary(cpu) or (control == "on" and self._thread_allowed(cpu)):
                    continue
                if self.swallow_off:
                    self.swallow_off -= 1
                    return
                self._set(cpu, False)
            self.control = control

    def _raise(self, cpus):
        for cpu in sorted(cpus - self.online):
            self._set(cpu, True)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the writer's own clean-up may run after it (see ``test_cpu_state``)."""
