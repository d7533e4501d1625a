# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds what a user gets: builds the archive of what git would commit, and tries it as the README says.

usage: archive.py IMPORTER        the directory of the Python environment with galaxy-importer

The first lines of the README install it in a new Python environment, without Galaxy. There it is linted, each playbook
is called by its full name, and Galaxy's importer reads it. Nothing of this machine is switched: the evaluation measures
it as it is, and what would change it runs in check mode.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / ".cache" / "archive"
LAST_LINES = 40
# What the workloads of the evaluation need.
PACKAGES = ("gzip", "sysbench")
# A user's PATH, with nothing of this working tree's environment.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RUN = "tried"
TRIAL = {
    "smt_trial_metrics": [
        {"name": "rate", "command": ["echo", "1"], "unit": "1/s", "better": "higher", "primary": True}
    ],
    "smt_trial_run": RUN,
}
THIS_MACHINE = ("-i", "localhost,", "-c", "local")
# Playbooks, what they are called with, and what they print by their exit code: this machine need not comply, or have
# SMT to switch.
STATUS = {0: "1 host: 1 compliant.", 2: "1 host: "}
PLAYBOOKS = (
    ("smt_survey", THIS_MACHINE, {0: "1 host: "}),
    ("smt_exposure", (*THIS_MACHINE, "-e", "smt_exposure_seconds=1"), {0: "1 host: "}),
    ("smt_compare", ("-e", "before=b.txt", "-e", "after=a.txt", "-e", "smt_compare_better=lower"), {0: "worse"}),
    ("smt_compliance", (*THIS_MACHINE, "-e", "smt_policy=enabled"), STATUS),
    ("smt_enforce", (*THIS_MACHINE, "--check", "-e", "smt_policy=enabled"), STATUS),
    ("smt_eval_stop", THIS_MACHINE, {0: "no evaluation is running here"}),
    ("smt_report", ("-e", f"smt_report_run_dir=smt_eval_results/{RUN}"), {0: "index.html"}),
    ("smt_history", ("-e", "smt_history_results=smt_eval_results"), {2: "no report of a run has an effect of SMT"}),
    (
        "smt_proof",
        (*THIS_MACHINE, "-e", "smt_proof_switch=false", "-e", "smt_proof_seconds=20"),
        {0: "localhost", 2: "localhost"},
    ),
    (
        "smt_trial",
        (*THIS_MACHINE, "--check", "-e", json.dumps(TRIAL)),
        {0: "localhost", 2: "no host can take part in the trial"},
    ),
)


class ArchiveError(Exception):
    """The archive is not what a user should get; the message says why."""


def main(words: list[str]) -> int:
    """Build and try the archive of the working tree."""
    if len(words) != 1:
        print("usage: archive.py IMPORTER", file=sys.stderr)
        return 2
    try:
        build_and_try(pathlib.Path(words[0]).resolve())
    except ArchiveError as error:
        print(f"archive: {error}", file=sys.stderr)
        return 1
    return 0


def build_and_try(importer: pathlib.Path, repository: str = "") -> pathlib.Path:
    """Build the archive and try it.

    Args:
        importer: the directory of the Python environment with galaxy-importer.
        repository: the address of the repository that galaxy.yml of the archive names, already checked; without one it
            keeps the one that is nobody's.

    Returns:
        The path of the archive.

    Raises:
        ArchiveError: a step failed, with the end of what it printed.
    """
    shutil.rmtree(WORK, ignore_errors=True)
    user = WORK / "user"
    user.mkdir(parents=True)
    with without("ANSIBLE_", "PYTHONPATH", "VIRTUAL_ENV"):
        archive = build(user, repository)
        say(f"{archive.name} has {archive.stat().st_size / 2**20:.1f} MiB")
        call("install what the workloads need", [str(ROOT / "tools/debian-packages.sh"), *PACKAGES], user, {})
        environment = new_environment(user)
        readme = first_commands((ROOT / "README.md").read_text(encoding="utf-8"))
        for line in readme[:-1]:
            call(f"README: {line[:70]}", ["bash", "-euo", "pipefail", "-c", line], user, environment)
        installed = pathlib.Path(environment["ANSIBLE_HOME"]) / "collections/ansible_collections/threadwise/smt"
        lint(installed)
        try_playbooks(readme[-1], user, environment)
        read_by_galaxy(importer, archive)
    return archive


def say(line: str) -> None:
    """Print a line of progress."""
    print(f"archive: {line}", flush=True)


@contextlib.contextmanager
def without(*prefixes: str) -> Iterator[None]:
    """Take the variables with these prefixes out of the environment:
    what a developer sets is not to be what makes the archive work.
    """
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(prefixes)}
    try:
        yield
    finally:
        os.environ.update(taken)


def call(
    what: str,
    command: Sequence[str],
    place: pathlib.Path,
    environment: dict[str, str],
    prints: Mapping[int, str] = MappingProxyType({0: ""}),
) -> str:
    """Run a command in a directory and return what it printed.

    Args:
        what: the line of progress.
        command: the program and its arguments.
        place: the directory.
        environment: variables beside those of this process.
        prints: a part of what it prints, for each exit code that is right.

    Raises:
        ArchiveError: it ended otherwise.
    """
    say(what)
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if prints.get(done.returncode, "\0") not in done.stdout:
        end = "\n".join(done.stdout.splitlines()[-LAST_LINES:])
        raise ArchiveError(f"exit code {done.returncode} of {shlex.join(command)}\n{end}")
    return done.stdout


def build(place: pathlib.Path, repository: str) -> pathlib.Path:
    """Build the archive of what git would commit, in a directory; returns its path."""
    tree = WORK / "tree"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        # Also git's list of what was removed and not yet committed.
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    if repository:
        description = tree / "galaxy.yml"
        text, lines = re.subn(
            r"^repository: .*$",
            lambda _found: f"repository: {repository}",
            description.read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
        if lines != 1:
            raise ArchiveError("galaxy.yml has no line 'repository:' to replace")
        description.write_text(text, encoding="utf-8")
    call("build", ["ansible-galaxy", "collection", "build", "--output-path", str(place), str(tree)], place, {})
    (archive,) = place.glob("threadwise-smt-*.tar.gz")
    return archive


def new_environment(user: pathlib.Path) -> dict[str, str]:
    """Make a Python environment with ansible-core and pip, as the README asks for;
    returns the variables with which a shell is in it.
    """
    python = user / "python"
    call("a new Python environment with ansible-core", [sys.executable, "-m", "venv", str(python)], user, {})
    call(
        "ansible-core comes from the registry",
        [str(python / "bin/pip"), "--quiet", "--disable-pip-version-check", "install", "ansible-core"],
        user,
        {},
    )
    return {"PATH": f"{python / 'bin'}:{SYSTEM_PATH}", "ANSIBLE_HOME": str(user / "ansible"), "ANSIBLE_NOCOLOR": "1"}


def first_commands(readme: str) -> list[str]:
    """Return the commands of the README's first block.

    Raises:
        ArchiveError: there is none.
    """
    match = re.search(r"^```console\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    commands = [line.removeprefix("$ ") for line in match[1].splitlines() if line.startswith("$ ")] if match else []
    if len(commands) < 2:
        raise ArchiveError("the README does not begin with the commands that install and call the collection")
    return commands


def lint(installed: pathlib.Path) -> None:
    """Lint the collection where it is installed, with the linter of this environment and none of the working tree's
    settings.
    """
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(installed.parents[2])}
    call(
        "lint",
        ["ansible-lint", "--profile", "production", "--offline", "--nocolor"],
        installed,
        settings,
        {0: "Passed: 0 failure(s), 0 warning(s)"},
    )


def try_playbooks(evaluation: str, user: pathlib.Path, environment: dict[str, str]) -> None:
    """Call each playbook of the installed collection by its full name on this machine,
    the evaluation as the README calls it without root.
    """
    words = [word for word in shlex.split(evaluation) if word != "-b"]
    call(
        "smt_eval",
        [*words, "-e", "smt_eval_arms=as_found", "-e", f"smt_eval_run={RUN}", "-e", "smt_eval_budget=40"],
        user,
        environment,
    )
    for name, numbers in (("b.txt", "1 1.1 1 1.1 1"), ("a.txt", "2 2.1 2.2 2 2.1")):
        (user / name).write_text(numbers, encoding="utf-8")
    for name, arguments, prints in PLAYBOOKS:
        call(name, ["ansible-playbook", *arguments, f"threadwise.smt.{name}"], user, environment, prints)
    tried = {name for name, _arguments, _prints in PLAYBOOKS} | {"smt_eval"}
    left = {path.stem for path in (ROOT / "playbooks").glob("*.yml")} - tried
    if left:
        raise ArchiveError(f"no call of {', '.join(sorted(left))} is tried: PLAYBOOKS in tools/archive.py has none")


def read_by_galaxy(importer: pathlib.Path, archive: pathlib.Path) -> None:
    """Have Galaxy's importer read the archive as one that is published: it may not say a word.

    Raises:
        ArchiveError: it said something.
    """
    # What it does it reports as INFO: without that it has no word for an archive without faults.
    settings = {
        "PATH": f"{importer / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GALAXY_IMPORTER_LOG_LEVEL_MAIN": "WARNING",
        "GALAXY_IMPORTER_CHECK_REQUIRED_TAGS": "true",
        "GALAXY_IMPORTER_REQUIRE_V1_OR_GREATER": "true",
    }
    output = call("Galaxy's importer", ["python", "-m", "galaxy_importer.main", str(archive)], WORK, settings)
    if output.strip():
        raise ArchiveError(f"Galaxy's importer says:\n{output}")
    say(f"Galaxy's importer has no word for {archive.name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
