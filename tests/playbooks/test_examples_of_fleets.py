# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What examples/eda and examples/runner do with Ansible: whom a limit chooses, and slices of an inventory."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import sysfs_tree
import yaml
from simulated_fleet import ROOT
from this_machine import LOCAL

EDA = ROOT / "examples" / "eda"
SLICES = ROOT / "examples" / "runner" / "slices.py"
HOSTS = ["h1", "h2", "h3"]
(RULES,) = yaml.safe_load((EDA / "rulebook.yml").read_text(encoding="utf-8"))
# Names that choose something else than one host of the inventory, or that Ansible or a template would make more of.
NO_NAMES = [
    *("all", "*", "h*", "h1,h2", "h1:h2", "~h.", "!h1", "h1:&all", "all[0]", "pair", "@limit", "{{ groups.all[0] }}"),
    *("nobody", "h1\n"),
]
# Of these some have the form of a name: who asks for them is known by the inventory alone.
NAMES_OF_FORM = {"all", "pair", "nobody"}


def test_the_condition_takes_names_alone():
    (rule,) = RULES["rules"]
    (pattern,) = re.findall(r'event\.labels\.host is match\("(.*?)"\)', rule["condition"])
    taken = {name for name in NO_NAMES if re.match(pattern, name) and not name.endswith("\n")}
    assert taken == NAMES_OF_FORM
    assert all(re.match(pattern, name) for name in ("h1", "web-01.example.com", "10.0.0.7", "db_2"))
    assert not any(re.match(pattern, name) for name in ("-h1", ".h1", "a b", "h1/..", "h1;id", "hé", "fe80::1"))
    assert rule["throttle"]["group_by_attributes"] == ["event.labels.host"]


@pytest.fixture(name="place")
def _place(tmp_path):
    """An inventory of three hosts that comply and one that has drifted."""
    machines = {"on": sysfs_tree.Machine(), "none": sysfs_tree.Machine(cores=4, threads=1)}
    trees = {name: sysfs_tree.write(tmp_path / name, sysfs_tree.files(one)) for name, one in machines.items()}
    hosts = {f"h{number}": {"smt_facts_sysroot": str(trees["on" if number == 3 else "none"])} for number in range(4)}
    # Ansible warns of the group's name, which is no host.
    inventory = {"all": {"hosts": hosts, "vars": {**LOCAL, "smt_policy": "disabled"}}}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({**inventory, "web-servers": {"hosts": {"h1": None}}}))
    return tmp_path


def sliced(place, *words):
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, str(SLICES), "--slices", "2", *words]
    how = {"cwd": place, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, check=False, **how)
    return done.returncode, done.stdout


def answers(place):
    """Host -> its slice and its status."""
    paths = sorted(place.glob("smt_slices/*/smt_compliance.json"))
    hosts = [(path.parent.name, one) for path in paths for one in json.loads(path.read_text())["hosts"]]
    return sorted((one["host"], number, one["status"]) for number, one in hosts)


@pytest.mark.night
def test_each_host_is_in_one_slice_and_the_call_that_merges_them_is_said(place):
    # A file of an earlier call with more slices, which the call that merges does not name.
    (place / "smt_slices" / "9").mkdir(parents=True)
    (place / "smt_slices" / "9" / "smt_compliance.json").write_text('{"hosts": []}')
    code, seen = sliced(place, "inventory.yml")
    statuses = ["compliant", "compliant", "compliant", "drifted"]
    assert code == 0, seen
    assert answers(place) == [(f"h{one}", str(one % 2 + 1), status) for one, status in enumerate(statuses)]
    assert "4 hosts in 2 slices" in seen and "2 hosts, exit code 2\n" in seen and "2 hosts, exit code 0\n" in seen
    wanted = json.loads(seen.splitlines()[-1].partition(" -e ")[2].strip("'"))
    slices = [str(place / "smt_slices" / number) for number in "12"]
    assert wanted == {"smt_compliance_source": "files", "smt_compliance_files": slices}
    # Nothing is left where each slice would replace what another wrote.
    assert not list(place.glob("smt_compliance.*"))


@pytest.mark.night
def test_a_slice_that_does_not_answer_is_said_and_no_answer_of_before_stands_for_it(place):
    for number in "12":
        (place / "smt_slices" / number).mkdir(parents=True)
        (place / "smt_slices" / number / "smt_compliance.json").write_text('{"hosts": []}')
    code, seen = sliced(place, "inventory.yml", "--", "-e", "@nowhere.yml")
    assert code == 1 and seen.count("it left no answer") == 2, seen
    assert not list(place.glob("smt_slices/*/smt_compliance.json"))
