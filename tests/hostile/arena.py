# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller in a folder of its own, hosts that a program plays, and what a playbook did to both."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import signal
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
    is_raw = isinstance(document, bytes)
    return Answer(document if is_raw else json.dumps(document).encode("utf-8", "surrogatepass"), how)


@dataclasses.dataclass(frozen=True)
class Host:
    """A host of the play: by key (see `host_program`) what it says instead of what the real modules said."""

    name: str
    answers: t.Mapping[str, Answer] = dataclasses.field(default_factory=dict)
    variables: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    python: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Play:
    """A playbook as it is called, with variables of all hosts in the inventory."""

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


MINE = "set_by_the_user: 1\n"
PROJECT = {
    "ansible.cfg": "[defaults]\ninventory = inventory\nretry_files_enabled = false\n",
    "filter_plugins/mine.py": "class FilterModule:\n    def filters(self):\n        return {}\n",
    "library/mine.py": "#!/usr/bin/python\n",
    **dict.fromkeys(("inventory/host_vars/honest1.yml", "host_vars/honest2.yml", "group_vars/all.yml"), MINE),
    **dict.fromkeys(("action_plugins/mine.txt", "callback_plugins/mine.txt"), "mine\n"),
    **dict.fromkeys(("roles/mine/tasks/main.yml", "site.yml"), "[]\n"),
}


def play(
    directory: pathlib.Path, answers: pathlib.Path, wanted: Play, hosts, baseline=None, time_limit=300,
    place=lambda _project: None,
) -> Run:  # fmt: skip
    """Call a playbook of the collection; it may cost more than the ``baseline`` only so much."""
    project = _prepare(directory, hosts, answers)
    place(project)
    (project / "inventory/group_vars").mkdir()
    (project / "inventory/group_vars/all.yml").write_text(json.dumps({"set_by_the_user": 2, **wanted.variables}))
    places = [project, directory / "home", directory / "tmp", ROOT / "playbooks", ROOT / "roles", ROOT / "plugins"]
    before = {place: _snapshot(place) for place in places}
    forks = max(0, min(wanted.forks, len(hosts)) - SOME_FORKS)
    most = baseline and baseline.memory + MAX_BYTES + FORK_BYTES * forks
    seconds = time_limit + (baseline.seconds if baseline else 0)
    begun = time.monotonic()
    command = [ANSIBLE_PLAYBOOK, wanted.playbook, "--forks", str(wanted.forks), *wanted.arguments]
    how = {"cwd": project, "env": _environment(directory), "start_new_session": True, "umask": wanted.umask}
    with (directory / "terminal").open("wb") as terminal:
        how |= {"stdin": subprocess.DEVNULL, "stdout": terminal, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, **how) as process:
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
        paths = {"shell_executable": "shell", "python_interpreter": "python", "remote_tmp": "tmp", "async_dir": "async"}
        known = {f"ansible_{name}": str(place / path) for name, path in paths.items()}
        python = {"ansible_python_interpreter": host.python} if host.python else {}
        inventory[host.name] = {"ansible_connection": "local", **known, **python, **host.variables}
    (project / "inventory/hosts.json").write_text(json.dumps({"all": {"hosts": inventory}}))
    return project


def _environment(directory):
    fixed = {"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PIPELINING": "1"}
    keeps = {"ANSIBLE_CALLBACK_PLUGINS": HERE / "callback", "ANSIBLE_CALLBACKS_ENABLED": "keep_results"}
    keeps |= {"KEEP_RESULTS_PATH": directory / "results.jsonl", "KEEP_RESULTS_WHOLE": ",".join(HONEST)}
    places = {"HOME": directory / "home", "TMPDIR": directory / "tmp", "PATH": os.environ["PATH"]}
    return {name: str(value) for name, value in {**fixed, **keeps, **places}.items()}


def _lines(path):
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []


def _watch(process, most, seconds, terminal):
    """Wait for a process, and kill it where it costs too much. Returns the most memory that it had, and why."""
    begun, memory, killed = time.monotonic(), 0, None
    while process.poll() is None:
        tree = [process.pid, *descendants(process.pid)]
        memory = max(memory, sum(_memory(one) for one in tree if _command_line(one) == _command_line(process.pid)))
        if killed is None:
            if most is not None and memory > most:
                killed = f"it held {memory / 1e6:.0f} MB"
            elif time.monotonic() - begun > seconds:
                killed = f"it had not ended after {seconds:.0f} s"
            elif terminal.stat().st_size > 1 << 30:
                killed = "it printed more than 1 GB"
            for one in tree if killed else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)
    return memory, killed


def _command_line(pid):
    """What tells Ansible's own processes, which are forks of one, from what they start."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read() or None
    return None


def _memory(pid):
    """Bytes; what several forks share counts for each of them in part, so that a sum counts it once."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        found = re.search(rb"^Pss: +([0-9]+) kB", file.read(), re.MULTILINE)
        return int(found.group(1)) * 1024 if found else 0
    return 0


def _snapshot(place):
    """Each path below a folder: kind, mode, and what it holds."""
    found = {}
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in [*folders, *files]:
            path = pathlib.Path(folder, name)
            about, holds = path.lstat(), ""
            if path.is_symlink():
                holds = path.readlink()
            elif path.is_file():
                holds = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path)] = (oct(about.st_mode), holds)
    return found


def _differences(place, before, after):
    return [
        f"{path}: {'made' if path not in before else 'gone' if path not in after else 'changed'}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]
