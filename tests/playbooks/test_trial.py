# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trial with hosts that end their part in ways of their own: the others go on, it is decided without them,
and its report names them.

What switches a host, and what it says at a check, are stand-ins; a rollback timer and a kernel are tested by the
scenarios on guests.
"""

from __future__ import annotations

import json
import re
import textwrap

import pytest
import simulated_fleet

HONEST, TALKATIVE, LOST, FULL = "a-honest", "b-talkative", "c-lost", "d-full"
ALL, PRIMARIES = "0-3", "0-1"
# Two checks of a period come before the one that is answered in a way of the host's own.
LATER = 3

SHELL = (
    '#!/bin/sh\ncase "$2" in *system/cpu/online*) exec {python} -IS {place}/answer.py "$2" ;; *threadwise-smt-*) exit 3'
    ' ;; *) exec /bin/sh "$@" ;; esac\n'
)
# What a check prints: the online CPUs, whether the timer was running, and the rate, twice as much with SMT.
ANSWER = """\
import base64, json, os, sys
place = os.path.dirname(os.path.abspath(__file__))
path = place + "/host.json"
host = json.load(open(path))
if "--signal=USR1" in sys.argv[1]:
    host["smt"] = True
    json.dump(host, open(path, "w"))
    print("0-3")
    sys.exit()
checks = open(place + "/checks", "a+")
checks.write("x")
checks.flush()
checks.seek(0)
number = len(checks.read())
online = "0-3" if host["smt"] else "0-1"
{own}
rate = (100.0 if host["smt"] else 50.0) + number % 5
print(online, 0, base64.b64encode(str(rate).encode()).decode(), sep="\\n")
"""
OWN = {
    HONEST: "",
    # Each second one of 10,000.
    TALKATIVE: f'if number > {LATER}: online = ",".join(map(str, range(0, 10000, 2)))',
    LOST: "sys.exit(1)",
    # After its first period its file is none any more. Nobody writes to it just then: the controller waits for this.
    FULL: """
periods = "{periods}"
if os.path.isfile(periods) and os.path.getsize(periods):
    os.remove(periods)
    os.mkdir(periods)
""",
}
# What smt_state says after a switch.
AFTER = (
    'on = module.params["state"] == "enabled"\nafter = {"control": "on" if on else "off", "active": on, "online": "0-3"'
    ' if on else "0-1"}\n'
)


@pytest.fixture(name="fleet", scope="module")
def a_fleet(tmp_path_factory):
    directory = tmp_path_factory.mktemp("fleet")
    shells = {name: str(directory / "hosts" / name / "shell") for name in OWN}
    fleet = simulated_fleet.Fleet(
        directory, {name: {"ansible_shell_executable": shell} for name, shell in shells.items()}
    )
    for name, own in OWN.items():
        place = directory / "hosts" / name
        periods = directory / "smt_trial_results" / "october" / "hosts" / f"{name}.periods.jsonl"
        (place / "answer.py").write_text(ANSWER.format(own=own.replace("{periods}", str(periods))))
        (place / "shell").write_text(SHELL.format(python=fleet.python, place=place))
        (place / "shell").chmod(0o755)
    modules = directory / "collections/ansible_collections/threadwise/smt/plugins/modules"
    # A trial reads the facts of the host itself, which has no rollback of ours.
    facts = modules / "smt_facts.py"
    facts.write_text(
        facts.read_text().replace('pending_rollback.load(host_files.HostFs(module.params["sysroot"]))', "None")
    )
    module = modules / "smt_state.py"
    text = (
        module.read_text()
        .replace('"persist": {},', '"persist": {}, "rollback_after": {"type": "int"},')
        .replace("after=now", "after=after")
    )
    module.write_text(text.replace("    now = {", textwrap.indent(AFTER, "    ") + "    now = {"))
    return fleet


@pytest.fixture(name="played", scope="module")
def a_trial(fleet):
    """The exit code, what a person sees, and the directory of a trial in which one host's file cannot be extended after
    its first period.
    """
    path = fleet.directory / "smt_trial_results" / "october"
    with fleet.start(
        "smt_trial",
        "-f",
        "4",
        smt_trial_run="october",
        smt_trial_metrics=[{"name": "rate", "command": ["rate"], "unit": "1/s", "better": "higher", "primary": True}],
        smt_trial_period=10,
        smt_trial_settle=1,
        smt_trial_check=1,
        smt_trial_periods=24,
        smt_trial_most_switched="100%",
        smt_trial_after_switch=["true"],
        smt_trial_seed=1,
    ) as process:
        said = process.stdout.read()
    return process.returncode, " ".join(said.split()), path


def ends(path):
    return {name: json.loads((path / "hosts" / f"{name}.ended.jsonl").read_text()) for name in OWN}


@pytest.mark.night
def test_hosts_that_end_in_ways_of_their_own_stop_nobody(played, fleet):
    # One test: each worker would have a trial of its own for each of them.
    see_that_each_has_its_own_end(played, fleet)
    see_that_a_host_whose_part_failed_says_why(played)
    see_that_the_trial_is_decided_without_them_and_its_report_names_them(played)


def see_that_each_has_its_own_end(played, fleet):
    code, said, path = played
    assert (path / "trial.json").exists(), said
    found = ends(path)
    assert code != 0 and "Traceback" not in said, said
    assert found[HONEST]["reason"].startswith("each arm is decided: SMT off: "), said
    assert len(found[TALKATIVE]["reason"]) == 2000 and re.match(
        "CPUs 0,2,4,.* instead of|CPUs 0,2,4,6,", found[TALKATIVE]["reason"]
    )
    assert found[LOST]["reason"].startswith("its answer has 0 lines instead of 3") and found[LOST]["before"] is None
    assert "Is a directory" in found[FULL]["reason"] and f"{FULL}.periods.jsonl" in found[FULL]["reason"]
    assert {name: one["restored"] for name, one in found.items()} == dict.fromkeys(OWN, True)
    assert fleet.get("smt") == dict.fromkeys(OWN, True)


def see_that_a_host_whose_part_failed_says_why(played):
    _code, said, _path = played
    assert f"{LOST}: its answer has 0 lines instead of 3" in said
    assert f"{FULL}: it left the trial, and is in its own state: " in said and "Is a directory" in said
    assert f"{TALKATIVE}: left the trial, and is in its own state: CPUs 0,2,4," in said


def see_that_the_trial_is_decided_without_them_and_its_report_names_them(played):
    _code, said, path = played
    results = json.loads((path / "results.json").read_text())
    assert results["answer"][0].startswith("With SMT off instead of SMT on, rate changes by "), results["answer"]
    assert any(
        one.startswith(f"{FULL} counts for nothing: hosts/{FULL}.periods.jsonl: cannot be read: ")
        for one in results["others"]
    ), results["others"]
    page = (path / "index.html").read_text()
    assert f"{LOST}: it was not switched: its answer has 0 lines" in " ".join(page.split())
    assert results["comparisons"][0]["verdict"] == "loss" and results["comparisons"][0]["n"] < 12
    assert "The report: " in said
