# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the timer of smt_pull runs, run: a host keeps its policy from a repository, and from the copy of it when the repository is gone."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import jinja2
import jsonschema_rs
import pytest
import yaml
from ansible.plugins.filter.core import to_bool
from simulated_fleet import ROOT, Fleet

BIN = pathlib.Path(sys.executable).parent
TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(ROOT / "roles/smt_pull/templates"), undefined=jinja2.StrictUndefined, trim_blocks=True)
TEMPLATES.filters["bool"] = to_bool


def variables(**given):
    defaults = yaml.safe_load((ROOT / "roles/smt_pull/defaults/main.yml").read_text())
    return dict(defaults, inventory_hostname="h1", **given)


def commands(text):
    return [line.partition("=")[2].lstrip("-") for line in text.splitlines() if line.startswith("ExecStart=")]


@pytest.fixture(name="host")
def _host(tmp_path):
    """A simulated host with a repository that holds its inventory."""
    fleet = Fleet(tmp_path, {"h1": {"smt_policy": "disabled"}})
    repository = tmp_path / "repository"
    repository.mkdir()
    shutil.copy(tmp_path / "inventory.yml", repository)
    (repository / "local.yml").write_text((ROOT / "examples/pull/local.yml").read_text().replace("  become: true\n", ""))
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    return fleet


def run(fleet, **given):
    """Run the unit's commands as systemd would; returns the exit code of the last and what all said."""
    text = TEMPLATES.get_template("threadwise-smt-pull.service.j2").render(
        variables(
            smt_pull_bin=str(BIN),
            smt_pull_metrics=str(fleet.directory / "smt.prom"),
            smt_pull_url=str(fleet.directory / "repository"),
            __smt_pull_state=str(fleet.directory / "state"),
            **given,
        )
    )
    place = fleet.directory / "state"
    place.mkdir(exist_ok=True)
    environment = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(fleet.directory / "collections"), PATH=f"{BIN}:{os.environ['PATH']}", HOME=str(place))
    seen, code = "", 0
    for command in commands(text):
        done = subprocess.run(shlex.split(command), cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        seen, code = seen + done.stdout, done.returncode
    return code, seen


def test_a_host_keeps_its_policy_also_when_the_repository_is_gone(host):
    code, seen = run(host)
    assert code == 0 and host.get("smt") == {"h1": False}, seen
    assert 'threadwise_smt_compliant{host="h1"' in (host.directory / "smt.prom").read_text()
    # What the timer leaves for programs has the published schema of compliance.
    left = json.loads((host.directory / "state/smt_compliance.json").read_text())
    jsonschema_rs.Draft202012Validator(json.loads((ROOT / "docs/compliance.schema.json").read_text(encoding="utf-8"))).validate(left)
    assert [(one["host"], one["status"]) for one in left["hosts"]] == [("h1", "compliant")]
    host.set("h1", smt=True)
    shutil.rmtree(host.directory / "repository")
    code, seen = run(host)
    assert code == 0 and host.get("smt") == {"h1": False}, seen


def commit(repository, text, *options):
    """A commit that puts a line into the playbook."""
    with (repository / "local.yml").open("a") as playbook:
        playbook.write(text)
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *options, "commit", "-qam", "x"], cwd=repository, check=True)


def test_only_what_a_trusted_key_signed_is_run(host):
    place, repository = host.directory / "state", host.directory / "repository"
    place.mkdir()
    for name in ("trusted", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(host.directory / name)], check=True)
    (place / "signers").write_text("x@example.com " + (host.directory / "trusted.pub").read_text())
    (place / ".gitconfig").write_text(f'[gpg "ssh"]\nallowedSignersFile = {place}/signers\n')
    signed = {
        name: ("-c", "gpg.format=ssh", "-c", f"user.signingkey={host.directory / name}.pub", "-c", "commit.gpgsign=true") for name in ("trusted", "other")
    }
    code, seen = run(host, smt_pull_verify_commit=True)
    assert host.get("smt") == {"h1": True} and not (place / "verified/local.yml").exists(), seen
    commit(repository, "# 1\n", *signed["trusted"])
    code, seen = run(host, smt_pull_verify_commit=True)
    assert code == 0 and host.get("smt") == {"h1": False}, seen
    for options in ((), signed["other"]):
        host.set("h1", smt=True)
        commit(repository, "- hosts: all\n  gather_facts: false\n  tasks: [{fail: {msg: hostile}}]\n", *options)
        code, seen = run(host, smt_pull_verify_commit=True)
        assert code == 0 and "hostile" not in seen and host.get("smt") == {"h1": False}, seen
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *signed["trusted"], "revert", "-n", "HEAD", "HEAD~1"], cwd=repository, check=True
    )
    commit(repository, "# 2\n", *signed["trusted"])
    code, seen = run(host, smt_pull_verify_commit=True)
    assert code == 0 and (place / "verified/local.yml").read_text().endswith("# 2\n"), seen


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
TAKEN = ["https://git.example.com/fleet.git", "ssh://git@git.example.com:2222/fleet.git", "git@git.example.com:fleet.git", "file:///srv/fleet", "/srv/fleet"]


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
    assert seen.count("smt_pull_url has a user with a password or a token in it, or ? or #") >= len(HIDDEN) and "hidden" not in seen


def checked(tmp_path, hosts):
    """What the role's checks of its variables say, which are all that comes before it writes."""
    tasks = yaml.safe_load((ROOT / "roles/smt_pull/tasks/main.yml").read_text())
    checks = list(itertools.takewhile(lambda task: "ansible.builtin.assert" in task or "threadwise.smt.smt_user_values" in task, tasks))
    later = [task["name"] for task in tasks[len(checks) :] if "ansible.builtin.assert" in task]
    assert later == ["Refuse a host without systemd"], "variables are checked before anything is done"
    defaults = yaml.safe_load((ROOT / "roles/smt_pull/defaults/main.yml").read_text())
    inventory = {"all": {"hosts": hosts, "vars": {**defaults, "smt_pull_url": "/srv/fleet"}}}
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
