# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`oltp` with a real PostgreSQL while somebody else rules the user postgres: whatever is planted,
no file of root's changes, and none comes home.
"""

from __future__ import annotations

import pytest
from guest import RUNS, log_of, result, said, start, state, wait_for

SECRET = "what only root may read"
PROGRAM = "/usr/local/bin/hostile-postgres"
# Runs as postgres and knows the run's name. Each round it goes through all it can reach of the run, and puts something
# in the place of each name: a link to a file or a folder of root's, a hard link where the kernel lets it, a FIFO, a
# folder. With "careful" it leaves to PostgreSQL what PostgreSQL has made itself.
HOSTILE = r"""
import itertools, os, sys, time
runs, run, careful = sys.argv[1], sys.argv[2], sys.argv[3] == "careful"
victims = ["/root/victim", "/etc/shadow", "/root", "/etc", "/usr/local/victim", "/dev/zero"]
names = ["log", "log.new", ".log", "log.1", "latency.1", "latency.1.1", "scratch", "header.json", "samples.jsonl",
    "lock", "data/log", "pid", "x"]
ways = itertools.cycle(["link", "hard", "fifo", "folder"])
victim = itertools.cycle(victims)
planted = set()
def own(path):
    return path in planted or not os.path.lexists(path)
def plant(path):
    if careful and not own(path):
        return
    try:
        if path in planted and os.path.lexists(path):
            os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        elif os.path.lexists(path):
            os.rename(path, path + ".away")
        way = next(ways)
        if way == "link":
            os.symlink(next(victim), path)
        elif way == "hard":
            os.link(next(victim), path)
        elif way == "fifo":
            os.mkfifo(path)
        else:
            os.mkdir(path)
        planted.add(path)
        os.write(1, (way + " " + path + "\n").encode())
    except OSError:
        pass
while True:
    for folder in ("oltp.server", "scratch"):
        top = os.path.join(runs, run, folder)
        found = list(names)
        if not careful:
            for place, folders, files in os.walk(top):
                found += [os.path.relpath(os.path.join(place, one), top) for one in folders + files]
        for name in found:
            plant(os.path.join(top, name))
    time.sleep(0.2)
"""
# All files of root's that an evaluation has no business with: name, size, owner, mode, links, and when content and
# inode changed.
SNAPSHOT = (
    r"find /etc /boot /usr /opt /root /dev/zero -xdev -not -path '/root/.ansible*' -not -path '*/__pycache__*' -not"
    r" -name '*.pyc' -user root "
    r"-not -type d -printf '%p %s %u %m %n %T@ %C@\n' | sort"
)
PLAN = {
    "smt_eval_workloads": ["oltp"],
    "smt_eval_placements": ["all_threads"],
    "smt_eval_sample_seconds": 0.1,
    "smt_eval_margin": 0.0001,
}


@pytest.fixture(name="guest", scope="module")
def prepared(host):
    for victim in ("/root/victim", "/usr/local/victim"):
        host.check_output("echo %s > %s && chmod 600 %s", SECRET, victim, victim)
    host.check_output(f"cat > {PROGRAM} <<'EOF'\n#!/usr/bin/python3\n{HOSTILE}\nEOF")
    host.check_output("chmod 755 %s && umask 022", PROGRAM)
    host.check_output(
        "sysctl -w fs.protected_hardlinks=0 fs.protected_symlinks=0 fs.protected_fifos=0 fs.protected_regular=0"
    )
    yield host
    host.check_output(
        "sysctl -w fs.protected_hardlinks=1 fs.protected_symlinks=1 fs.protected_fifos=1 fs.protected_regular=2"
    )


@pytest.mark.parametrize("manner", ["careful", "rampant"])
def test_no_file_of_roots_changes(guest, manner):
    """Careful, so that PostgreSQL serves and samples are taken beside the links; and rampant,
    so that nothing stays where it was.
    """
    before, smt = guest.check_output(SNAPSHOT), state(guest)
    guest.check_output(
        "systemd-run --unit=hostile-%s --uid=postgres --property=StandardOutput=file:/run/planted-%s /usr/bin/python3"
        " %s %s %s %s",
        manner,
        manner,
        PROGRAM,
        RUNS,
        manner,
        manner,
    )
    controller = start(manner, smt_eval_budget=120, **PLAN)
    try:
        wait_for(
            lambda: guest.run("grep -c . /run/planted-%s", manner).stdout.strip() not in ("", "0"), controller, manner
        )
        code = controller.wait()
    finally:
        guest.run("systemctl stop hostile-%s", manner)
    planted = guest.check_output("cat /run/planted-%s", manner)
    assert {line.split()[0] for line in planted.splitlines()} == {"link", "hard", "fifo", "folder"}, planted[:2000]
    found = result(manner)
    if manner == "careful":
        assert code == 0, said(manner)
        assert [sample for sample in found["samples"] if sample["ok"]], found["skipped"]
    else:
        # What was measured, if anything, was measured with a server that others spoilt; that is said, and everything
        # else is as it was.
        assert found["skipped"] or all(not sample["ok"] for sample in found["samples"]), said(manner)
    assert found["restored"]["ok"] and state(guest) == smt
    # A hard link that was planted and has gone again changes the inode's time, and nothing else.
    assert [line.rsplit(" ", 1)[0] for line in guest.check_output(SNAPSHOT).splitlines()] == [
        line.rsplit(" ", 1)[0] for line in before.splitlines()
    ]
    for home in (log_of(manner).read_text(encoding="utf-8"), str(found)):
        assert SECRET not in home and "root:" not in home
    assert guest.run("pgrep -u postgres -f %s/%s", RUNS, manner).stdout == ""


def test_the_next_evaluation_works_and_sweeps_up(guest):
    assert start("after", smt_eval_workloads=["gzip"], smt_eval_placements=["cores"], smt_eval_budget=20).wait() == 0, (
        said("after")
    )
    assert guest.run("ls -A %s", RUNS).stdout == ""
