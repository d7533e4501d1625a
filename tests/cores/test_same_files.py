# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each playbook, with the ansible-core that runs these tests and with that of `make setup`: both write the same files,
byte for byte but for times.

The Python of the tried environment runs pytest. The other one is found by PATH, which `make` sets.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import memory_tree
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats import registry
from simulated_fleet import Fleet
from this_machine import SHORT, this_machine

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
# Only compliance is checked, which reads the tree of files that it is given.
MEMORY = {"memory": {"smt_policy": "enabled", "smt_memory_overcommit": "strict", "smt_memory_on_oom": "kill"}}
HEALTH = (
    "- name: Look\n  ansible.builtin.fail:\n    msg: the service is down\n  when: inventory_hostname in (sick |"
    " default([]))\n"
)


def with_both(directory: pathlib.Path, work) -> dict[str, dict[str, str]]:
    """Do the same with both releases, side by side.

    `work` gets a directory and a Python, and returns what is compared beside the files, name -> text.

    Returns:
        The two trees, `usual` and `tried`: path, or name -> text without times.
    """
    places = {"usual": (directory / "usual", USUAL), "tried": (directory / "tried", sys.executable)}
    for place, _python in places.values():
        place.mkdir()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        calls = {name: pool.submit(work, place, python) for name, (place, python) in places.items()}
    return {
        name: {**written(places[name][0]), **{key: plain(text, places[name][0]) for key, text in call.result().items()}}
        for name, call in calls.items()
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
    """What became of each host.

    How many tasks were well is left out: before ansible-core 2.19 those that include others do not count.
    """
    return "\n".join(
        f"{host} {counts}"
        for host, counts in re.findall(r"^(\S+) +: ok=\d+ +(.*)$", seen[seen.rindex("PLAY RECAP") :], re.MULTILINE)
    )


def assert_same(trees: dict[str, dict[str, str]], *expected: str) -> None:
    usual, tried = trees["usual"], trees["tried"]
    assert sorted(tried) == sorted(usual) and set(expected) <= set(usual), (sorted(tried), sorted(usual))
    for name, text in usual.items():
        assert tried[name] == text, name


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
        saw[name] = (
            "exit code"
            f" {code}\n{shown(seen)}\n{recap(seen)}\n{json.dumps(fleet.changes())}\n{json.dumps(fleet.get('smt'))}"
        )
        for left in place.glob("smt_*"):
            left.rename(place / f"{name}-{left.name}")

    call("survey", "smt_survey")
    call("compliance", "smt_compliance", **common)
    call("check", "smt_enforce", "--check", **waves)
    call("sick", "smt_enforce", **waves, sick=["one_thread", "by_class"])
    call("enforced", "smt_enforce", **waves)
    call("after", "smt_compliance", **common)
    return saw


def with_a_memory_policy(place: pathlib.Path, python: str) -> dict[str, str]:
    """Compliance of a host with a memory policy."""
    fleet = Fleet(place, MEMORY, python)
    memory_tree.tree(place / "hosts/memory", overcommit_memory=0)
    code, seen = fleet.play("smt_compliance")
    return {"seen": f"exit code {code}\n{shown(seen)}\n{recap(seen)}"}


def test_survey_compliance_and_enforcement(tmp_path):
    trees = with_both(tmp_path, over_the_fleet)
    # That something was compared: drift that is shown, in check mode left alone, put right, and brought back where a
    # host was sick.
    usual = trees["usual"]
    assert "drifted" in usual["compliance"] and '"drifted": false' not in usual["check"], usual
    assert (
        '"drifted": false' in usual["sick"]
        and '"decided": false' in usual["sick"]
        and '"by_class": true' in usual["sick"]
    ), usual["sick"]
    assert '"by_class": false' in usual["enforced"] and '"compliant": true' in usual["enforced"], usual["enforced"]
    files = [f"{name}-smt_compliance.{kind}" for name in ("compliance", "after") for kind in ("html", "json", "prom")]
    assert_same(trees, "survey-smt_survey.html", *files)


def test_compliance_with_a_memory_policy(tmp_path):
    trees = with_both(tmp_path, with_a_memory_policy)
    assert "vm.overcommit_memory reads 0 instead of 2" in trees["usual"]["seen"]
    assert_same(trees, "smt_compliance.html", "smt_compliance.json", "smt_compliance.prom")


def ansible_playbook(place: pathlib.Path, python: str, playbook: str, *arguments: str, **variables) -> str:
    """Call a playbook on this machine. Returns what a person sees."""
    command = [
        str(pathlib.Path(python).with_name("ansible-playbook")),
        "-i",
        "inventory.yml",
        playbook,
        "-e",
        json.dumps(variables),
        *arguments,
    ]
    (place / "inventory.yml").write_text(
        json.dumps({"all": {"hosts": {"h1": {"ansible_connection": "local", "ansible_python_interpreter": python}}}})
    )
    done = subprocess.run(
        command,
        cwd=place,
        env=dict(os.environ, ANSIBLE_NOCOLOR="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def reported(place: pathlib.Path, python: str) -> dict[str, str]:
    """Reports of recorded samples: of two hosts, compared with an earlier run, with licences."""
    for run, factor in (("earlier", 1.0), ("later", 1.1)):
        evaluated(place / run)
        for host in ("h1", "h2"):
            document = result_maker.result(host=host, run=run, seed=len(host + run))
            for sample in document["samples"]:
                sample["metrics"]["throughput"]["value"] *= factor
            (place / run / f"{host}.json").write_text(json.dumps(document))
    tasks = [{"ansible.builtin.include_role": {"name": "threadwise.smt.smt_report"}}]
    (place / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    variables = {
        "smt_report_before": "earlier",
        "smt_report_licence_per": "core",
        "smt_report_licence_price": 100,
        "smt_report_margin": "0.02",
    }
    seen = ansible_playbook(place, python, "play.yml", smt_report_run_dir="later", **variables)
    return {"conclusions": "\n".join(re.findall(r"^(?:[eh]\d: |The report: ).*$", seen, re.MULTILINE))}


def test_a_report_of_recorded_samples(tmp_path):
    trees = with_both(tmp_path, reported)
    assert "h1: " in trees["usual"]["conclusions"] and "The report: PLACE" in trees["usual"]["conclusions"]
    assert_same(
        trees,
        *(
            f"later/{name}"
            for name in (
                "index.html",
                "compare.html",
                # But those for which an environment may lack a package.
                *(one.name for one in registry.formats() if not one.name.endswith(".parquet")),
            )
        ),
    )


def measured(place: pathlib.Path, python: str) -> dict[str, str]:
    """A short evaluation of this machine, after a call in check mode, which leaves nothing."""
    with this_machine():
        ansible_playbook(place, python, "threadwise.smt.smt_eval", "--check", smt_eval_run="one", **SHORT)
        assert [path.name for path in place.iterdir()] == ["inventory.yml"]
        ansible_playbook(place, python, "threadwise.smt.smt_eval", smt_eval_run="one", **SHORT)
    return {}


def form(value):
    """JSON data without its figures: what is in a list once only, however often it was measured."""
    if isinstance(value, dict):
        return {re.sub(r"\d+", "N", key): form(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(form(item), sort_keys=True) for item in value})
    return (
        re.sub(r"\d+(\.\d+)?", "N", value)
        if isinstance(value, str)
        else type(value).__name__ * (not isinstance(value, (int, float))) or "N"
    )


def test_an_evaluation_but_for_what_it_measures(tmp_path):
    trees = with_both(tmp_path, measured)
    assert sorted(trees["tried"]) == sorted(trees["usual"]) and "smt_eval_results/one/index.html" in trees["usual"]
    usual, tried = (json.loads(trees[name]["smt_eval_results/one/h1.json"]) for name in ("usual", "tried"))
    for document in (usual, tried):
        # How busy the machine was, and the Python of the environment.
        del document["events"], document["environment"]
    assert form(tried) == form(usual)
