# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many arms in one evaluation of a guest with four threads a core: each is seen in the guest while it is measured,
and nothing of it is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import order

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
RESULTS = EPHEMERAL / "results"
GUEST = "smt-arms"
RUNS = "/var/lib/threadwise-smt/runs"
PLAN = "[s]mt_benchmark"
DATABASE = "postgresql@15-main.service"
CPUS = "/sys/devices/system/cpu"
GROUPS = "/sys/fs/cgroup"
PARTITION = GROUPS + "/threadwise-smt-isolated"
HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"
# Only there to end what hangs: no state below passes by itself.
TIME_LIMIT = 1200
HOLD, HELD = "/run/hold", "/run/held"
# Each worker leaves a file with its pid as the name, and stands still until that file, or HOLD, is gone.
HELD_WORKLOAD = {
    "name": "held",
    "timeout": 3600,
    "metric": {"name": "rate", "unit": "1/s", "better": "higher", "pattern": "rate ([0-9]+)"},
    "argv": [
        "sh",
        "-c",
        (
            f"if [ -e {HOLD} ]; then touch {HELD}/$$; while [ -e {HOLD} ] && [ -e {HELD}/$$ ]; do sleep 0.2; done; fi;"
            " echo rate 100"
        ),
    ],
}
# More than the database and the tests have committed, which half of the memory is not.
OVERCOMMIT_RATIO = 90
# However long it is held, the plan has time left, and it ends as soon as it knows enough.
HELD_PLAN = {
    "smt_eval_workloads": [],
    "smt_eval_custom": [HELD_WORKLOAD],
    "smt_eval_placements": ["all_threads"],
    "smt_eval_affinity_conflicts": "warn",
    "smt_eval_budget": 7200,
    "smt_eval_settle_seconds": 0.2,
    "smt_eval_overcommit_ratio": OVERCOMMIT_RATIO,
    "smt_eval_probe": "never",
}
OF_SMT = ["smt_on", "threads_per_core_2", "one_thread_per_core", "isolated"]
OF_A_UNIT = ["as_found", {"one_thread_per_core": {"unit": DATABASE}}, {"smt_off_on": {"cpus": "4-7"}}]
# As many as one evaluation may have.
OF_MEMORY = [
    "smt_on",
    "overcommit_strict",
    "overcommit_always",
    "panic_on_oom",
    "hugepages_16",
    "thp_always",
    "thp_madvise",
    "thp_never",
]
# By arm: the CPUs online, and those that the workers run on.
EXPECTED = {
    "smt_on": ("0-7", {0, 1, 2, 3, 4, 5, 6, 7}),
    "threads_per_core_2": ("0-1,4-5", {0, 1, 4, 5}),
    "one_thread_per_core": ("0-7", {0, 4}),
    "isolated": ("0-7", {4, 5, 6, 7}),
    "as_found": ("0-7", {0, 1, 2, 3, 4, 5, 6, 7}),
    f"one_thread_per_core_unit_{DATABASE}": ("0-7", {0, 1, 2, 3, 4, 5, 6, 7}),
    "smt_off_on_cpus_4-7": ("0-4", {0, 1, 2, 3, 4}),
}
# By arm of the memory: what shows it, and as what.
SHOWN = {
    "overcommit_strict": ("sysctl -n vm.overcommit_memory vm.overcommit_ratio", f"2\n{OVERCOMMIT_RATIO}"),
    "overcommit_always": ("sysctl -n vm.overcommit_memory", "1"),
    "panic_on_oom": ("sysctl -n vm.panic_on_oom kernel.panic", "1\n60"),
    "hugepages_16": ("sysctl -n vm.nr_hugepages", "16"),
    "thp_always": (f"cat {HUGE}", "[always] madvise never"),
    "thp_madvise": (f"cat {HUGE}", "always [madvise] never"),
    "thp_never": (f"cat {HUGE}", "always madvise [never]"),
}


def cpus(text):
    """The CPUs of a list as the kernel writes it."""
    bounds = [part.partition("-") for part in text.strip().split(",") if part]
    return {cpu for low, _dash, high in bounds for cpu in range(int(low), int(high or low) + 1)}


def wait_until(what, log):
    """Wait until something is true that then stays true."""
    end = time.monotonic() + TIME_LIMIT
    while not what():
        assert time.monotonic() < end, log.read_text(encoding="utf-8")
        time.sleep(1)


def plans(host):
    """Pids of the plan's processes on the guest."""
    return host.run("pgrep -f %s", PLAN).stdout.split()


def log_of(run):
    return EPHEMERAL / f"{run}.log"


def start(run, arms, *arguments, **changed):
    """An evaluation in the background."""
    variables = {**HELD_PLAN, "smt_eval_arms": arms, "smt_eval_dest": str(RESULTS), "smt_eval_run": run, **changed}
    command = [
        "ansible-playbook",
        "--inventory",
        str(EPHEMERAL / "inventory"),
        "threadwise.smt.smt_eval",
        *arguments,
        "--extra-vars",
        json.dumps(variables),
    ]
    with log_of(run).open("w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def descendants(pid):
    """Pids of a process's descendants: Ansible's workers have sessions of their own and outlive their parent."""
    children = [
        int(child)
        for child in subprocess.run(
            ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
        ).stdout.split()
    ]
    return [one for child in children for one in [*descendants(child), child]]


def lose(controller):
    """End a controller and all its processes, which get no chance to say so to the guest."""
    for pid in [*descendants(controller.pid), controller.pid]:
        # A worker may end by itself between the look and the kill.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    controller.wait()


def result(run):
    return json.loads((RESULTS / run / (GUEST + ".json")).read_text(encoding="utf-8"))


def arm_on(host, run):
    """The arm that the guest was switched to last, None before the first."""
    events = [json.loads(line) for line in host.run("cat %s/%s/events.jsonl", RUNS, run).stdout.splitlines()]
    return next((event["detail"] for event in reversed(events) if event["event"] == "switched"), None)


def held(host):
    """The pids of the workers that stand still."""
    return [int(name) for name in host.run("ls " + HELD).stdout.split()]


def threads(host, unit):
    """The CPU mask of each thread of a unit, by thread id."""
    groups = f"{GROUPS}/system.slice/'{unit}'/cgroup.procs {GROUPS}/system.slice/*/'{unit}'/cgroup.procs"
    script = f"for p in $(cat {groups} 2>/dev/null); do for t in /proc/$p/task/*; do "
    script += "echo $(basename $t) $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' $t/status); done; done"
    return dict(line.split() for line in host.check_output("sh -c %s", script).splitlines())


def everything(host):
    """What arms may change, as text."""
    return {
        "control": host.check_output(f"cat {CPUS}/smt/control"),
        "online": host.check_output(f"cat {CPUS}/online"),
        # Processes of the database come and go.
        "masks": {unit: sorted(set(threads(host, unit).values())) for unit in (DATABASE, "pinned.service")},
        # Sessions come and go with the connections of this test.
        "cgroups": host.check_output(f"find {GROUPS} -type d -not -path '*/user.slice/*' | sort"),
        # grep fails where one of the files is empty, and most are.
        "controllers": (
            host.run(
                f"find {GROUPS} -name cgroup.subtree_control -not -path '*/user.slice/*' | sort | xargs grep -H ."
            ).stdout
        ),
        "cpusets": host.run(f"cd {GROUPS} && grep -r . --include=cpuset.cpus --include=cpuset.cpus.partition .").stdout,
        "systemd": host.run("find /run/systemd/system.control").stdout,
        "property": host.check_output("systemctl show -p AllowedCPUs %s", DATABASE),
        "huge pages": host.check_output(f"cat {HUGE}; sysctl -n vm.nr_hugepages"),
        "memory": host.check_output(
            "sysctl vm.overcommit_memory vm.overcommit_ratio vm.overcommit_kbytes vm.panic_on_oom kernel.panic"
        ),
        "boot files": host.check_output(
            "find /etc/default /boot/grub/grub.cfg /boot/grub/grubenv -type f | sort | xargs sha256sum"
        ),
    }


@pytest.fixture(scope="module", name="before")
def state_before(host):
    """A database under systemd and a service that is pinned to a sibling; the state before all tests,
    and no test leaves another.
    """
    host.check_output(f"systemctl start {DATABASE}")
    host.check_output("systemd-run --unit=pinned taskset -c 5 sleep infinity")
    host.check_output(f"mkdir -p {HELD}")
    state = everything(host)
    assert (state["control"], state["online"]) == ("on", "0-7") and state["masks"]["pinned.service"] == ["5"]
    return state


@contextlib.contextmanager
def evaluation(host, run, arms):
    """An evaluation that stands still in each sample; gives its controller."""
    host.check_output(f"rm -f {HELD}/* && touch {HOLD}")
    controller = start(run, arms)
    try:
        yield controller
    finally:
        host.check_output(f"rm -f {HOLD}")
        controller.wait()


def go_on(host):
    host.check_output(f"rm -f {HELD}/*")


def stop_in(host, controller, run, arm):
    """Let the evaluation go on until all workers of an arm stand still; return their pids."""
    while True:
        wait_until(lambda: held(host) or controller.poll() is not None, log_of(run))
        assert controller.poll() is None, log_of(run).read_text(encoding="utf-8")
        if arm_on(host, run) == arm:
            wait_until(lambda: len(held(host)) == len(EXPECTED.get(arm, EXPECTED["as_found"])[1]), log_of(run))
            return held(host)
        go_on(host)


def see(host, arm, workers, before):
    """Read the guest while an arm is measured."""
    online, used = EXPECTED.get(arm, EXPECTED["as_found"])
    assert host.check_output(f"cat {CPUS}/online") == online
    masks = [
        cpus(host.check_output(f"sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/{pid}/status")) for pid in workers
    ]
    assert sorted(masks, key=sorted) == sorted(({cpu} for cpu in used), key=sorted)
    if arm in SHOWN:
        command, text = SHOWN[arm]
        assert host.check_output(command) == text
    database = set(threads(host, DATABASE).values())
    if arm == "isolated":
        assert host.check_output(f"cat {PARTITION}/cpuset.cpus.partition") == "isolated"
        assert host.check_output(f"cat {GROUPS}/cpuset.cpus.effective") == "0-3" and database == {"0-3"}
        assert {str(pid) for pid in workers} < set(host.check_output(f"cat {PARTITION}/cgroup.procs").split())
    elif arm.startswith("one_thread_per_core_unit_"):
        assert database == {"0,4"} and set(threads(host, "pinned.service").values()) == {"5"}
    else:
        assert database == set(before["masks"][DATABASE]) or arm in ("threads_per_core_2", "smt_off_on_cpus_4-7")


@pytest.mark.parametrize(("run", "arms"), [("smt", OF_SMT), ("unit", OF_A_UNIT), ("memory", OF_MEMORY)])
def test_each_arm_of_an_evaluation_is_seen_in_the_guest_and_nothing_is_left(host, before, run, arms):
    names = list(map(catalogue.name_of, arms))
    with evaluation(host, run, arms) as controller:
        for arm in order.of_block(names, 0):
            see(host, arm, stop_in(host, controller, run, arm), before)
            go_on(host)
    assert controller.returncode == 0, log_of(run).read_text(encoding="utf-8")
    measured = result(run)
    assert [arm["name"] for arm in measured["arms"]] == names and measured["arms_left_out"] == []
    assert measured["outcome"] == "completed" and measured["restored"]["ok"], measured["restored"]
    assert {sample["arm"] for sample in measured["samples"] if sample["ok"]} == set(names)
    assert everything(host) == before


@pytest.mark.parametrize("arm", [*OF_SMT, *OF_A_UNIT[1:], *OF_MEMORY[1:5], "thp_never"], ids=catalogue.name_of)
def test_a_plan_that_is_killed_in_an_arm_leaves_nothing(host, before, arm):
    """Kill -9 of the plan itself: its watchdog restores the guest from what was saved."""
    name = catalogue.name_of(arm)
    run = "killed-in-" + name.partition("@")[0]
    with evaluation(host, run, ["as_found", arm]) as controller:
        stop_in(host, controller, run, name)
        for pid in plans(host):
            host.run("kill -9 %s", pid)
        wait_until(lambda: everything(host) == before, log_of(run))
    assert controller.returncode != 0
    assert result(run)["outcome"] == "interrupted" and result(run)["restored"]["ok"], result(run)["restored"]


@pytest.mark.parametrize("arm", ["threads_per_core_2", "isolated", OF_A_UNIT[1], "hugepages_16"], ids=catalogue.name_of)
def test_a_controller_that_is_lost_in_an_arm_leaves_a_plan_that_ends_and_restores(host, before, arm):
    """Kill -9 of ansible-playbook and all its processes: the plan goes on without it,
    and the next evaluation fetches what it measured.
    """
    name = catalogue.name_of(arm)
    run = "lost-in-" + name.partition("@")[0]
    with evaluation(host, run, ["as_found", arm]) as controller:
        workers = stop_in(host, controller, run, name)
        lose(controller)
        assert plans(host) and held(host) == workers
        see(host, name, workers, before)
    wait_until(lambda: not plans(host), log_of(run))
    assert everything(host) == before
    following = start(run + "-next", ["as_found", arm])
    assert following.wait() == 0 and "fetched" in log_of(run + "-next").read_text(encoding="utf-8"), log_of(
        run + "-next"
    ).read_text(encoding="utf-8")
    for one in (run, run + "-next"):
        assert result(one)["outcome"] == "completed" and result(one)["restored"]["ok"], result(one)["restored"]
        assert {sample["arm"] for sample in result(one)["samples"] if sample["ok"]} == {"as_found", name}
    assert everything(host) == before


def test_somebody_who_changes_the_guest_in_the_middle_ends_the_evaluation(host, before):
    with evaluation(host, "disturbed", ["as_found", "threads_per_core_2"]) as controller:
        stop_in(host, controller, "disturbed", "threads_per_core_2")
        host.check_output(f"echo 1 > {CPUS}/cpu2/online")
    assert controller.returncode != 0
    assert (
        result("disturbed")["outcome"] == "failed" and "CPU 2 was offline, is online" in result("disturbed")["message"]
    )
    assert everything(host) == before


@pytest.mark.parametrize(
    ("arms", "minutes", "said"),
    [
        (
            [*OF_SMT, *OF_A_UNIT[1:]],
            20,
            {
                "SMT on": "all siblings are online",
                "2 threads per core": "CPUs 2-3,6-7 go offline through cpuN/online, and come back",
                "one thread per core for the workload": "the workers leave CPUs 1-3,5-7 to others",
                "isolated": "runs alone on CPUs 4-7, in a cpuset partition; everything else has CPUs 0-3 only",
                f"one thread per core for {DATABASE}": "has CPUs 0,4 only (AllowedCPUs), without CPUs 1-3,5-7",
                "SMT off on CPUs 4-7": "is pinned to 5 alone",
            },
        ),
        (
            OF_MEMORY,
            15,
            {
                "SMT on": "all siblings are online",
                "strict overcommit": f"to vm.overcommit_ratio {OVERCOMMIT_RATIO}, vm.overcommit_memory 2",
                "always overcommit": "vm.overcommit_memory 1",
                "panic when out of memory": "makes the host panic and reboot after 60 s",
                "16 huge pages": "vm.nr_hugepages is switched from 0 to 16",
                "transparent huge pages: always": "is always, as it is now",
                "transparent huge pages: madvise": "to madvise",
                "transparent huge pages: never": "to never",
            },
        ),
    ],
)
def test_check_mode_says_of_each_arm_what_it_would_do(host, before, arms, minutes, said):
    run = f"checked-{minutes}"
    controller = start(run, arms, "--check")
    code, seen = controller.wait(), " ".join(log_of(run).read_text(encoding="utf-8").split())
    assert code == 0, seen
    for title, sentence in said.items():
        found = re.search(rf"{re.escape(title)}, about {minutes} min in all: (.*?)(?=, about |$)", seen)
        assert found and sentence in found[1], (title, seen)
    assert everything(host) == before
