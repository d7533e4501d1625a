# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks of a policy, with the ansible-core that runs these tests and with that of `make setup`."""

import concurrent.futures
import json
import pathlib
import re
import shutil
import sys

import result_maker
from simulated_fleet import Fleet

USUAL = shutil.which("python")
# Times of the writing, of the terminal, and in metrics.
TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?( UTC|Z)?|(?<=(?:checked|_status)_timestamp_seconds\{)(.*?\} )\d+"
)
# What the simulation consists of, the links to the collection among it.
SCAFFOLDING = {"collections", "loaded", "inventory.yml", "python", "log", "asked", "health.yml"}
KINDS = {name: f"x86_64-1s2c4t-split-{number:08x}" for number, name in enumerate(("decided", "other", "undecided"), 1)}
# Known beforehand: what ssh says of a host that it does not reach comes from Ansible, in other words from release to
# release.
GONE = {"ansible_connection": "ssh", "ansible_ssh_executable": "no-such-ssh"}
FLEET = {
    "drifted": {"smt_policy": "disabled", "smt_policy_group": "db"},
    "compliant": {"smt_policy": "enabled", "smt_policy_group": ""},
    "misspelt": {"smt_policy": "disabledd"},
    "decided": {"smt_policy": "auto", "simulated_class": KINDS["decided"]},
    "undecided": {"smt_policy": "auto", "simulated_class": KINDS["undecided"]},
    "without": {},
    "gone": {"smt_policy": "enabled", **GONE},
    "yaml_no": {"smt_policy": False, "smt_policy_scope": "runtime"},
    "one_thread": {"smt_policy": {"threads_per_core": 1}, "smt_policy_group": "db"},
    "by_class": {"simulated_class": KINDS["other"], "smt_policy_classes": {KINDS["other"]: "disabled"}},
}
HEALTH = """
- ansible.builtin.fail: {msg: the service is down}
  when: inventory_hostname in (sick | default([]))
"""


def with_both(directory: pathlib.Path, work) -> dict[str, dict[str, str]]:
    """Do the same with both releases, side by side."""
    places = {"usual": (directory / "usual", USUAL), "tried": (directory / "tried", sys.executable)}
    for place, _python in places.values():
        place.mkdir()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        calls = {name: pool.submit(work, place, python) for name, (place, python) in places.items()}
    saw = {name: call.result() for name, call in calls.items()}
    return {
        name: {**written(place), **{key: plain(text, place) for key, text in saw[name].items()}}
        for name, (place, _python) in places.items()
    }


def written(place: pathlib.Path) -> dict[str, str]:
    """Return path -> contents of what playbooks left below a directory."""
    found = {}
    for path in sorted(place.rglob("*")):
        inside = path.relative_to(place)
        if path.is_file() and not SCAFFOLDING & set(inside.parts):
            found[str(inside)] = plain(path.read_bytes().decode("utf-8", errors="surrogateescape"), place)
    return found


def plain(text: str, place: pathlib.Path) -> str:
    """Return a text without times and without the name of the directory."""
    return TIMES.sub(r"\4TIME", text.replace(str(place), "PLACE"))


def shown(seen: str) -> str:
    """What our actions show on a terminal: waves and tables of hosts."""
    tables = re.findall(r"^host +.*?\n\n.*?$", seen, re.MULTILINE | re.DOTALL)
    return "\n".join([*re.findall(r"^wave \d+: .*$", seen, re.MULTILINE), *tables])


def recap(seen: str) -> str:
    """What became of each host."""
    found = re.findall(r"^(\S+) +: ok=\d+ +(.*)$", seen[seen.rindex("PLAY RECAP") :], re.MULTILINE)
    return "\n".join(f"{host} {counts}" for host, counts in found)


def evaluated(directory: pathlib.Path) -> None:
    """Write the result of a host for which SMT off is better by far."""
    document = result_maker.result(host="e1", run="r1", noise=0.0005, shape=(1, 2, 2))
    document["facts"].update(hardware_class=KINDS["decided"], numbering="split")
    for sample in document["samples"]:
        sample["metrics"]["throughput"]["value"] *= 4.0 if sample["arm"] == "smt_off" else 1.0
    directory.mkdir(parents=True)
    (directory / "e1.json").write_text(json.dumps(document))


def over_the_fleet(place: pathlib.Path, python: str) -> dict[str, str]:
    """Survey, compliance, enforcement in check mode, with a host that is sick, and to its end."""
    fleet = Fleet(place, FLEET, python)
    evaluated(place / "results/r1")
    (place / "health.yml").write_text(HEALTH)
    common = {"smt_policy_results": "results"}
    waves = {**common, "smt_enforce_waves": [1, "50%"], "smt_enforce_health_check": "health.yml"}
    saw = {}

    def call(name, playbook, *arguments, **variables):
        code, seen = fleet.play(playbook, *arguments, **variables)
        state = f"{json.dumps(fleet.changes())}\n{json.dumps(fleet.get('smt'))}"
        saw[name] = f"exit code {code}\n{shown(seen)}\n{recap(seen)}\n{state}"
        for left in place.glob("smt_*"):
            left.rename(place / f"{name}-{left.name}")

    call("survey", "smt_survey")
    call("compliance", "smt_compliance", **common)
    call("check", "smt_enforce", "--check", **waves)
    call("sick", "smt_enforce", **waves, sick=["one_thread", "by_class"])
    call("enforced", "smt_enforce", **waves)
    call("after", "smt_compliance", **common)
    return saw


def test_survey_compliance_and_enforcement(tmp_path):
    trees = with_both(tmp_path, over_the_fleet)
    usual, tried = trees["usual"], trees["tried"]
    # That something was compared: drift that is shown, in check mode left alone, put right, and brought back where a
    # host was sick.
    assert "drifted" in usual["compliance"] and '"drifted": false' not in usual["check"], usual
    assert '"drifted": false' in usual["sick"] and '"by_class": true' in usual["sick"], usual["sick"]
    assert '"by_class": false' in usual["enforced"] and '"decided": false' in usual["enforced"], usual["enforced"]
    files = {f"{name}-smt_compliance.{kind}" for name in ("compliance", "after") for kind in ("html", "json", "prom")}
    assert sorted(tried) == sorted(usual) and {"survey-smt_survey.html", *files} <= set(usual)
    for name, text in usual.items():
        assert tried[name] == text, name
