# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measured siblings in use, in a guest whose hypervisor shows four cores where 0,1 and 2,3 share one: what is offlined,
where workers run, and what is left.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest

GUEST = "smt-probe-misled"
testinfra_hosts = ["ansible://" + GUEST]
EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
ONLINE = "/sys/devices/system/cpu/online"


def smt_state(host, check=False, **options):
    """The module's result, also of one that failed."""
    try:
        return host.ansible("threadwise.smt.smt_state", json.dumps(options), check=check)
    except host.ansible.AnsibleException as error:
        return error.result


@pytest.mark.parametrize("siblings", ["measured", [[0, 1], [2, 3]]], ids=["measured", "declared"])
def test_disabled_leaves_one_thread_of_each_core(host, siblings):
    refused = smt_state(host, state="disabled", siblings="kernel")
    assert not refused["changed"], "by the kernel's siblings there is nothing to take offline"
    assert smt_state(host, check=True, state="disabled", siblings=siblings)["after"]["online"] == "0,2"
    assert host.check_output("cat %s", ONLINE) == "0-3"
    assert smt_state(host, state="disabled", siblings=siblings)["changed"]
    assert host.check_output("cat %s", ONLINE) == "0,2"
    assert not smt_state(host, state="disabled", siblings=siblings)["changed"]
    assert smt_state(host, state="restored")["changed"]
    assert host.check_output("cat %s", ONLINE) == "0-3"
    assert not host.file("/var/lib/threadwise-smt/smt-snapshot.json").exists


@pytest.fixture(scope="module")
def evaluated():
    """The result of an evaluation that follows the siblings measured before, and what the playbook said."""
    variables = {
        "smt_eval_run": "siblings",
        "smt_eval_dest": str(EPHEMERAL / "results"),
        "smt_eval_budget": 90,
        "smt_eval_workloads": ["gzip"],
        "smt_eval_placements": ["single", "siblings", "cores", "all_threads"],
        "smt_eval_siblings": "measured",
        "smt_eval_probe": "never",
    }
    inventory = ["--inventory", str(EPHEMERAL / "inventory"), "--limit", GUEST]
    ended = subprocess.run(
        ["ansible-playbook", *inventory, "threadwise.smt.smt_eval", "--extra-vars", json.dumps(variables)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=EPHEMERAL,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads((EPHEMERAL / "results" / "siblings" / f"{GUEST}.json").read_text(encoding="utf-8")), ended.stdout


def test_an_evaluation_follows_them(host, evaluated):
    result, said = evaluated
    assert "Siblings as measured, not as the kernel shows them: CPUs 0-1, 2-3 share a core." in said
    assert (result["facts"]["source"], result["facts"]["sibling_groups"]) == ("measured", ["0-1", "2-3"])
    placed = {
        arm: {name: one["workers"] for name, one in by_name.items()}
        for arm, by_name in result["plan"]["placements"].items()
    }
    assert placed["smt_on"]["siblings"] == ["0", "1"] and placed["smt_on"]["cores"] == ["0", "2"]
    assert placed["smt_off"]["all_threads"] == ["0", "2"]
    assert result["restored"]["ok"] and host.check_output("cat %s", ONLINE) == "0-3"


def test_what_shares_a_core_is_seen_to_share_it(evaluated):
    """The CPUs of a core run on one CPU of this machine: two workers do half as much each there as on two cores."""
    result, _said = evaluated
    values = {name: [] for name in ("siblings", "cores")}
    for sample in result["samples"]:
        if sample["ok"] and sample["arm"] == "smt_on" and sample["placement"] in values:
            values[sample["placement"]] += [one["value"] for one in sample["metrics"].values()][:1]
    mean = {name: sum(found) / len(found) for name, found in values.items()}
    assert mean["siblings"] < 0.75 * mean["cores"], values
