# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated host that pulls from a real repository."""

import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import jinja2
import yaml
from ansible.plugins.filter.core import to_bool
from prometheus_client import parser
from simulated_fleet import ROOT, Fleet
from this_machine import LOCAL, call

BIN = pathlib.Path(sys.executable).parent
LOADER = jinja2.FileSystemLoader(ROOT / "roles/smt_pull/templates")
TEMPLATES = jinja2.Environment(loader=LOADER, undefined=jinja2.StrictUndefined, trim_blocks=True)
TEMPLATES.filters["bool"] = to_bool
AUTHOR = ("-c", "user.name=x", "-c", "user.email=x@example.com")
PLAYBOOK = (ROOT / "examples/pull/local.yml").read_text().replace("  become: true\n", "")


def of_role(kind):
    return yaml.safe_load((ROOT / f"roles/smt_pull/{kind}/main.yml").read_text())


@functools.cache
def program():
    """The program as the role's tasks write it."""
    place = pathlib.Path(tempfile.mkdtemp())
    tasks = [task for task in of_role("tasks") if task["name"] == "Write the program"]
    given = {**of_role("vars"), "__smt_pull_state": str(place), "role_path": str(ROOT / "roles/smt_pull")}
    play = {"hosts": "localhost", "gather_facts": False, "vars": given, "tasks": tasks}
    (place / "play.yml").write_text(yaml.safe_dump([play]))
    code, seen = call(place, "play.yml", hosts={"localhost": LOCAL})
    assert code == 0, seen
    return place / "program"


def git(repository, *arguments):
    done = subprocess.run(["git", *AUTHOR, *arguments], cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class PulledHost(Fleet):
    """The host `h1`, whose policy is `disabled`, and the repository with its inventory."""

    def __init__(self, directory: pathlib.Path, **variables: object):
        super().__init__(directory, {"h1": {"smt_policy": "disabled", **variables}})
        self.metrics_file = directory / "smt.prom"
        places = [directory / name for name in ("state", "repository", "scratch")]
        for place in places:
            place.mkdir()
        self.place, self.repository, self.scratch = places
        shutil.copy(program(), self.place)
        git(self.repository, "init", "-q", "-b", "main")
        shutil.copy(directory / "inventory.yml", self.repository)
        self.commit({"local.yml": PLAYBOOK})
        collections = {"ANSIBLE_PIPELINING": "1", "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections")}
        places = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(self.place)}
        self.environment = {**os.environ, **collections, **places}

    def commit(self, files: dict[str, str | None]) -> str:
        """Commit files of the repository, None for one that goes. Returns the commit."""
        for name, content in files.items():
            path = self.repository / name
            if content is None:
                git(self.repository, "rm", "-rq", name)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
        git(self.repository, "add", "--all")
        git(self.repository, "commit", "-qm", "x", "--allow-empty")
        return git(self.repository, "rev-parse", "HEAD")

    def pull(self) -> tuple[int, str]:
        """Run what the unit runs. Returns its exit status and what it said."""
        paths = {"smt_pull_bin": BIN, "smt_pull_metrics": self.metrics_file, "smt_pull_url": self.repository}
        paths |= {"__smt_pull_state": self.place, "__smt_pull_scratch": self.scratch, "inventory_hostname": "h1"}
        variables = {**of_role("defaults"), **of_role("vars"), **{name: str(path) for name, path in paths.items()}}
        unit = TEMPLATES.get_template("threadwise-smt-pull.service.j2").render(variables)
        (line,) = re.findall("^ExecStart=(.*)$", unit, re.MULTILINE)
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(shlex.split(line), cwd=self.place, env=self.environment, check=False, **how)
        return done.returncode, done.stdout

    def metrics(self) -> dict[str, object]:
        """What the textfile collector reads: each metric's value, and the commits by their use."""
        found: dict[str, object] = {}
        for family in parser.text_string_to_metric_families(self.metrics_file.read_text()):
            for sample in family.samples:
                assert sample.labels["host"] == "h1"
                name = sample.name.removeprefix("threadwise_smt_")
                kind = sample.labels.get("commit") or sample.labels.get("status")
                found[f"{name}_{sample.labels['use']}" if "use" in sample.labels else name] = kind or sample.value
        return found

    @property
    def record(self) -> dict[str, object]:
        return json.loads((self.place / "pulled/record.json").read_text())
