# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a real nginx makes of CPUs that go offline: the C library reads their list from a file, which stands for another
one here, in a mount namespace of the test's own.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PLAY = """
import json, os, pathlib, shutil, signal, subprocess, sys, time

folder = pathlib.Path(sys.argv[1])
online = folder / "online"
online.write_text("0-3\\n")
subprocess.run(["mount", "--bind", online, "/sys/devices/system/cpu/online"], check=True)
pid = folder / "pid"
(folder / "nginx.conf").write_text(
    f"worker_processes auto; pid {pid}; error_log {folder}/log; events {{ }}\\n"
    f"http {{ access_log off; server {{ listen unix:{folder}/socket; }} }}\\n"
)
# To be replaced, it has to have been started by its path.
nginx = [shutil.which("nginx"), "-c", str(folder / "nginx.conf")]

def workers(master, without=()):
    # A master that was replaced for another one is a child of the old one.
    children = pathlib.Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return {int(child) for child in children} - set(without)

def settled(master, old=(), without=()):
    seen = None
    for _attempt in range(200):
        time.sleep(0.1)
        found = workers(master, without)
        if found and found == seen and not found & set(old):
            return found
        seen = found
    raise SystemExit(f"{found} after {old}: {(folder / 'log').read_text()}")

def master():
    return int(pid.read_text())

def end(process):
    os.kill(process, signal.SIGTERM)
    while pathlib.Path(f"/proc/{process}/exe").exists():
        time.sleep(0.05)

found = {}
subprocess.run(nginx, check=True)
first = settled(master())
found["start"] = len(first)
online.write_text("0,2\\n")
subprocess.run([*nginx, "-s", "reload"], check=True, stderr=subprocess.DEVNULL)
found["reload"] = len(settled(master(), first))
old = master()
os.kill(old, signal.SIGUSR2)
for _attempt in range(200):
    time.sleep(0.1)
    if pid.exists() and pid.read_text().strip() and master() != old:
        break
found["replaced"] = len(settled(master()))
new = master()
end(old)
end(new)
subprocess.run(nginx, check=True)
found["restart"] = len(settled(master()))
end(master())
print(json.dumps(found))
"""


def test_a_reload_keeps_the_number_of_workers_and_a_new_master_counts(tmp_path):
    if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("a mount namespace of one's own is not permitted here")
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", PLAY, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout) == {"start": 4, "reload": 4, "replaced": 2, "restart": 2}
