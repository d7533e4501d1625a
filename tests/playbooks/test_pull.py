# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the timer of smt_pull runs, run: a host keeps its policy from a repository."""

import itertools
import json
import re
import shutil

import jsonschema_rs
import pytest
import yaml
from pulled_host import PLAYBOOK, PulledHost, git, of_role
from simulated_fleet import ROOT
from this_machine import LOCAL, call

COMPLIANCE = jsonschema_rs.Draft202012Validator(
    json.loads((ROOT / "docs/compliance.schema.json").read_text(encoding="utf-8"))
)


@pytest.fixture(name="host")
def _host(tmp_path):
    return PulledHost(tmp_path)


@pytest.mark.night
def test_a_host_keeps_its_policy_also_when_the_repository_is_gone(host):
    first = git(host.repository, "rev-parse", "HEAD")
    code, seen = host.pull()
    assert code == 0 and host.get("smt") == {"h1": False}, seen
    known = host.metrics()
    assert known["compliant"] == known["pull_success"] == 1 and known["pull_commit_info_enforced"] == first
    # What the timer leaves for programs has the published schema of compliance.
    left = json.loads((host.place / "smt_compliance.json").read_text())
    COMPLIANCE.validate(left)
    assert [(one["host"], one["status"]) for one in left["hosts"]] == [("h1", "compliant")]
    host.set("h1", smt=True)
    shutil.rmtree(host.repository)
    code, seen = host.pull()
    assert code == 0 and host.get("smt") == {"h1": False}, seen
    assert "git fetch failed: fatal:" in seen and f"The policy of commit {first[:12]} is enforced" in seen
    later, last = host.metrics(), "pull_last_success_timestamp_seconds"
    assert (later["pull_success"], later["compliant"], later[last]) == (0, 1, known[last])
    assert later["checked_timestamp_seconds"] >= known["checked_timestamp_seconds"]


NOT_APPLIED = "or its playbook local.yml does not apply the role smt_policy to it"
TASK = "- hosts: all\n  gather_facts: false\n  tasks:\n    - "


POLICY = "smt_policy: disabled"


def with_task(task):
    """The playbook with a play of one task before its own."""
    return PLAYBOOK.replace("---\n", f"---\n{TASK}{task}\n", 1)


# What is wrong with a commit -> what its files become, of the good inventory, and a part of what is said of it.
BROKEN = {
    "inventory: no YAML": ({"inventory.yml": "all: [hosts\n"}, "gave h1 no verdict"),
    "inventory: another host": ({"inventory.yml": ("h1:", "h2:")}, "h1"),
    "inventory: variables in a vault": ({"group_vars/all.yml": "$ANSIBLE_VAULT;1.1;AES256\n6161\n"}, "h1"),
    "policy: of no known kind": ({"inventory.yml": (POLICY, "smt_policy: dissabled")}, "by it: bad_policy"),
    "policy: of a variable that is not set": ({"inventory.yml": (POLICY, "smt_policy: '{{ nowhere }}'")}, "nowhere"),
    "playbook: no YAML": ({"local.yml": "- hosts: [all\n"}, "gave h1 no verdict"),
    "playbook: an unknown group": ({"local.yml": PLAYBOOK.replace("hosts: all", "hosts: nobody")}, NOT_APPLIED),
    "playbook: no policy": ({"local.yml": TASK + "meta: noop\n"}, NOT_APPLIED),
    "requirements: a role": ({"local.yml": PLAYBOOK.replace("  tasks:", "  roles: [of_x]\n  tasks:")}, "of_x"),
    "requirements: a collection": ({"local.yml": with_task("nobody.nothing.module: {}")}, "nobody.nothing"),
}


@pytest.mark.night
def test_a_commit_that_cannot_be_used_leaves_the_policy_of_the_one_before_in_force(host):
    good = (host.repository / "inventory.yml").read_text()
    kept = git(host.repository, "rev-parse", "HEAD")
    code, seen = host.pull()
    assert code == 0, seen
    success = host.metrics()["pull_last_success_timestamp_seconds"]
    for name, (files, why) in BROKEN.items():
        broken = host.commit({file: good.replace(*of) if isinstance(of, tuple) else of for file, of in files.items()})
        host.set("h1", smt=True)
        code, seen = host.pull()
        assert (code, host.get("smt")) == (0, {"h1": False}), f"{name}: {seen}"
        (said,) = (one for one in seen.splitlines() if one.startswith("threadwise-smt-pull: "))
        assert f"Commit {broken[:12]} is refused: " in said and why in said, f"{name}: {seen}"
        assert f"The policy of commit {kept[:12]} is enforced" in said, name
        known = host.metrics()
        assert (known["compliant"], known["status"], known["pull_success"]) == (1, "compliant", 0), name
        assert (known["pull_commit_info_enforced"], known["pull_commit_info_refused"]) == (kept, broken), name
        assert known["pull_last_success_timestamp_seconds"] == success <= known["pull_run_timestamp_seconds"], name
        commits = {path.name for path in (host.place / "pulled/commits").iterdir()}
        assert host.record["kept"] == kept and commits <= {kept, broken}, name
        git(host.repository, "reset", "-q", "--hard", kept)
        git(host.repository, "clean", "-qfdx")
    mended = host.commit({"local.yml": PLAYBOOK + "# mended\n"})
    code, seen = host.pull()
    known = host.metrics()
    assert (code, known["pull_success"], known["pull_commit_info_enforced"]) == (0, 1, mended), seen
    assert "pull_commit_info_refused" not in known, seen


REFUSED = {
    "smt_pull_url": "http://git.example.com/f.git|git://git.example.com/f|http::https://git.example.com/x|/srv/f\n|/srv/%n",
    "smt_pull_playbook": "--version|x.yml\nExecStart=/bin/id",
    "smt_pull_metrics": "/a$b.prom|/etc/cron.d/smt",
    "smt_pull_on_calendar": "daily\n|daily\nOnBootSec=1",
}
# Nothing of these may be shown.
HIDDEN = """
https://me:hidden@git.example.com/fleet.git HTTPS://hidden@git.example.com/fleet.git
ssh://me:hidden@git.example.com/fleet.git https://git.example.com/fleet.git?private_token=hidden
https://git.example.com/fleet.git#hidden"""
TAKEN = """
https://git.example.com/fleet.git ssh://git@git.example.com:2222/fleet.git git@git.example.com:fleet.git
file:///srv/fleet /srv/fleet"""


def test_what_means_something_in_a_unit_or_is_not_protected_is_refused(tmp_path):
    """A host each, in one play of the role's checks of its variables, which are all that comes before it writes."""
    tasks = of_role("tasks")
    ours = ("ansible.builtin.assert", "threadwise.smt.smt_user_values")
    checks = list(itertools.takewhile(lambda task: any(one in task for one in ours), tasks))
    later = [task["name"] for task in tasks[len(checks) :] if "ansible.builtin.assert" in task]
    assert later == ["Refuse a host without systemd"], "variables are checked before anything is done"
    refused = [(name, value) for name, all_of in REFUSED.items() for value in all_of.split("|")]
    hosts = {f"bad{number}": {name: value} for number, (name, value) in enumerate(refused)}
    hosts |= {f"hidden{number}": {"smt_pull_url": url} for number, url in enumerate(HIDDEN.split())}
    hosts |= {f"good{number}": {"smt_pull_url": url} for number, url in enumerate(TAKEN.split())}
    hosts["plain"] = {"smt_pull_url": "http://git.example.com/fleet.git", "smt_pull_unencrypted_ok": True}
    known = {**LOCAL, **of_role("defaults"), "smt_pull_url": "/srv/fleet"}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": checks}]))
    _code, seen = call(tmp_path, "play.yml", hosts={host: {**known, **own} for host, own in hosts.items()})
    failed = set(re.findall(r"^(\S+) +:.* failed=1", seen, re.MULTILINE))
    assert failed == {name for name in hosts if name.startswith(("bad", "hidden"))}, seen
    for number, (name, _value) in enumerate(refused):
        assert f"{name} is " in seen[seen.index(f"[bad{number}]") :], seen
    assert "hidden@" not in seen and ":hidden" not in seen and "=hidden" not in seen and "#hidden" not in seen, seen
