# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trial with hosts that end their part in ways of their own: the others go on, it is decided without them,
and its report names them.

What switches a host, and what it says at a check, are stand-ins; a rollback timer and a kernel are tested by the
scenarios on guests.
"""

from __future__ import annotations

import json
import textwrap

import prometheus_server
import pytest
import simulated_fleet
from simulated_trial import TrialFleet
from this_machine import line

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
    """Each has its own end, and the trial is decided without them; its report names them."""
    code, said, path = played
    assert code != 0 and (path / "trial.json").exists() and "Traceback" not in said, said
    found = {name: json.loads((path / "hosts" / f"{name}.ended.jsonl").read_text()) for name in OWN}
    reasons = {name: one["reason"] for name, one in found.items()}
    assert reasons[HONEST].startswith("each arm is decided: SMT off: "), said
    assert len(reasons[TALKATIVE]) == 2000 and reasons[TALKATIVE].startswith("CPUs 0,2,4,")
    assert reasons[LOST].startswith("its answer has 0 lines instead of 3") and found[LOST]["before"] is None
    assert "Is a directory" in reasons[FULL] and f"{FULL}.periods.jsonl" in reasons[FULL]
    assert {name: one["restored"] for name, one in found.items()} == dict.fromkeys(OWN, True)
    assert fleet.get("smt") == dict.fromkeys(OWN, True)
    for host, why in ((LOST, "its answer has 0 lines"), (FULL, "it left the trial"), (TALKATIVE, "left the trial")):
        assert f"{host}: {why}" in said
    results = json.loads((path / "results.json").read_text())
    assert results["comparisons"][0]["verdict"] == "loss" and results["comparisons"][0]["n"] < 12
    assert any(one.startswith(f"{FULL} counts for nothing: ") for one in results["others"]), results["others"]
    assert f"{LOST}: it was not switched: " in " ".join((path / "index.html").read_text().split())


def test_a_trial_whose_periods_count_each_others_samples_is_refused_before_any_switch(tmp_path):
    """The server does not know how its rule is made: the user says how far it looks back."""
    fleet = TrialFleet(tmp_path, {"web0": {}, "web1": {}})
    number = json.dumps({"status": "success", "data": {"resultType": "scalar", "result": [1e9, "5"]}})
    metric = {"name": "requests", "query": "vector(5)", "looks_back": "25s", "better": "higher", "primary": True}
    times = {"smt_trial_period": 30, "smt_trial_settle": 20, "smt_trial_check": 2, "smt_trial_periods": 6}
    with prometheus_server.serving(lambda handler: prometheus_server.send(handler, number)) as url:
        asked = {"smt_trial_run": "one", "smt_trial_metrics": [metric], "smt_trial_metrics_url": url, **times}
        code, said = fleet.play("smt_trial", **asked, smt_trial_after_switch=["true"])
    assert code != 0 and "smt_trial_settle is 20, and requests counts samples from up to 25 s before" in line(said)
    assert "Set smt_trial_settle to 25 or more" in line(said), said
    assert not (tmp_path / "smt_trial_results").exists() and fleet.changes() == {}
