# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server of a workload's own: PostgreSQL for real where it is installed, and servers that do not serve."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import run_directory as run_directory_module
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.run_directory import RunDirectory
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import built_in, prepared, server as server_module

PATH = built_in.search_path(built_in.OLTP, os.environ["PATH"])
needs_postgresql = pytest.mark.skipif(built_in.missing(built_in.OLTP, os.environ["PATH"]) is not None, reason="PostgreSQL is not installed here")
ME = pwd.getpwuid(os.geteuid()).pw_name
# Serves until it is told to end; knows whether somebody told it.
SERVER = {
    "folders": [],
    "commands": ["sh"],
    "user": ME,
    "prepare": [["touch", "{server}/prepared"]],
    "ready": ["test", "-e", "{server}/up"],
    "serve": ["sh", "-c", "trap 'exit 0' INT; echo $$ > {server}/pid; touch {server}/up; while :; do sleep 0.05; done"],
    "fill": [["touch", "{server}/filled"]],
    "stop": "SIGINT",
    "kill": "SIGQUIT",
}


@pytest.fixture(name="files")
def run_directory():
    base = tempfile.mkdtemp(prefix="smt-")
    os.chmod(base, 0o755)
    made = RunDirectory(os.path.join(base, "state", "runs"), "r")
    made.create()
    yield made
    shutil.rmtree(base)


def started(server, files):
    return server_module.Server(server, files.folder("own.server", server_module.owner(server)), PATH)


def processes_in(folder):
    """Pids of all processes whose command line names a folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                if folder.encode() in line.read():
                    found.append(int(pid))
        except OSError:
            continue
    return found


def gone(folder, patience=600.0):
    until = time.monotonic() + patience
    while (processes_in(folder) or os.path.exists(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    return not processes_in(folder) and not os.path.exists(folder)


def test_a_server_is_prepared_filled_and_gone_when_it_is_stopped(files):
    server = started(SERVER, files)
    assert {"prepared", "up", "filled"} <= set(os.listdir(server.folder))
    server.stop()
    assert gone(server.folder)
    server.stop()


@needs_postgresql
def test_postgresql_serves_on_a_socket_only_as_somebody_else_than_root(files):
    server = started(built_in.POSTGRESQL, files)
    try:
        with open(os.path.join(server.folder, "data", "postmaster.pid"), encoding="utf-8") as told:
            pid = int(told.readline())
        assert os.stat(f"/proc/{pid}").st_uid == server_module.owner(built_in.POSTGRESQL)[0] != 0
        assert stat.S_IMODE(os.stat(server.folder).st_mode) == 0o700
        sockets = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        inodes = {name[8:-1] for name in sockets if name.startswith("socket:")}
        for table in ("tcp", "tcp6"):
            with open(f"/proc/net/{table}", encoding="ascii") as listed:
                assert not inodes & {line.split()[9] for line in list(listed)[1:]}
        counted = subprocess.run(
            ["psql", "-h", server.folder, "-U", "threadwise", "-Atc", "select count(*) from pgbench_accounts", "bench"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert counted.stdout == "400000\n"
    finally:
        server.stop()
    assert gone(server.folder)


@pytest.mark.parametrize(
    ("changed", "trouble"),
    [
        ({"prepare": [["sh", "-c", "echo the disk is full >&2; exit 1"]]}, "sh failed with exit status 1: the disk is full"),
        ({"serve": ["sh", "-c", "echo no memory; exit 2"]}, "sh does not serve: no memory"),
        ({"fill": [["false"]]}, "false failed with exit status 1"),
        ({"serve": ["no-such-server"], "prepare": []}, "No such file or directory"),
    ],
)
def test_a_server_that_does_not_serve_says_why_and_leaves_nothing(changed, trouble, files):
    with pytest.raises(built_in.WorkloadError, match=trouble):
        started(dict(SERVER, **changed), files)
    assert gone(files.file("own.server"))


def test_a_server_that_never_gets_ready_is_given_up(files, monkeypatch):
    monkeypatch.setattr(server_module, "READY_SECONDS", 0.5)
    with pytest.raises(built_in.WorkloadError, match="sh does not serve"):
        started(dict(SERVER, ready=["false"]), files)
    assert gone(files.file("own.server"))


def test_a_server_that_does_not_listen_is_killed(files, monkeypatch):
    monkeypatch.setattr(server_module, "STOP_SECONDS", 0.3)
    server = started(dict(SERVER, serve=["sh", "-c", "trap '' INT TERM; touch {server}/up; setsid sleep 300 & sleep 300"]), files)
    server.stop()
    assert gone(server.folder)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_a_plan_that_is_killed(number, files):
    plan = os.fork()
    if plan == 0:
        try:
            # Whoever ran before in this process may have left a handler, and no exception may lead this copy back into pytest.
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_a_missing_user_is_named():
    with pytest.raises(built_in.WorkloadError, match="sh refuses to run as root, and this host has no user nobody-at-all"):
        server_module.owner(dict(SERVER, user="nobody-at-all"))


# ---- a server whose user is hostile: whatever it puts into its folder, root does nothing there -------------------------------------------------------

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root works in the name of another user")
OTHER = "nobody"
SECRET = "what only root may read\n"


@pytest.fixture(name="victim")
def a_file_of_root(files):
    """A file that only root may read or write, where others can name it."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(files.path))), "victim")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as secret:
        secret.write(SECRET)
    yield path
    with open(path, encoding="utf-8") as secret:
        assert secret.read() == SECRET
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and os.stat(path).st_uid == 0


def planted(*names):
    """A command of the server's user that makes each name in its folder a link to the file at {victim}."""
    return ["sh", "-c", f"cd {{server}}; for name in {' '.join(names)}; do rm -rf $name; ln -s {{victim}} $name; done"]


def hostile(victim, **changed):
    """The server, of another user, and with {victim} filled in."""
    made = dict(SERVER, user=OTHER, **changed)
    return {key: [[word.replace("{victim}", victim) for word in argv] for argv in made[key]] if key in ("prepare", "fill") else made[key] for key in made}


@needs_root
@pytest.mark.parametrize(
    "changed",
    [
        {"prepare": [planted("log"), ["sh", "-c", "echo written by root; exit 1"]]},
        {"prepare": [planted("log", "log.new", ".log"), ["sh", "-c", "exit 1"]]},
        {"fill": [planted("log", "pid", "up"), ["sh", "-c", "echo written by root; exit 1"]]},
    ],
)
def test_links_of_a_servers_user_lead_root_nowhere(changed, files, victim):
    with pytest.raises(built_in.WorkloadError, match="sh failed with exit status 1") as told:
        started(hostile(victim, **changed), files)
    assert SECRET.strip() not in str(told.value)
    assert gone(files.file("own.server"))


@needs_root
def test_only_what_a_servers_user_may_remove_is_removed_and_the_rest_is_named(files, victim):
    """What another user of the host put there stays: root would have removed it in the server's name."""
    server = started(hostile(victim), files)
    kept = os.path.join(server.folder, "kept")
    os.mkdir(kept, 0o755)
    with open(os.path.join(kept, "of-root"), "w", encoding="utf-8") as other:
        other.write("x")
    assert f"not all of {server.folder} could be removed" == server.stop()
    assert [names for _folder, _folders, names in os.walk(files.path) if "of-root" in names] == [["of-root"]]
    # What is left goes with the run as far as its owner's rights go, and is in nobody's way.
    files.release()
    base = os.path.dirname(files.path)
    files.remove()
    assert run_directory_module.kept_runs(base) == [] and len(os.listdir(base)) == 1
    run_directory_module.sweep(base)
    assert [names for _folder, _folders, names in os.walk(base) if "of-root" in names] == [["of-root"]]


@needs_root
def test_folders_that_their_owner_closed_are_removed(files, victim):
    closed = "cd {server}; mkdir -p a/b/c; touch a/b/c/d; chmod 0 a/b/c a/b a"
    server = started(hostile(victim, fill=[["sh", "-c", closed]]), files)
    assert server.stop() is None
    assert gone(server.folder)


def client(line, **changed):
    """A workload whose command is the client of a server."""
    metric = dict({"name": "rate", "unit": "1/s", "better": "higher", "aggregate": "sum"}, **changed.pop("metric", {"pattern": "rate ([0-9.]+)"}))
    return dict(built_in.PLAIN, name="own", title="own", argv=["sh", "-c", line], metric=metric, server=dict(SERVER, user=OTHER), together=True, **changed)


@pytest.fixture(name="sampled")
def sample_of_a_client(files):
    """What one sample of a client came to."""

    def sample(workload):
        ready = prepared.Ready(workload, files, {}, 0.05, 1)
        try:
            return ready.sample([[]], None)
        finally:
            ready.close()

    return sample


@needs_root
def test_a_client_runs_as_the_servers_user_and_can_gain_nothing(sampled):
    """Of root a hostile server could ask for root's password files, or have its socket lead to another one's."""
    line = "id -u; id -G; grep -e NoNewPrivs -e CapEff /proc/self/status; echo rate 1 > left; cat left"
    said = sampled(client(line))["workers"][0]["output"].split()
    other = pwd.getpwnam(OTHER)
    assert said == [str(other.pw_uid), str(other.pw_gid), "CapEff:", "0" * 16, "NoNewPrivs:", "1", "rate", "1"]


@needs_root
@pytest.mark.parametrize("plant", ["ln -s {victim} latency.1", "mkfifo latency.1", "mkdir latency.1"])
def test_what_a_client_leaves_in_place_of_its_figures_is_not_read_by_root(plant, sampled, victim):
    with open(victim, "a", encoding="utf-8") as secret:
        secret.write("0 0 5 \n")
    workload = client(plant.replace("{victim}", victim), metric={"file": "latency.*", "pattern": built_in.PGBENCH_TRANSACTION, "quantile": 0.5})
    with pytest.raises(built_in.WorkloadError, match="sh printed no rate"):
        sampled(workload)
    with open(victim, "w", encoding="utf-8") as secret:
        secret.write(SECRET)


@needs_root
@needs_postgresql
def test_links_beside_a_real_postgresql_lead_root_nowhere(files, victim):
    """Whoever else runs as the server's user replaces each name in its folder, again and again, while a benchmark goes on."""
    server = dict(
        built_in.POSTGRESQL,
        fill=built_in.POSTGRESQL["fill"]
        + [
            [
                "sh",
                "-c",
                "setsid sh -c '{}' > /dev/null 2>&1 &".format(
                    f"cd {{server}}; while :; do for name in log data/logfile latency.1 scratch .lock; do ln -snf {victim} $name; done; sleep 0.05; done"
                ),
            ]
        ],
    )
    ready = prepared.Ready(dict(built_in.OLTP, server=server), files, {}, 0.05, 1)
    try:
        ready.calibrate([[]])
        assert ready.sample([[]], 1)["metrics"]["throughput"]["value"] > 0
        assert os.path.islink(os.path.join(files.file("oltp.server"), "log"))
    finally:
        ready.close()
    assert gone(files.file("oltp.server"))
