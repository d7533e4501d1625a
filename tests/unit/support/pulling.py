# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of smt_pull with real git repositories."""

import argparse
import contextlib
import io
import json
import pathlib
import re
import stat
import subprocess
import sys

from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import archive
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull import program

AUTHOR = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main")
STAND_IN = r"""#!/usr/bin/env python3
import json, os, sys
inventory = next(word[12:] for word in sys.argv if word.startswith("--inventory="))
given = json.loads(next(word[13:] for word in sys.argv if word.startswith("--extra-vars=")))
policy = open(os.path.join(os.path.dirname(inventory), "policy")).read().strip()
if policy == "broken":
    print("[ERROR]: it is broken")
    sys.exit(4)
document = json.dumps({"hosts": [{"host": "h1", "status": policy, "sentence": ""}]})
if "__smt_pull_status_file" in given:
    open(given["__smt_pull_status_file"], "w").write(document)
    open("LOG", "a").write(os.path.basename(os.path.dirname(inventory)) + "\n")
else:
    value = 'threadwise_smt_compliant{host="h1"} %d' % (policy == "compliant")
    metrics = "# HELP threadwise_smt_compliant x\n%s\n# EOF\n" % value
    for name, text in (("json", document), ("metrics", metrics), ("page", "<p>")):
        open(given["smt_compliance_" + name], "w").write(text)
sys.exit(0 if policy == "compliant" else 2)
"""


def git(directory: pathlib.Path, *arguments: str) -> str:
    command = ["git", *AUTHOR, *arguments]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


class Place:
    """A host that pulls."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory, self.repository, self.log = directory, directory / "repository", directory / "log"
        self.metrics = directory / "smt.prom"
        for name in ("repository", "state", "scratch", "bin"):
            (directory / name).mkdir()
        stand_in = directory / "bin/ansible-playbook"
        stand_in.write_text(STAND_IN.replace("LOG", str(self.log)))
        stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
        git(self.repository, "init", "-q")
        self.first = self.commit("compliant")

    def commit(self, policy: str, *options: str) -> str:
        (self.repository / "policy").write_text(policy + "\n")
        git(self.repository, "add", "-A")
        git(self.repository, *options, "commit", "-qm", policy, "--allow-empty")
        return git(self.repository, "rev-parse", "HEAD")

    def arguments(self, *more: str) -> list[str]:
        given = {"state": "state", "scratch": "scratch", "bin": "bin", "url": "repository", "metrics": "smt.prom"}
        words = [f"--{name}={self.directory / path}" for name, path in given.items()]
        return [*words, "--playbook=local.yml", "--inventory=inventory.yml", "--host=h1", *more]

    def program(self) -> list[str]:
        """The command of the file that the role leaves on a host."""
        path = self.directory / "program"
        path.write_bytes(archive.build(program.__name__))
        return [sys.executable, "-BES", str(path)]

    def pull(self, *more: str, now: float = 1e9) -> str:
        """One pull in this process; returns what it says."""
        options: argparse.Namespace = program._options(self.arguments(*more))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            program.Pull(options, now).run()
        return said.getvalue()

    def enforced(self) -> list[str]:
        """The commits whose policy was enforced since the last call."""
        found = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return found

    def record(self, kind: str = "pulled") -> dict[str, object]:
        return json.loads((self.directory / "state" / kind / "record.json").read_text())

    def value(self, name: str) -> float | None:
        """A metric of the host, None where there is none."""
        text = self.metrics.read_text() if self.metrics.exists() else ""
        found = re.search(rf"^threadwise_smt_{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE)
        return found and float(found[1])
