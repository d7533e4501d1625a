# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations with arms that take a reboot, as the role does them: what is set, rebooted, measured and put back,
on a host whose kernel is made up.

The boot loader's configuration is a tree that the collection's own code reads and writes. A reboot takes the arguments
of its first entry and sets what the kernel would: the command line, the CPUs online, smt/control. What is measured is
made up too.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import uuid

import pytest
import yaml
from result_maker import compared
from simulated_fleet import ROOT, SHEBANG, Fleet

sys.path.insert(0, str(ROOT / "tests/unit/support"))
import boot_maker
from ansible_collections.threadwise.smt.plugins.module_utils._boot.visit import record
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from interruption import interrupt, lose

HEAD = 'import os\nfrom ansible.module_utils.basic import AnsibleModule\nROOT = os.environ["SMT_HOST"] + "/root"\n'
COLLECTION = "from ansible_collections.threadwise.smt.plugins.module_utils."
MODULES = {
    "smt_facts": (
        f"""{COLLECTION}_facts import facts
{COLLECTION}_host import files
module = AnsibleModule({{"sysroot": {{}}}}, supports_check_mode=True)
module.exit_json(changed=False, ansible_facts={{"smt": facts.gather(files.HostFs(ROOT))}})
"""
    ),
    "smt_boot_args": (
        f"""{COLLECTION}_boot import change
{COLLECTION}_host import files
names = ("smt", "maxcpus", "mitigations")
more = {{"affinity_conflicts_of": {{"type": "list"}}, "consumers": {{"type": "dict"}}, "force": {{"type": "bool"}}}}
module = AnsibleModule(dict(more, **{{name: {{}} for name in (*names, "affinity_conflicts")}}),
    supports_check_mode=True)
given = module.params
request = change.Request(given["smt"], given["maxcpus"], given["force"], module.check_mode, given["mitigations"])
try:
    result = change.run(files.HostFs(ROOT), request, "x86_64", "6.1.0-13-amd64")
except change.ERRORS as error:
    module.fail_json(msg=str(error))
result.pop("warnings")
module.exit_json(**result)
"""
    ),
    # As the module does, below a tree; its systemd says that the service runs, and nothing does.
    "smt_boot_visit": (
        f"""{COLLECTION}_boot import change
{COLLECTION}_boot.visit import change as visit, units
{COLLECTION}_host import files
names = ("owner", "smt", "maxcpus", "mitigations")
module = AnsibleModule(dict({{"state": {{"default": "begun"}}, "seconds": {{"type": "int"}}}},
    **{{name: {{}} for name in names}}), supports_check_mode=True)
given, fs = module.params, files.HostFs(ROOT)
units.processes.run = lambda argv, seconds=60: (0, "active", "")
real = change.run
change.run = lambda fs, request: real(fs, request, "x86_64", "6.1.0-13-amd64")
request = change.Request(given["smt"], given["maxcpus"], False, module.check_mode, given["mitigations"])
try:
    if given["state"] == "ended":
        ended = visit.end(fs, module.check_mode)
        module.exit_json(changed=ended.changed, arguments=[], reboot_required=ended.reboot_required)
    obstacle = visit.why_not(fs, given["owner"]) if module.check_mode else None
    if obstacle:
        module.fail_json(msg=obstacle)
    result = change.run(fs, request) if module.check_mode else visit.begin(fs, request, given["seconds"],
        given["owner"])
except (visit.VisitError, *change.ERRORS) as error:
    module.fail_json(msg=str(error))
module.exit_json(changed=True, arguments=result["arguments"], reboot_required=result["reboot_required"])
"""
    ),
    "simulated_reboot": (
        f"""import glob, uuid
{COLLECTION}_boot import entries
{COLLECTION}_host import files
module = AnsibleModule({{"reboot_timeout": {{}}, "msg": {{}}}}, supports_check_mode=True)
arguments = entries.read_grub_cfg(files.HostFs(ROOT), "boot/grub/grub.cfg")[0].arguments
with open(os.environ["SMT_HOST"] + "/log", "a") as stream:
    stream.write("boot %s\\n" % " ".join(one for one in arguments
        if one.split("=")[0] in ("nosmt", "maxcpus", "mitigations")))
if os.path.exists(os.environ["SMT_HOST"] + "/fails-with-" + arguments[2]):
    module.fail_json(msg="it does not come back")
def put(path, text):
    with open(ROOT + "/" + path, "w") as stream:
        stream.write(text + "\\n")
put("proc/cmdline", " ".join(arguments))
primaries = open(ROOT + "/primaries").read()
cpus = "sys/devices/system/cpu/"
off = "nosmt" in arguments or "nosmt=force" in arguments or "mitigations=auto,nosmt" in arguments
put(cpus + "online", primaries if off or "maxcpus=4" in arguments else "0-7")
put(cpus + "smt/control", "forceoff" if "nosmt=force" in arguments else "off" if off else "on")
put(cpus + "smt/active", "0" if off or "maxcpus=4" in arguments else "1")
put("../boot_id", str(uuid.uuid4()))
put(cpus + "vulnerabilities/mds", "Vulnerable; SMT vulnerable" if "mitigations=off" in arguments
    else "Mitigation: Clear CPU buffers; SMT vulnerable")
for note in glob.glob(ROOT + "/run/threadwise-smt/*"):
    os.remove(note)
module.exit_json(changed=True)
"""
    ),
}
# In the place of one evaluation by the action of smt_benchmark: a result of the arms that are asked for, with the facts
# of the tree. And what smt_boot_visit reboots with sets what a kernel would.
MEASURED = f"""
import sys, time
{COLLECTION}_facts import facts
{COLLECTION}_host import files
sys.path.insert(0, {str(ROOT / "tests/unit/support")!r})
import result_maker

def evaluate(self, task_vars):
    given, place = self._task.args, pathlib.Path(task_vars["smt_facts_sysroot"])
    described = {{"announcement": ["SMT off: CPUs 4-7 go offline."], "arms": [], "arms_left_out": [],
        "workloads": ["gzip"], "workloads_left_out": [],
                 "missing_packages": [], "obstacles": []}}
    if given.get("_step") == "describe":
        return dict(described, changed=False)
    if given["run"] == task_vars.get("waits_in"):
        (place / "waits").touch()
        time.sleep(600)
    seen = facts.gather(files.HostFs(str(place / "root")))
    one = result_maker.result(host=task_vars["inventory_hostname"], run=given["run"], blocks=3)
    arms = given["arms"]
    kept = [dict(sample, arm="smt_on" if len(arms) > 1 and sample["arm"] == "smt_on" else sample["arm"])
        for sample in one["samples"]]
    if len(arms) == 1:
        kept = [dict(sample, arm="as_found") for sample in kept
            if sample["arm"] == ("smt_on" if seen["active"] else "smt_off")]
        one["plan"]["placements"] = {{"as_found": one["plan"]["placements"]["smt_on" if seen["active"]
            else "smt_off"]}}
        one["arms"] = [result_maker.arm("as_found", "as found", True)]
    one.update(samples=kept, facts=seen)
    one["environment"]["cmdline"] = (place / "root/proc/cmdline").read_text().strip()
    path = pathlib.Path(given["dest"]) / given["run"] / (task_vars["inventory_hostname"] + ".json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(one))
    with open(place / "log", "a") as stream:
        stream.write("measured %s for %s s\\n" % (",".join(arms), given["budget"]))
    return dict(described, changed=False, error=None, outcome="completed", restored=None, path=str(path))

ActionModule._evaluate = evaluate
"""
REBOOT = """from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        return dict(self._execute_module("threadwise.smt.simulated_reboot", self._task.args, task_vars=task_vars))
"""
ARMS = ["smt_on", "maxcpus_4", "nosmt", "mitigations_auto_nosmt"]


class BootFleet(Fleet):
    """One host with a made-up kernel, grub and a boot loader's configuration.

    Args:
        directory: an empty one.
        numbering: split or adjacent.
        own: arguments of the host's own.
    """

    def __init__(self, directory: pathlib.Path, numbering: str = "split", own: str = "", **variables):
        super().__init__(directory, {"db1": variables})
        self.place = directory / "hosts/db1"
        self.tree = boot_maker.grub_tree(
            self.place / "root", f'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="{own}"\n'
        )
        boot_maker.running(self.tree, f"root=UUID=1 ro {own} quiet".replace("  ", " "), numbering=numbering)
        (self.tree / "run/systemd/system").mkdir(parents=True)
        boot_maker.write(self.tree, "primaries", "0-3" if numbering == "split" else "0,2,4,6")
        boot_maker.write(
            self.tree, "sys/devices/system/cpu/vulnerabilities/mds", "Mitigation: Clear CPU buffers; SMT vulnerable\n"
        )
        collection = directory / "collections/ansible_collections/threadwise/smt"
        for name, text in MODULES.items():
            (collection / "plugins/modules" / f"{name}.py").unlink(missing_ok=True)
            documented = (
                ""
                if name == "simulated_reboot"
                else (ROOT / f"plugins/modules/{name}.py").read_text().partition("from ansible.module_utils")[0]
            )
            # The controller reads what a module documents; it does not run it.
            program = (
                SHEBANG
                + documented.replace(SHEBANG, "")
                + 'if __name__ == "__main__":\n'
                + textwrap.indent(HEAD + text, "    ")
            )
            (collection / "plugins/modules" / f"{name}.py").write_text(program)
        for folder in ("plugins/action", "roles"):
            (collection / folder).unlink()
            shutil.copytree(ROOT / folder, collection / folder)
        (collection / "plugins/action/smt_benchmark.py").write_text(
            (ROOT / "plugins/action/smt_benchmark.py").read_text() + MEASURED
        )
        # The collection's own code, with a reboot that the tree knows.
        (collection / "plugins/plugin_utils").unlink()
        shutil.copytree(ROOT / "plugins/plugin_utils", collection / "plugins/plugin_utils")
        (collection / "plugins/action/simulated_reboot.py").write_text(REBOOT)
        visit = collection / "plugins/plugin_utils/_boots/visit.py"
        text = visit.read_text()
        for real, simulated in {
            "ansible.builtin.reboot": "threadwise.smt.simulated_reboot",
            "/proc/sys/kernel/random/boot_id": f"{self.place}/boot_id",
            "self._signal(record.UNDO_NOW)": f"self._signal('echo goes back by itself >>{self.place}/log')",
        }.items():
            assert real in text
            text = text.replace(real, simulated)
        visit.write_text(text)
        (self.place / "boot_id").write_text(f"{uuid.uuid4()}\n")
        reboot = collection / "roles/smt_boot/tasks/restart.yml"
        reboot.write_text(reboot.read_text().replace("ansible.builtin.reboot:", "threadwise.smt.simulated_reboot:"))
        self.before = boot_maker.snapshot(self.tree)

    def evaluate(
        self, *arguments: str, arms: list[str] | None = None, boots: int = 2, **variables
    ) -> tuple[int, str, list[str]]:
        """Evaluate. Returns (exit code, what a person sees, what was done on the host)."""
        with self.start_evaluation(*arguments, arms=arms, boots=boots, **variables) as process:
            seen = process.communicate()[0]
        return process.returncode, " ".join(seen.split()), self.changes().get("db1", [])

    def start_evaluation(
        self, *arguments: str, arms: list[str] | None = None, boots: int = 2, **variables
    ) -> subprocess.Popen:
        """Start an evaluation."""
        playbook = [
            {
                "hosts": "all",
                "gather_facts": False,
                "tasks": [{"name": "Evaluate", "ansible.builtin.import_role": {"name": "threadwise.smt.smt_eval"}}],
            }
        ]
        (self.directory / "evaluate.yml").write_text(yaml.safe_dump(playbook))
        known = {
            "smt_eval_run": "r",
            "smt_eval_arms": arms or ARMS,
            "smt_eval_boots": boots,
            "smt_boot_reboot_ok": True,
            "smt_eval_budget": 80,
        }
        return self.start("evaluate.yml", *arguments, **{**known, **variables})

    def result(self):
        """The data of the combined result."""
        return parts.plain(result_files.load(self.directory / "smt_eval_results/r/db1.json"))

    def assert_as_before(self):
        """The boot configuration has the bytes that it had, and the host runs as it did."""
        assert boot_maker.snapshot(self.tree) == self.before
        assert (self.tree / "sys/devices/system/cpu/online").read_text() == "0-7\n"
        assert not (self.tree / "var/lib/threadwise-smt/boot-mitigations.json").exists()
        assert not (self.tree / record.PROGRAM).exists()


def test_four_arms_over_two_rounds(tmp_path):
    fleet = BootFleet(tmp_path, own="mitigations=auto,no_user_kernel")
    code, seen, done = fleet.evaluate()
    assert code == 0, seen
    boots = [line.partition(" ")[2] for line in done if line.startswith("boot")]
    own = "mitigations=auto,no_user_kernel"
    booted = {
        "smt_on": own,
        "nosmt": f"nosmt {own}",
        "maxcpus_4": f"maxcpus=4 {own}",
        "mitigations_auto_nosmt": "mitigations=auto,nosmt mitigations=auto,nosmt,no_user_kernel",
    }
    result = fleet.result()
    order = [
        "smt_on",
        "maxcpus_4",
        "mitigations_auto_nosmt",
        "nosmt",
        "maxcpus_4",
        "nosmt",
        "smt_on",
        "mitigations_auto_nosmt",
    ]
    assert boots == [*(booted[name] for name in order), own]
    assert [line for line in done if line.startswith("measured")] == ["measured as_found for 10 s"] * 8
    assert result["outcome"] == "completed" and result["restored"]["ok"] and result["plan"]["booted"] == ARMS
    observed = {one["arm"]: one for one in result["observations"]}
    assert {name: booted[name] in " ".join(observed[name]["cmdline"].split()) for name in ARMS} == dict.fromkeys(
        ARMS, True
    )
    assert {name: observed[name]["smt"]["online"] for name in ARMS} == {
        "smt_on": "0-7",
        "maxcpus_4": "0-3",
        "nosmt": "0-3",
        "mitigations_auto_nosmt": "0-3",
    }
    found = {one["effect"]: (one["basis"], one["n"]) for one in compared(result) if one["kind"] == "arm"}
    assert found == dict.fromkeys(ARMS[1:], ("boots", 2))
    fleet.assert_as_before()


@pytest.mark.long
def test_a_number_that_would_not_leave_whole_cores_is_left_out_before_the_first_reboot(tmp_path):
    fleet = BootFleet(tmp_path, numbering="adjacent")
    code, seen, done = fleet.evaluate("--check")
    assert code == 0 and done == [], seen
    assert (
        "maxcpus=4 is left out: maxcpus=4 would not leave one thread of each core" in seen
        and "rebooted 6 times" in seen
        and "for 13 s" in seen
    )
    fleet.assert_as_before()
    code, seen, done = fleet.evaluate(boots=1)
    assert code == 0, seen
    (left_out,) = fleet.result()["arms_left_out"]
    assert left_out["name"] == "maxcpus_4" and "numbering of siblings is adjacent" in left_out["reason"]
    assert sum(line.startswith("boot") for line in done) == 4
    fleet.assert_as_before()


@pytest.mark.long
def test_run_time_arms_are_measured_within_the_boots_of_the_baseline(tmp_path):
    fleet = BootFleet(tmp_path)
    code, seen, _done = fleet.evaluate("--check", arms=["smt_on", "smt_off", "nosmt"])
    assert (
        code == 0
        and "Within each boot of SMT on it would be switched to SMT off" in seen
        and "SMT off: CPUs 4-7 go offline" in seen
    )
    code, seen, done = fleet.evaluate(arms=["smt_on", "smt_off", "nosmt"])
    assert code == 0, seen
    assert [line for line in done if line.startswith("measured")] == [
        "measured smt_on,smt_off for 20 s",
        "measured as_found for 20 s",
        "measured as_found for 20 s",
        "measured smt_on,smt_off for 20 s",
    ]
    found = {one["effect"]: (one["basis"], one["n"]) for one in compared(fleet.result()) if one["kind"] == "arm"}
    assert found == {"smt_off": ("blocks", 6), "nosmt": ("boots", 2)}
    fleet.assert_as_before()


def test_a_boot_that_fails_leaves_the_host_as_it_was(tmp_path):
    """It does not come back with mitigations=off; when it can be reached again it boots with its own arguments."""
    fleet = BootFleet(tmp_path)
    (fleet.place / "fails-with-mitigations=off").touch()
    code, seen, done = fleet.evaluate(arms=["smt_on", "mitigations_off"], boots=1, smt_eval_allow_mitigations_off=True)
    assert code != 0 and "it does not come back" in seen
    assert done == ["boot ", "measured as_found for 40 s", "boot mitigations=off"]
    fleet.assert_as_before()
    assert fleet.result()["outcome"] == "failed"


def test_after_ctrl_c_the_host_goes_back_by_itself_and_the_boots_before_are_kept(tmp_path):
    fleet = BootFleet(tmp_path, waits_in="r-boot-2")
    process = fleet.start_evaluation(arms=["smt_on", "nosmt"], boots=1)
    try:
        while not (fleet.place / "waits").exists():
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.2)
        interrupt(process, signal.SIGINT)
    finally:
        lose(process)
    assert fleet.changes()["db1"] == ["boot ", "measured as_found for 40 s", "boot nosmt", "goes back by itself"]
    assert fleet.result()["outcome"] == "interrupted" and len(fleet.result()["arms"]) == 2


def test_what_mitigations_off_leaves_open_is_kept_and_the_host_boots_without_it(tmp_path):
    # What the inventory asks the role smt_boot for is not asked for here.
    fleet = BootFleet(tmp_path, smt_boot_force=True)
    code, seen, done = fleet.evaluate(arms=["smt_on", "mitigations_off"], boots=1, smt_eval_allow_mitigations_off=True)
    assert code == 0, seen
    assert [line for line in done if line.startswith("boot")] == ["boot ", "boot mitigations=off", "boot "]
    result = fleet.result()
    observed = {one["arm"]: one["vulnerabilities"]["mds"]["status"] for one in result["observations"]}
    assert observed["mitigations_off"].startswith("Vulnerable") and observed["smt_on"].startswith("Mitigation")
    assert "every CPU vulnerability open" in result["arms"][1]["title"] and result["restored"]["ok"]
    fleet.assert_as_before()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"arms": ["smt_on", "mitigations_off"]}, "allow it with smt_eval_allow_mitigations_off=true"),
        ({"smt_boot_reboot_ok": False}, "rebooted 9 times to compare boots"),
        (
            {"arms": ["maxcpus_4", "nosmt"], "numbering": "adjacent"},
            "the baseline maxcpus=4 is not possible on this host",
        ),
        ({"arms": ["smt_on", "maxcpus_4"], "numbering": "adjacent"}, "no arm is left that takes a reboot"),
        ({"own": "nosmt"}, "does not boot with SMT on and without arguments for it"),
    ],
)
def test_what_is_refused_is_refused_before_the_first_reboot(tmp_path, variables, message):
    fleet = BootFleet(tmp_path, **{name: variables.pop(name) for name in ("numbering", "own") if name in variables})
    code, seen, done = fleet.evaluate(**variables)
    assert code != 0 and message in seen and done == [], seen
    assert boot_maker.snapshot(fleet.tree) == fleet.before
    assert json.dumps(seen).count("db1") and not (tmp_path / "smt_eval_results").exists()


ROLE = [{"hosts": "all", "gather_facts": False, "roles": ["threadwise.smt.smt_boot"]}]


@pytest.mark.parametrize(
    ("variables", "booted"),
    [
        ({"smt_boot_smt": "disabled"}, "nosmt"),
        ({"smt_boot_maxcpus": 4}, "maxcpus=4"),
        ({"smt_boot_mitigations": "off"}, "mitigations=off"),
        ({"smt_boot_smt": "disabled", "smt_boot_mitigations": "auto"}, "nosmt mitigations=auto"),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, dict) else None,
)
def test_the_role_sets_what_is_asked_for_and_enabled_takes_it_away(tmp_path, variables, booted):
    fleet = BootFleet(tmp_path)
    (tmp_path / "boot.yml").write_text(yaml.safe_dump(ROLE))
    code, seen = fleet.play("boot.yml", smt_boot_reboot_ok=True, **variables)
    assert code == 0, seen
    code, seen = fleet.play("boot.yml", smt_boot_reboot_ok=True, smt_boot_smt="enabled")
    assert code == 0 and fleet.changes()["db1"] == [f"boot {booted}", "boot "], seen
    fleet.assert_as_before()


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({}, "Nothing is set: set smt_boot_smt"),
        ({"smt_boot_smt": "disabled", "smt_boot_maxcpus": 4}, "smt_boot_smt and smt_boot_maxcpus are both set"),
    ],
    ids=["nothing", "both"],
)
def test_the_role_refuses_nothing_and_what_excludes_each_other(tmp_path, variables, sentence):
    fleet = BootFleet(tmp_path)
    (tmp_path / "boot.yml").write_text(yaml.safe_dump(ROLE))
    code, seen = fleet.play("boot.yml", **variables)
    assert code == 2 and sentence in seen, seen
    fleet.assert_as_before()
