# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller in a folder of its own, hosts that a program plays, and what a playbook did to both.

The controller's folder has all that Ansible reads from where it is called: inventory, host and group variables,
configuration, plugins, a home and a folder for temporary files. Results go to `project/out`, and nothing else of it may
change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import time
import typing as t

from interruption import descendants

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
ANSIBLE_PLAYBOOK = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
PROGRAM = (HERE / "host_program.py").read_text(encoding="utf-8")

HONEST = ("honest1", "honest2")
# What the answers may cost the controller more than without them: bytes of all its processes together.
MAX_BYTES = 400 * 1000 * 1000
# What one of Ansible's forks holds of its own while an honest host answers. Some more of these than the honest hosts
# have are part of the former.
FORK_BYTES = 30 * 1000 * 1000
SOME_FORKS = 5
# Nobody reads more than this of one host on a terminal.
MAX_TERMINAL = 256 * 1024
LOOK_SECONDS = 0.2
RUN = "r1"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a host prints to one call instead of the truth, and how, as `host_program` reads it from KEY.how."""

    body: bytes
    how: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


def of(document: t.Any, **how: t.Any) -> Answer:
    """The answer that is this JSON document; bytes are taken as they are."""
    return Answer(
        document if isinstance(document, bytes) else json.dumps(document).encode("utf-8", "surrogatepass"), how
    )


@dataclasses.dataclass(frozen=True)
class Host:
    """A host of the play: by key (see `host_program`) what it says instead of what the real modules said, its variables
    of the inventory, and a Python by which it runs what it is asked for.
    """

    name: str
    answers: t.Mapping[str, Answer] = dataclasses.field(default_factory=dict)
    variables: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    python: str | None = None


@dataclasses.dataclass(frozen=True)
class Play:
    """A playbook as it is called, with variables of all hosts in the inventory; results go below `out`. What hosts tell
    of themselves goes before these, as far as Ansible lets it.
    """

    name: str
    playbook: str
    arguments: tuple[str, ...] = ()
    variables: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    forks: int = 5
    umask: int = 0o022


@dataclasses.dataclass
class Run:
    """What a call of a playbook came to."""

    directory: pathlib.Path
    play: Play
    code: int
    terminal: bytes
    results: list[dict[str, t.Any]]
    changed: list[str]
    logs: dict[str, list[str]]
    seconds: float
    memory: int
    killed: str | None

    @property
    def out(self) -> pathlib.Path:
        return self.directory / "project/out"

    def text(self) -> str:
        return self.terminal.decode("utf-8", "replace")


PROJECT = {
    "ansible.cfg": "[defaults]\ninventory = inventory\nretry_files_enabled = false\n",
    "inventory/host_vars/honest1.yml": "set_by_the_user: 1\n",
    "host_vars/honest2.yml": "set_by_the_user: 3\n",
    "group_vars/all.yml": "set_by_the_user: 4\n",
    "filter_plugins/mine.py": "class FilterModule:\n    def filters(self):\n        return {}\n",
    "library/mine.py": "#!/usr/bin/python\n",
    "action_plugins/mine.txt": "mine\n",
    "callback_plugins/mine.txt": "mine\n",
    "roles/mine/tasks/main.yml": "[]\n",
    "site.yml": "[]\n",
    "requirements.yml": "collections: []\n",
}


def play(
    directory: pathlib.Path,
    answers: pathlib.Path,
    wanted: Play,
    hosts: t.Sequence[Host],
    baseline: Run | None = None,
    time_limit: float = 300,
    place: t.Callable[[pathlib.Path], None] = lambda _project: None,
) -> Run:
    """Call a playbook of the collection.

    Args:
        directory: a new one.
        wanted: the playbook and its variables.
        answers: a folder of what real modules answered, by key.
        hosts: in the order of the inventory.
        baseline: the same call without the hosts in question: what takes more memory than that and `MAX_BYTES` is
            killed.
        time_limit: seconds more than the baseline took after which the call is killed.
        place: called with the folder of the call, to put further files there.
    """
    project = _prepare(directory, hosts, answers)
    place(project)
    (project / "inventory/group_vars").mkdir()
    (project / "inventory/group_vars/all.yml").write_text(json.dumps({"set_by_the_user": 2, **wanted.variables}))
    places = [project, directory / "home", directory / "tmp", ROOT / "playbooks", ROOT / "roles", ROOT / "plugins"]
    before = {place: _snapshot(place) for place in places}
    most = (
        None
        if baseline is None
        else baseline.memory + MAX_BYTES + FORK_BYTES * max(0, min(wanted.forks, len(hosts)) - SOME_FORKS)
    )
    seconds = time_limit + (baseline.seconds if baseline else 0)
    begun = time.monotonic()
    with (directory / "terminal").open("wb") as terminal:
        process = subprocess.Popen(
            [ANSIBLE_PLAYBOOK, wanted.playbook, "--forks", str(wanted.forks), *wanted.arguments],
            cwd=project,
            env=_environment(directory, wanted),
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=wanted.umask,
        )
        memory, killed = _watch(process, most, seconds, directory / "terminal")
    took = time.monotonic() - begun
    changed = [line for place in places for line in _differences(place, before[place], _snapshot(place))]
    # What was killed could not clear its temporary files away.
    temporary = [f"{directory}/home/.ansible/tmp/ansible-local-"] if killed else []
    changed = [one for one in changed if not one.startswith((f"{project}/out/", f"{project}/out:", *temporary))]
    logs = {host.name: _lines(directory / "hosts" / host.name / "log") for host in hosts}
    results = [json.loads(line) for line in _lines(directory / "results.jsonl")]
    terminal = (directory / "terminal").read_bytes()
    return Run(directory, wanted, process.returncode, terminal, results, changed, logs, took, memory, killed)


def _prepare(directory, hosts, answers):
    project = directory / "project"
    for name, text in PROJECT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    for folder in (project / "out", directory / "home", directory / "tmp"):
        folder.mkdir()
    # Ansible makes these at its first call.
    (directory / "home/.ansible/tmp").mkdir(parents=True, mode=0o700)
    program = directory / "host_program"
    program.write_text(f"#!{sys.executable} -IS\n{PROGRAM}", encoding="utf-8")
    program.chmod(0o755)
    inventory = {}
    for host in hosts:
        place = directory / "hosts" / host.name
        (place / "mutants").mkdir(parents=True)
        (place / "answers").symlink_to(answers)
        for name in ("shell", "python"):
            (place / name).symlink_to(program)
        if host.python:
            (place / "real").write_text(host.python)
            (place / "said").mkdir()
        for key, answer in host.answers.items():
            (place / "mutants" / key).write_bytes(answer.body.replace(b"@PWNED@", str(project / "PWNED").encode()))
            if answer.how:
                (place / "mutants" / f"{key}.how").write_text(json.dumps(answer.how))
        inventory[host.name] = {
            "ansible_connection": "local",
            "ansible_shell_executable": str(place / "shell"),
            "ansible_python_interpreter": host.python or str(place / "python"),
            "ansible_remote_tmp": str(place / "tmp"),
            "ansible_async_dir": str(place / "async"),
            **host.variables,
        }
    (project / "inventory/hosts.json").write_text(json.dumps({"all": {"hosts": inventory}}))
    return project


def _environment(directory, wanted):
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(directory / "home"),
        "TMPDIR": str(directory / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "keep_results",
        "KEEP_RESULTS_PATH": str(directory / "results.jsonl"),
        "KEEP_RESULTS_WHOLE": ",".join(HONEST),
    }


def _lines(path):
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []


# The controller's processes


def _watch(process, most, seconds, terminal):
    """Wait for a process.

    Returns (most memory it held at once, why it was killed).
    """
    begun = time.monotonic()
    memory, killed = 0, None
    while True:
        if process.poll() is not None:
            return memory, killed
        tree = [process.pid, *descendants(process.pid)]
        memory = max(memory, sum(_memory(one) for one in tree if _command_line(one) == _command_line(process.pid)))
        if killed is None:
            if most is not None and memory > most:
                killed = f"it held {memory / 1e6:.0f} MB"
            elif time.monotonic() - begun > seconds:
                killed = f"it had not ended after {seconds:.0f} s"
            elif terminal.stat().st_size > 1 << 30:
                killed = "it printed more than 1 GB"
            if killed:
                for one in tree:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def _command_line(pid):
    """What tells Ansible's own processes, which are forks of one, from what they start:
    that is the host's side here.
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read() or None
    except OSError:
        return None


def _memory(pid):
    """Bytes; what several forks share counts for each of them in part, so that a sum counts it once."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            found = re.search(rb"^Pss: +([0-9]+) kB", file.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(found.group(1)) * 1024 if found else 0


# The controller's files


def _snapshot(place):
    """Each path below a folder: kind, mode, and what it holds."""
    found = {}
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            about = os.lstat(path)
            if stat.S_ISLNK(about.st_mode):
                holds = os.readlink(path)
            elif stat.S_ISREG(about.st_mode):
                with open(path, "rb") as file:
                    holds = hashlib.file_digest(file, "sha256").hexdigest()
            else:
                holds = ""
            found[path] = (oct(about.st_mode), holds)
    return found


def _differences(place, before, after):
    return [
        f"{path}: {'made' if path not in before else 'gone' if path not in after else 'changed'}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]
