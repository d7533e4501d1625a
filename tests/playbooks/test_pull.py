# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the timer of smt_pull runs, run: a host keeps its policy from a repository,
and from the copy of it when the repository is gone.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys

import jsonschema_rs
import pytest
import yaml
from pulled_host import BIN, PLAYBOOK, PulledHost, git, of_role
from simulated_fleet import ROOT

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
    assert (
        "No newer commit can be had: git fetch failed: fatal:" in seen
        and f"The policy of commit {first[:12]} is enforced" in seen
    )
    later = host.metrics()
    assert (
        later["pull_success"] == 0
        and later["pull_last_success_timestamp_seconds"] == known["pull_last_success_timestamp_seconds"]
    )
    assert later["compliant"] == 1 and later["checked_timestamp_seconds"] >= known["checked_timestamp_seconds"]


NOT_APPLIED = "or its playbook local.yml does not apply the role smt_policy to it"
CONFLICT = "<<<<<<< ours\n{}=======\n- hosts: all\n>>>>>>> theirs\n"
TASK = "- hosts: all\n  gather_facts: false\n  tasks:\n    - "


def with_policy(good, policy):
    """The inventory with another policy."""
    return {"inventory.yml": good.replace("smt_policy: disabled", policy)}


def with_task(task):
    """The playbook with a play of one task before its own."""
    return PLAYBOOK.replace("---\n", f"---\n{TASK}{task}\n", 1)


# What is wrong with a commit -> its files, from the inventory that is good, and a part of what is said of it.
BROKEN = {
    "inventory: no YAML": (lambda good: {"inventory.yml": "all: [hosts\n"}, "gave h1 no verdict"),
    "inventory: merge conflict": (lambda good: {"inventory.yml": CONFLICT.format(good)}, "gave h1 no verdict"),
    "inventory: deleted": (lambda good: {"inventory.yml": None}, "gave h1 no verdict"),
    "inventory: empty": (lambda good: {"inventory.yml": ""}, "does not have h1"),
    "inventory: an empty directory": (lambda good: {"inventory.yml": None, "inventory.yml/README": "x\n"}, "h1"),
    "inventory: not text": (lambda good: {"inventory.yml": "\x00\x01\x7f\n"}, "h1"),
    "inventory: another host": (lambda good: {"inventory.yml": good.replace("h1:", "h2:")}, "h1"),
    "inventory: variables no YAML": (lambda good: {"group_vars/all.yml": "a: [b\n"}, "h1"),
    "inventory: variables in a vault": (lambda good: {"group_vars/all.yml": "$ANSIBLE_VAULT;1.1;AES256\n6161\n"}, "h1"),
    "policy: of no known kind": (
        lambda good: with_policy(good, "smt_policy: dissabled"),
        "cannot be judged by it: bad_policy",
    ),
    "policy: not set": (lambda good: with_policy(good, "smt_polcy: disabled"), "cannot be judged by it: bad_policy"),
    "policy: of a variable that is not set": (lambda good: with_policy(good, "smt_policy: '{{ nowhere }}'"), "nowhere"),
    "policy: no decision": (
        lambda good: with_policy(good, "smt_policy: auto\n      smt_policy_results: results"),
        "cannot be judged by it: unknown",
    ),
    "playbook: no YAML": (lambda good: {"local.yml": "- hosts: [all\n"}, "gave h1 no verdict"),
    "playbook: merge conflict": (lambda good: {"local.yml": CONFLICT.format(PLAYBOOK)}, "gave h1 no verdict"),
    "playbook: deleted": (lambda good: {"local.yml": None}, "gave h1 no verdict"),
    "playbook: empty": (lambda good: {"local.yml": ""}, "no verdict"),
    "playbook: an unknown group": (
        lambda good: {"local.yml": PLAYBOOK.replace("hosts: all", "hosts: nobody")},
        NOT_APPLIED,
    ),
    "playbook: no policy": (lambda good: {"local.yml": TASK + "meta: noop\n"}, NOT_APPLIED),
    "playbook: a task before it fails": (
        lambda good: {"local.yml": with_task("fail: {msg: out of order}")},
        "out of order",
    ),
    "requirements: a role": (
        lambda good: {"local.yml": PLAYBOOK.replace("  tasks:", "  roles: [of_nobody]\n  tasks:")},
        "of_nobody",
    ),
    "requirements: a role in a task": (
        lambda good: {"local.yml": with_task("include_role: {name: of_nobody}")},
        "of_nobody",
    ),
    "requirements: a collection": (
        lambda good: {"local.yml": with_task("nobody.nothing.module: {}")},
        "nobody.nothing",
    ),
}
GROUPS: dict[str, list[str]] = {}
for broken_commit in BROKEN:
    GROUPS.setdefault(broken_commit.partition(":")[0], []).append(broken_commit)
GROUPS["one of all"] = ["inventory: no YAML"]


@pytest.mark.parametrize(
    "group",
    # Each pull takes some seconds: all of them are tried at night.
    [pytest.param(name, marks=() if name == "one of all" else pytest.mark.night) for name in GROUPS],
)
def test_a_commit_that_cannot_be_used_leaves_the_policy_of_the_one_before_in_force(host, group):
    good = (host.repository / "inventory.yml").read_text()
    kept = git(host.repository, "rev-parse", "HEAD")
    code, seen = host.pull()
    assert code == 0, seen
    success = host.metrics()["pull_last_success_timestamp_seconds"]
    for name in GROUPS[group]:
        files, why = BROKEN[name]
        broken = host.commit(files(good))
        host.set("h1", smt=True)
        code, seen = host.pull()
        assert (code, host.get("smt")) == (0, {"h1": False}), f"{name}: {seen}"
        (said,) = (line for line in seen.splitlines() if line.startswith("threadwise-smt-pull: "))
        print(name, said)
        assert said.startswith(f"threadwise-smt-pull: Commit {broken[:12]} is refused: ") and why in said, (
            f"{name}: {seen}"
        )
        assert f". The policy of commit {kept[:12]} is enforced, under which this host was judged on 2" in said, name
        known = host.metrics()
        assert (known["compliant"], known["status"], known["pull_success"]) == (1, "compliant", 0), name
        assert (known["pull_commit_info_enforced"], known["pull_commit_info_refused"]) == (kept, broken), name
        assert known["pull_last_success_timestamp_seconds"] == success <= known["pull_run_timestamp_seconds"], name
        assert host.record()["kept"] == kept and sorted(
            path.name for path in (host.place / "pulled/commits").iterdir()
        ) <= sorted({kept, broken}), name
        git(host.repository, "reset", "-q", "--hard", kept)
        git(host.repository, "clean", "-qfdx")
    mended = host.commit({"local.yml": PLAYBOOK + "# mended\n"})
    code, seen = host.pull()
    known = host.metrics()
    assert (code, known["pull_success"], known["pull_commit_info_enforced"]) == (
        0,
        1,
        mended,
    ) and "pull_commit_info_refused" not in known, seen


REFUSED = [
    ("smt_pull_url", "http://git.example.com/fleet.git"),
    ("smt_pull_url", "HTTP://git.example.com/fleet.git"),
    ("smt_pull_url", "git://git.example.com/fleet"),
    ("smt_pull_url", "http::https://git.example.com/x"),
    ("smt_pull_url", "/srv/fleet\n"),
    ("smt_pull_url", "/srv/a b"),
    ("smt_pull_url", "/srv/%n"),
    ("smt_pull_playbook", "local.yml\n"),
    ("smt_pull_playbook", "--version"),
    ("smt_pull_playbook", "x.yml\nExecStart=/bin/id"),
    ("smt_pull_metrics", "/a$b.prom"),
    ("smt_pull_metrics", "/etc/cron.d/smt"),
    ("smt_pull_on_calendar", "daily\n"),
    ("smt_pull_on_calendar", "daily\nOnBootSec=1"),
]
# Nothing of these may be shown.
HIDDEN = [
    "https://me:hidden@git.example.com/fleet.git",
    "HTTPS://hidden@git.example.com/fleet.git",
    "ssh://me:hidden@git.example.com/fleet.git",
    "https://git.example.com/fleet.git?private_token=hidden",
    "https://git.example.com/fleet.git#hidden",
]
TAKEN = [
    "https://git.example.com/fleet.git",
    "ssh://git@git.example.com:2222/fleet.git",
    "git@git.example.com:fleet.git",
    "file:///srv/fleet",
    "/srv/fleet",
]


def test_what_means_something_in_a_unit_or_is_not_protected_is_refused(tmp_path):
    """A host each, in one play."""
    hosts = {f"bad{number}": {name: value} for number, (name, value) in enumerate(REFUSED)}
    hosts.update({f"bad{len(REFUSED) + number}": {"smt_pull_url": url} for number, url in enumerate(HIDDEN)})
    hosts.update({f"good{number}": {"smt_pull_url": url} for number, url in enumerate(TAKEN)})
    hosts["plain"] = {"smt_pull_url": "http://git.example.com/fleet.git", "smt_pull_unencrypted_ok": True}
    seen = checked(tmp_path, hosts)
    failed = {line.split()[0] for line in seen.split("PLAY RECAP")[1].splitlines() if "failed=1" in line}
    assert failed == {name for name in hosts if name.startswith("bad")}, seen
    for number, (name, _value) in enumerate(REFUSED):
        assert f"{name} is " in seen[seen.index(f"[bad{number}]") :], seen
    assert (
        seen.count("smt_pull_url has a user with a password or a token in it, or ? or #") >= len(HIDDEN)
        and "hidden" not in seen
    )


def checked(tmp_path, hosts):
    """What the role's checks of its variables say, which are all that comes before it writes."""
    tasks = of_role("tasks")
    checks = list(
        itertools.takewhile(
            lambda task: "ansible.builtin.assert" in task or "threadwise.smt.smt_user_values" in task, tasks
        )
    )
    later = [task["name"] for task in tasks[len(checks) :] if "ansible.builtin.assert" in task]
    assert later == ["Refuse a host without systemd"], "variables are checked before anything is done"
    inventory = {"all": {"hosts": hosts, "vars": {**of_role("defaults"), "smt_pull_url": "/srv/fleet"}}}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": checks}]))
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    done = subprocess.run(
        [str(BIN / "ansible-playbook"), "-i", "hosts.yml", "-c", "local", "play.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ, ANSIBLE_PYTHON_INTERPRETER=sys.executable),
    )
    return done.stdout + done.stderr
