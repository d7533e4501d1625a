# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An evaluation by boots that does not go as planned: what was measured is kept, and the host goes back.

smt_eval_boots and others do it on guests.
"""

import json

import pytest
import result_maker
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import record
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import evaluation
from rebooted_host import RebootedHost

FACTS = result_maker.result(blocks=1)["facts"]
DESCRIBED = {"workloads": ["gzip"], "workloads_left_out": [], "obstacles": [], "arms_left_out": [], "announcement": []}


class Evaluated:
    """An evaluation by boots of a host in smt_on and nosmt, once each.

    `happens`: number of a boot -> an error that is raised while it is measured, or the failure of its task.
    """

    def __init__(self, tmp_path, monkeypatch, **asked):
        self.host, self.happens, self.measured, self.said = RebootedHost(monkeypatch), {}, [], []
        self.host.facts = FACTS
        monkeypatch.setattr(evaluation.display, "display", self.said.append)
        self.directory = tmp_path / "runs" / "r"
        given = {"host": "db1", "run": "r", "arms": ["smt_on", "nosmt"], "boots": 1, "budget": 80, "reboot_ok": True}
        more = {"reboot_timeout": 600, "allow_mitigations_off": False, "siblings": "kernel", "sample_seconds": "auto"}
        self.asked = evaluation.Asked(**given, **more, directory=self.directory, check_mode=False, **asked)

    def evaluate(self, **options):
        if options.get("_step") == "describe":
            return dict(DESCRIBED)
        number = len(self.measured) + 1
        self.measured.append(options)
        if isinstance(self.happens.get(number), BaseException):
            raise self.happens[number]
        one = result_maker.result(host="db1", run=options["run"], blocks=3)
        one.update(samples=[{**sample, "arm": "as_found"} for sample in one["samples"] if sample["arm"] == "smt_on"])
        one.update(arms=[result_maker.arm("as_found", "as found", True)], facts=FACTS)
        one["plan"]["placements"] = {"as_found": one["plan"]["placements"]["smt_on"]}
        result_files.save(self.directory / "boots" / options["run"], one)
        return self.happens.get(number, {"failed": False})

    def run(self):
        calls = time_limits.Calls(self.host, {"inventory_hostname": "db1"})
        return evaluation.EvaluationByBoots(self.asked, calls, self.host.visit(), self.evaluate).run()

    def saved(self):
        path = self.directory / "db1.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture(name="evaluated")
def an_evaluation(tmp_path, monkeypatch):
    return Evaluated(tmp_path, monkeypatch)


def test_each_boot_is_measured_alike_and_the_host_has_the_time_of_a_reboot(evaluated):
    result = evaluated.run()
    assert result["outcome"] == "completed" and not result["failed"] and result["restored"]["ok"]
    assert [arm["name"] for arm in result["arms"]] == ["smt_on", "nosmt"]
    assert evaluated.host.given == {"smt": "disabled", "owner": "the evaluation r", "seconds": 1200}
    options = {"arms": ["as_found"], "budget": 40, "goal": "precision", "sample_seconds": 0.5, "probe": "never"}
    dest = str(evaluated.directory / "boots")
    assert evaluated.measured == [{**options, "run": f"r-boot-{number}", "dest": dest} for number in (1, 2)]
    said = ("boot 1 of 2, smt_on", "boot 2 of 2, nosmt", "back to its own boot arguments")
    assert evaluated.said == [f"db1: {one}." for one in said]


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (HostFailedError({"msg": "its plan has not ended"}), "its plan has not ended"),
        ({"failed": True, "msg": "it was ended"}, "it was ended"),
        (AnsibleConnectionFailure("no route"), "no route"),
    ],
)
def test_a_boot_that_cannot_be_measured_ends_it_and_the_host_is_put_back(evaluated, happens, why):
    evaluated.happens = {2: happens}
    result = evaluated.run()
    assert result["failed"] and result["msg"] == f"boot 2 of 2, nosmt: {why}" and result["restored"]["ok"]
    # A measurement that ended early is kept, too.
    saved = evaluated.saved()
    boots = {sample["boot"] for sample in saved["samples"]}
    assert saved["outcome"] == "failed" and boots == ({1, 2} if isinstance(happens, dict) else {1})
    assert evaluated.host.log[-4:] == ["ended", "reboot", "cleaned", "ended"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
def test_an_interrupted_controller_has_the_host_go_back_by_itself_and_keeps_the_boots_before(evaluated, error):
    evaluated.happens = {2: error}
    with pytest.raises(type(error)):
        evaluated.run()
    # It waits for the end of what is measured; nothing else is asked of it.
    assert evaluated.host.log[-4:] == ["begun", "reboot", "cleaned", record.UNDO_NOW]
    assert {sample["boot"] for sample in evaluated.saved()["samples"]} == {1}


def test_without_any_measurement_there_is_no_file(evaluated):
    evaluated.host.fails = {"reboot": "not permitted"}
    result = evaluated.run()
    assert result["failed"] and result["path"] is None and evaluated.saved() is None
    assert result["msg"] == "boot 1 of 2, smt_on: it was not rebooted: not permitted"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"siblings": "measured"}, "db1 was not rebooted: .*smt_eval_siblings is not kernel"),
        ({"reboot_ok": False}, "db1 was not rebooted: .*would be rebooted 3 times"),
        ({"boots": 1001}, "db1 was not rebooted: .*from 1 to 1000"),
        ({}, "None of the workloads can be measured here; gzip is not installed"),
    ],
)
def test_what_is_refused_asks_nothing_of_the_host(evaluated, monkeypatch, changed, why):
    if not changed:
        monkeypatch.setitem(DESCRIBED, "workloads", [])
        monkeypatch.setitem(DESCRIBED, "workloads_left_out", [{"name": "gzip", "reason": "gzip is not installed"}])
    evaluated.asked = evaluation.dataclasses.replace(evaluated.asked, **changed)
    with pytest.raises(HostFailedError, match=why):
        evaluated.run()
    assert evaluated.host.log == []
