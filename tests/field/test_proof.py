# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of public reports about tools that show which CPUs share a core, about CPUs that were switched (what a proof
says of such a host), about two settings at once, and about one setting that is compared with itself.
"""

import errno
import itertools
import pathlib

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import topology
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base, registry
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import selection
from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import switching, views
from fake_host import Host
from sysfs_tree import Machine

HYBRID = Machine(cores=6, small_cores=4, numbering="adjacent")
# Programs of the tools that are asked.
PROGRAMS = {"lscpu": "lscpu", "lstopo-no-graphics": "hwloc", "ppc64_cpu": "ppc64_cpu"}


def said(root: pathlib.Path, machine, **printed):
    """What the views differ in on a machine whose tools print this: source -> sentences, of those that answered."""

    def run(argv, _seconds):
        text = printed.get(PROGRAMS[argv[0]])
        return (127, "", "") if text is None else (0, text, "")

    fs = host_files.HostFs(sysfs_tree.write(root, sysfs_tree.files(machine)))
    shown = topology.read_topology(fs)
    found = views.read(fs, shown.online, run)
    return {one.source: views.differences(shown, one) for one in found if one.source in printed and not one.reason}


def hwloc(*cores):
    """Objects of hwloc, as it writes them: a core and the PUs below it."""
    return "".join(
        f'<object type="Core" os_index="{number}" cpuset="{hex(sum(1 << cpu for cpu in core))}">'
        + "".join(f'<object type="PU" os_index="{cpu}" cpuset="{hex(1 << cpu)}"/>' for cpu in core)
        + "</object>\n"
        for number, core in enumerate(cores)
    )


def lscpu(*cpus):
    return "# The following is the parsable format\n" + "".join(f"{','.join(map(str, one))}\n" for one in cpus)


def rows(cpus, core=lambda cpu: cpu // 2, socket=lambda _cpu: 0):
    return lscpu(*((cpu, core(cpu), socket(cpu)) for cpu in cpus))


GAPS = Machine(cores=4, threads=4, numbering="adjacent", offline=(1, 2, 3, 4, 5, 8, 9, 10, 11, 15))
IN_PAIRS = Machine(packages=2, cores=1, numbering="adjacent")
SPACED = Machine(packages=2, cores=2, threads=1, numbering="adjacent", spacing=12)
EIGHT = Machine(packages=2, cores=1, threads=8, numbering="adjacent", spacing=16)
OF_HYBRID = [(2 * core, 2 * core + 1) for core in range(6)] + [(cpu,) for cpu in range(12, 16)]
OF_GAPS = (
    "Core   0:    0*    1     2     3  \nCore   1:    4     5     6*    7* \n"
    "Core   2:    8     9    10    11  \nCore   3:   12*   13*   14*   15  \n"
)
OF_EIGHT = [f"Core {core}: {' '.join(f'{cpu}*' for cpu in range(16 * core, 16 * core + 8))}\n" for core in range(2)]
AGREES = {
    # Cores with different numbers of threads online; numbers with gaps.
    "powerpc_utils_13": (GAPS, {"ppc64_cpu": OF_GAPS}),
    "powerpc_utils_104": (EIGHT, {"ppc64_cpu": "".join(OF_EIGHT)}),
    # It shows what is online alone, or with --whole-system also what is not; the first CPU may be offline.
    "hwloc_522": (Machine(cores=2, offline=(2, 3)), {"hwloc": hwloc((0,), (1,))}),
    "hwloc_522 whole": (Machine(cores=2, offline=(2, 3)), {"hwloc": hwloc((0, 2), (1, 3))}),
    "hwloc_450": (Machine(cores=2, offline=(0,)), {"hwloc": hwloc((2,), (1, 3))}),
    # CPUs that a tool may not use are no difference.
    "hwloc_jl_81": (Machine(cores=4), {"hwloc": hwloc((1, 5), (2,))}),
    # Each core a socket of its own; a number of a core is one of its socket, so CPUs 0 and 2 are on different cores.
    "util_linux_698": (Machine(cores=4, numbering="adjacent"), {"lscpu": rows(range(8), socket=lambda cpu: cpu // 2)}),
    "util_linux_3902": (IN_PAIRS, {"lscpu": lscpu((0, 0, 0), (1, 0, 0), (2, 0, 1), (3, 0, 1))}),
    # Hybrid processors have cores of two kinds.
    "util_linux_4595": (
        HYBRID,
        {"lscpu": rows(range(16), lambda cpu: max(cpu // 2, cpu - 6)), "hwloc": hwloc(*OF_HYBRID)},
    ),
    # Numbers that leave out many CPUs.
    "likwid_565": (
        SPACED,
        {"lscpu": lscpu((0, 0, 0), (1, 1, 0), (12, 2, 1), (13, 3, 1)), "hwloc": hwloc((0,), (1,), (12,), (13,))},
    ),
}


@pytest.mark.parametrize(("machine", "printed"), AGREES.values(), ids=AGREES)
def test_what_tools_show_is_no_difference(tmp_path, machine, printed):
    assert said(tmp_path, machine, **printed) == {tool: [] for tool in printed}


def test_util_linux_4595_a_tool_that_divides_all_cpus_by_the_threads_of_the_first_core_is_wrong(tmp_path):
    found = said(tmp_path, HYBRID, lscpu=rows(range(16)))["lscpu"]
    assert found[0].startswith("lscpu has CPUs 12-13 on one core")


@pytest.fixture(name="host")
def make_host(tmp_path, monkeypatch):
    host = Host(tmp_path)
    host.stand_in(switching, monkeypatch)
    return host


def switched(host):
    return switching.there_and_back(host.run_command, 100, False, host.sysroot)


@pytest.mark.parametrize("source", ["likwid_320", "redhat_cip_hardware_134"])
def test_siblings_that_were_taken_offline_one_by_one_stay_so_and_the_control_on(source, host):
    host.online -= {1, 3, 5, 7} if source == "likwid_320" else {5, 7}
    host._show()
    online = set(host.online)
    found = switched(host)
    assert (found.refused == "no sibling is online") == (source == "likwid_320"), found
    assert host.control == "on" and host.online == online and host.pending() is None
    assert not any(found.different.values())


def test_geopm_208_one_cpu_that_does_not_come_back_is_named_and_all_others_are_back(host):
    host.refusals[3, True] = errno.EIO
    found = switched(host)
    assert host.online == set(range(8)) - {3} and found.refused is None
    assert found.different["cpus"] and found.seconds_back is not None
    assert len(found.not_restored) == 1 and "CPU 3: EIO" in found.not_restored[0], found
    # The timer goes on trying.
    assert host.pending() is not None
    del host.refusals[3, True]
    host.roll_back()
    assert host.online == set(range(8)) and host.pending() is None and host.control == "on"


CPU = "sys/devices/system/cpu"
ORIGIN = {"control": "on", "active": True, "online": [0, 1], "present": [0, 1]}
FOUND = "schedutil"


class Kernel(KernelFiles):
    """Two CPUs with cpufreq: one that is offline refuses to say its governor, and has the same one when it is back."""

    def is_online(self, path):
        return int(path.split("/")[4][3:]) in cpulist.parse(self.read(f"{CPU}/online"))

    def read(self, path):
        return None if "cpufreq" in path and not self.is_online(path) else super().read(path)

    def governors(self):
        return [super(Kernel, self).read(f"{CPU}/cpu{cpu}/cpufreq/scaling_governor") for cpu in (0, 1)]


class Siblings(base.RuntimeArm):
    pattern = "sibling_(?:on|off)"
    lever = "sibling"
    switches_cpus = True

    @property
    def wanted(self):
        return "0" if self.name.endswith("off") else "0-1"

    def switch(self):
        self.host.files.write(f"{CPU}/online", self.wanted)

    def prove(self):
        assert self.host.files.read(f"{CPU}/online") == self.wanted

    def save(self):
        return {"online": self.host.files.read(f"{CPU}/online")}

    def restore(self, saved):
        self.host.files.write(f"{CPU}/online", saved["sibling"]["online"])
        return []


@pytest.fixture(name="kernel")
def make_kernel(tmp_path, monkeypatch):
    of_cpu = {"cpufreq/scaling_available_governors": "performance powersave schedutil", "online": "1"}
    of_cpu["cpufreq/scaling_governor"] = FOUND
    files = {f"{CPU}/cpu{cpu}/{name}": text for cpu in (0, 1) for name, text in of_cpu.items()}
    sysfs_tree.write(tmp_path, {f"{CPU}/online": "0-1", f"{CPU}/present": "0-1", **files})
    monkeypatch.setattr(registry, "ARMS", (*registry.ARMS, (Siblings,)))
    return Kernel(str(tmp_path))


FACTORS = (("sibling_on", "sibling_off"), ("governor_performance", "governor_powersave"))
PAIRS = ["__".join(pair) for pair in itertools.product(*FACTORS)]
TURNED = ["__".join(reversed(name.split("__"))) for name in PAIRS]


@pytest.mark.night(after=6)
@pytest.mark.parametrize("names", [PAIRS, TURNED, [*PAIRS[:1], PAIRS[3], "sibling_on", "governor_performance"]])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_google_benchmark_1686_siblings_that_come_back_have_the_frequency_setting_of_the_arm(names, order, kernel):
    """Whichever comes first in a name: a governor that was set while a sibling was offline is none of the sibling."""
    arms = selection.Arms(names, base.ArmHost({}, Topology(), ORIGIN, files=kernel))
    assert arms.left_out == []
    saved = arms.save()
    arms.begin(saved)
    for place in (*order, order[0]):
        name = names[place]
        arms.switch(name)
        for one in arms[name].made_of:
            one.prove()
        if "governor" not in name:
            assert kernel.governors() == [FOUND] * 2
    assert arms.restore(saved) == []
    assert kernel.governors() == [FOUND] * 2 and kernel.read(f"{CPU}/online") == "0-1"
