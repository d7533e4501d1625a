# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""arm64, whose kernel has no smt/control: a machine without SMT,
and one with siblings that only CPU by CPU can be switched.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest
from guest import SAVED, cores_of, firsts, online, smt_state

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
PLAIN = dict(os.environ, ANSIBLE_FORCE_COLOR="false")


@pytest.fixture(name="cores")
def cores_of_the_shape(host):
    return cores_of(host)


def play(playbook, **variables):
    command = [
        "ansible-playbook",
        "-i",
        str(EPHEMERAL / "inventory"),
        f"threadwise.smt.{playbook}",
        "-e",
        json.dumps(variables),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=PLAIN, cwd=EPHEMERAL
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    return done.stdout


def test_siblings_are_switched_one_by_one_and_come_back(host, cores):
    if len(cores[0]) == 1:
        done = smt_state(host, state="disabled")
        assert done["changed"] is False, done
        return
    done = smt_state(host, state="disabled")
    assert done["changed"] is True, done
    assert online(host) == firsts(cores, 1)
    assert smt_state(host, state="disabled")["changed"] is False
    assert smt_state(host, state="restored")["not_restored"] == []
    assert online(host) == firsts(cores, 99) and not host.file(SAVED).exists


@pytest.fixture(name="survey", scope="module")
def a_survey():
    return play("smt_survey")


@pytest.fixture(name="evaluated", scope="module")
def an_evaluation():
    options = {
        "smt_eval_workloads": ["gzip"],
        "smt_eval_budget": 90,
        "smt_eval_dest": str(EPHEMERAL / "results"),
        "smt_eval_run": "arm64",
        # Arm's study has a Neoverse N2 with this one; an emulated processor has none.
        "smt_eval_nominal_ghz": "2.749",
    }
    return play("smt_eval", **options), {
        name: json.loads((EPHEMERAL / f"results/arm64/{name}.json").read_text())
        for name in ("smt-arm64", "smt-arm64-siblings")
    }


def test_the_survey_tells_the_two_apart(survey):
    # The first line of each host is that of the table.
    rows = {line.split()[0]: line for line in reversed(survey.splitlines()) if line.startswith("smt-arm64")}
    assert "no SMT" in rows["smt-arm64"] and "no SMT" not in rows["smt-arm64-siblings"]


def test_that_there_is_no_smt_is_a_finding(evaluated):
    said, results = evaluated
    assert (
        "smt-arm64: Nothing will be switched: this host has no SMT to switch (smt/control reads notimplemented)."
        in said
    )
    assert {sample["arm"] for sample in results["smt-arm64"]["samples"]} == {"as_found"}
    assert results["smt-arm64"]["samples"], "what the cores do is measured all the same"


def test_work_per_core_and_per_ghz_is_known_of_both(evaluated):
    machines = {
        one["host"]: one["capacities"]
        for one in json.loads((EPHEMERAL / "results/arm64/results.json").read_text())["hosts"]
    }
    (alone,) = machines["smt-arm64"]
    assert (alone["arm"], alone["cores"], alone["cpus"]) == ("as_found", 4, 4)
    on = next(one for one in machines["smt-arm64-siblings"] if one["arm"] == "smt_on")
    assert (on["cores"], on["cpus"]) == (2, 4)
    for one in (alone, on):
        assert one["per_core"] == pytest.approx(one["rate"] / one["cores"]) and one["per_ghz"] == pytest.approx(
            one["rate"] / 2.749
        )
    page = (EPHEMERAL / "results/arm64/machines.html").read_text()
    assert "per nominal GHz" in page and "Arm Cortex-A72" in page


def test_siblings_without_a_control_are_evaluated_on_and_off(evaluated):
    results = evaluated[1]["smt-arm64-siblings"]
    assert {sample["arm"] for sample in results["samples"]} == {"smt_on", "smt_off"}
    assert results["restored"]["ok"] is True
