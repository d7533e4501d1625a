# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server of a workload: PostgreSQL if it is installed, and servers that do not start."""

import os
import pwd
import signal
import stat
import subprocess
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import (
    declaration,
    prepared,
    server as server_module,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.built_in.oltp import (
    POSTGRESQL,
    TRANSACTION,
)

ME = pwd.getpwuid(os.geteuid()).pw_name
# Runs until it gets SIGINT.
SERVER = {"folders": [], "commands": {"sh": None}, "user": ME, "files": [], "prepare": [["touch", "{server}/prepared"]]}
SERVER.update(in_each_arm=False, has_own_cores=False, stop="SIGINT", kill="SIGQUIT", end=[])
SERVER.update(ready=["test", "-e", "{server}/up"], fill=[["touch", "{server}/filled"]])
SERVER["serve"] = [
    "sh",
    "-c",
    "trap 'exit 0' INT; echo $$ > {server}/pid; touch {server}/up; while :; do sleep 0.05; done",
]


def started(server, files):
    return server_module.Server(
        server, files.folder("own.server", server_module.owner(server)), {"PATH": os.environ["PATH"]}
    )


def gone(folder):
    # The limit only ends what hangs.
    for _attempt in range(12000):
        found = subprocess.run(["pgrep", "-f", folder], stdout=subprocess.DEVNULL, check=False)
        if found.returncode == 1 and not os.path.exists(folder):
            return True
        time.sleep(0.05)
    return False


def test_a_server_is_prepared_and_filled_and_removed_when_it_is_stopped(files):
    server = started(SERVER, files)
    assert {"prepared", "up", "filled"} <= set(os.listdir(server.folder))
    server.stop()
    assert gone(server.folder)
    server.stop()


def test_postgresql_listens_on_a_unix_socket_only_and_does_not_run_as_root():
    assert "listen_addresses=" in POSTGRESQL["serve"] and server_module.owner(POSTGRESQL)[0] != 0


SAYS = "echo the disk is full >&2; exit 1"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"prepare": [["sh", "-c", SAYS]]}, "sh failed with exit status 1: the disk is full"),
        # The supervisor is the parent of each of its commands: this one kills it.
        ({"prepare": [["sh", "-c", "kill -KILL $PPID"]]}, "the supervisor of the server was killed"),
        ({"serve": ["sh", "-c", "echo no memory; exit 2"]}, "the server sh did not start: no memory"),
        ({"ready": ["false"]}, "the server sh did not start"),
    ],
)
def test_a_server_that_does_not_start_is_reported_with_the_reason_and_removed(changed, error, files, monkeypatch):
    if "ready" in changed:
        monkeypatch.setattr(server_module, "READY_SECONDS", 0.5)
    with pytest.raises(declaration.WorkloadError, match=error):
        started(dict(SERVER, **changed), files)
    assert gone(files.file("own.server"))


def test_a_server_that_ignores_signals_is_killed_after_its_own_way_to_end(files, monkeypatch):
    monkeypatch.setattr(server_module, "STOP_SECONDS", 0.3)
    ended = os.path.join(os.path.dirname(files.path), "ended")
    deaf = ["sh", "-c", "trap '' INT TERM; touch {server}/up; setsid sleep 300 & sleep 300"]
    server = started(dict(SERVER, serve=deaf, end=["touch", ended]), files)
    server.stop()
    assert gone(server.folder) and os.path.exists(ended)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_a_plan_that_is_killed(number, files):
    plan = os.fork()
    if plan == 0:
        try:
            # An earlier test can have left a handler, and no exception must lead this copy of the process back into
            # pytest.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            started(SERVER, files)
            open(files.file("serving"), "w", encoding="utf-8").close()
            time.sleep(300)
        finally:
            os._exit(1)
    while not os.path.exists(files.file("serving")):
        time.sleep(0.02)
    os.kill(plan, number)
    os.waitpid(plan, 0)
    assert gone(files.file("own.server"))


# ---- a hostile server user: root does nothing in the server's directory, whatever is in it ---------------------------

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
OTHER = "nobody"
SECRET = "only root can read this\n"


@pytest.fixture(name="victim")
def a_file_of_root(files):
    """Create a file that only root can read and write, at a path that others can reach."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(files.path))), "victim")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as secret:
        secret.write(SECRET)
    yield path
    with open(path, encoding="utf-8") as secret:
        assert secret.read() == SECRET
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and os.stat(path).st_uid == 0


def planted(*names):
    """Return a command of the server's user that replaces each name in its directory with a link to the file at
    {victim}.
    """
    return ["sh", "-c", f"cd {{server}}; for name in {' '.join(names)}; do rm -rf $name; ln -s {{victim}} $name; done"]


def hostile(victim, **changed):
    """Return the server as another user, with {victim} filled in."""
    made = dict(SERVER, user=OTHER, **changed)
    filled = ([[one.replace("{victim}", victim) for one in argv] for argv in made[key]] for key in ("prepare", "fill"))
    return {**made, **dict(zip(("prepare", "fill"), filled))}


@needs_root
@pytest.mark.parametrize(
    "changed",
    [
        {"prepare": [planted("log", "log.new", ".log"), ["sh", "-c", "exit 1"]]},
        {"fill": [planted("log", "pid", "up"), ["sh", "-c", "echo written by root; exit 1"]]},
    ],
)
def test_root_does_not_follow_links_of_the_servers_user(changed, files, victim):
    with pytest.raises(declaration.WorkloadError, match="sh failed with exit status 1") as raised:
        started(hostile(victim, **changed), files)
    assert SECRET.strip() not in str(raised.value)
    assert gone(files.file("own.server"))


@needs_root
def test_directories_without_permissions_are_removed(files, victim):
    closed = "cd {server}; mkdir -p a/b/c; touch a/b/c/d; chmod 0 a/b/c a/b a"
    server = started(hostile(victim, fill=[["sh", "-c", closed]]), files)
    assert server.stop() is None and gone(server.folder)


@needs_root
def test_only_files_that_the_servers_user_can_remove_are_removed_and_the_rest_is_reported(files, victim):
    """The file of another user stays, because the directory is removed with the rights of the server's user."""
    server = started(hostile(victim), files)
    kept = os.path.join(server.folder, "kept")
    os.mkdir(kept, 0o755)
    with open(os.path.join(kept, "of-root"), "w", encoding="utf-8") as other:
        other.write("x")
    assert f"not all of {server.folder} could be removed" == server.stop()
    assert [names for _folder, _folders, names in os.walk(files.path) if "of-root" in names] == [["of-root"]]


@pytest.fixture(name="sampled")
def sample_of_a_client(files):
    """Return a function that takes one sample of a command that is the client of a server."""

    def sample(line, source):
        metric = {"name": "rate", "unit": "1/s", "better": "higher", "aggregate": "sum", **source}
        own = {"name": "own", "title": "own", "argv": ["sh", "-c", line], "metrics": [metric], "multithreaded": True}
        workload = {**declaration.PLAIN, **own, "server": dict(SERVER, user=OTHER)}
        ready = prepared.PreparedWorkload(workload, files, {}, 0.05, 1)
        try:
            return ready.sample([[]], None)
        finally:
            ready.close()

    return sample


@needs_root
def test_a_client_runs_as_the_servers_user_and_cannot_gain_privileges(sampled):
    """A hostile server could ask a client of root for files of root, or replace its socket by a link to another one."""
    line = "id -u; id -G; grep -e NoNewPrivs -e CapEff /proc/self/status; echo rate 1 > left; cat left"
    output = sampled(line, {"pattern": "rate ([0-9.]+)"})["workers"][0]["output"].split()
    other = pwd.getpwnam(OTHER)
    assert output == [str(other.pw_uid), str(other.pw_gid), "CapEff:", "0" * 16, "NoNewPrivs:", "1", "rate", "1"]


@needs_root
@pytest.mark.parametrize("plant", ["ln -s {victim} latency.1", "mkfifo latency.1", "mkdir latency.1"])
def test_root_reads_no_links_or_special_files_of_a_client(plant, sampled, victim):
    with open(victim, "a", encoding="utf-8") as secret:
        secret.write("0 0 5 \n")
    source = {"file": "latency.*", "pattern": TRANSACTION, "quantile": 0.5}
    with pytest.raises(declaration.WorkloadError, match="sh printed no rate"):
        sampled(plant.replace("{victim}", victim), source)
    with open(victim, "w", encoding="utf-8") as secret:
        secret.write(SECRET)
