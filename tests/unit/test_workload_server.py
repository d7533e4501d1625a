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

from ansible_collections.threadwise.smt.plugins.module_utils import workload_server, workloads
from ansible_collections.threadwise.smt.plugins.module_utils.run_directory import RunDirectory

PATH = workloads.search_path(workloads.OLTP, os.environ["PATH"])
needs_postgresql = pytest.mark.skipif(workloads.missing(workloads.OLTP, os.environ["PATH"]) is not None, reason="PostgreSQL is not installed here")
ME = pwd.getpwuid(os.geteuid()).pw_name
# Serves until it is told to end; knows whether somebody told it.
SERVER = {
    "folders": [], "commands": ["sh"], "user": ME, "prepare": [["touch", "{server}/prepared"]], "ready": ["test", "-e", "{server}/up"],
    "serve": ["sh", "-c", "trap 'exit 0' INT; echo $$ > {server}/pid; touch {server}/up; while :; do sleep 0.05; done"],
    "fill": [["touch", "{server}/filled"]], "stop": "SIGINT", "kill": "SIGQUIT",
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
    return workload_server.Server(server, files.folder("own.server", *workload_server.owner(server)), PATH)


def processes_in(folder):
    """Pids of all processes whose command line names a folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as line:
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
    server = started(workloads.POSTGRESQL, files)
    try:
        with open(os.path.join(server.folder, "data", "postmaster.pid"), encoding="utf-8") as told:
            pid = int(told.readline())
        assert os.stat("/proc/%d" % pid).st_uid == workload_server.owner(workloads.POSTGRESQL)[0] != 0
        assert stat.S_IMODE(os.stat(server.folder).st_mode) == 0o700
        sockets = {os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)}
        inodes = {name[8:-1] for name in sockets if name.startswith("socket:")}
        for table in ("tcp", "tcp6"):
            with open("/proc/net/%s" % table, encoding="ascii") as listed:
                assert not inodes & {line.split()[9] for line in list(listed)[1:]}
        counted = subprocess.run(["psql", "-h", server.folder, "-U", "threadwise", "-Atc", "select count(*) from pgbench_accounts", "bench"],
                                 capture_output=True, text=True, check=True)
        assert counted.stdout == "400000\n"
    finally:
        server.stop()
    assert gone(server.folder)


@pytest.mark.parametrize(("changed", "trouble"), [
    ({"prepare": [["sh", "-c", "echo the disk is full >&2; exit 1"]]}, "sh failed with exit status 1: the disk is full"),
    ({"serve": ["sh", "-c", "echo no memory; exit 2"]}, "sh does not serve: no memory"),
    ({"fill": [["false"]]}, "false failed with exit status 1"),
    ({"serve": ["no-such-server"], "prepare": []}, "No such file or directory"),
])
def test_a_server_that_does_not_serve_says_why_and_leaves_nothing(changed, trouble, files):
    with pytest.raises(workloads.WorkloadError, match=trouble):
        started(dict(SERVER, **changed), files)
    assert gone(files.file("own.server"))


def test_a_server_that_never_gets_ready_is_given_up(files, monkeypatch):
    monkeypatch.setattr(workload_server, "READY_SECONDS", 0.5)
    with pytest.raises(workloads.WorkloadError, match="sh does not serve"):
        started(dict(SERVER, ready=["false"]), files)
    assert gone(files.file("own.server"))


def test_a_server_that_does_not_listen_is_killed(files, monkeypatch):
    monkeypatch.setattr(workload_server, "STOP_SECONDS", 0.3)
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
    with pytest.raises(workloads.WorkloadError, match="sh refuses to run as root, and this host has no user nobody-at-all"):
        workload_server.owner(dict(SERVER, user="nobody-at-all"))
