# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the timer of smt_pull runs, run: a host keeps its policy from a repository, and from the copy of it when the repository is gone."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import jinja2
import pytest
import yaml

from simulated_fleet import ROOT, Fleet

BIN = pathlib.Path(sys.executable).parent
TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(ROOT / "roles/smt_pull/templates"), undefined=jinja2.StrictUndefined)


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


def run(fleet):
    """Run the unit's commands as systemd would; returns the exit code of the last and what all said."""
    text = TEMPLATES.get_template("threadwise-smt-pull.service.j2").render(variables(
        smt_pull_bin=str(BIN), smt_pull_metrics=str(fleet.directory / "smt.prom"), smt_pull_url=str(fleet.directory / "repository"),
        __smt_pull_state=str(fleet.directory / "state")))
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
    host.set("h1", smt=True)
    shutil.rmtree(host.directory / "repository")
    code, seen = run(host)
    assert code == 0 and host.get("smt") == {"h1": False}, seen


@pytest.mark.parametrize("name, value", [("smt_pull_url", "/srv/a b"), ("smt_pull_url", "/srv/%n"), ("smt_pull_playbook", "x.yml\nExecStart=/bin/id"),
                                         ("smt_pull_metrics", "/a$b"), ("smt_pull_on_calendar", "daily\nOnBootSec=1")])
def test_what_means_something_in_a_unit_is_refused(tmp_path, name, value):
    role = {"role": "threadwise.smt.smt_pull", "vars": dict({"smt_pull_url": "/srv/fleet"}, **{name: value})}
    play = [{"hosts": "h1", "gather_facts": False, "roles": [role]}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    done = subprocess.run([str(BIN / "ansible-playbook"), "-i", "h1,", "-c", "local", "--check", "play.yml"], cwd=tmp_path, capture_output=True, text=True,
                          check=False, env=dict(os.environ, ANSIBLE_PYTHON_INTERPRETER=sys.executable))
    assert done.returncode == 2 and f"{name} is " in done.stdout + done.stderr, done.stdout
