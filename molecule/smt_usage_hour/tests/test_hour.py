# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An hour of three hosts with Debian's node_exporter and Prometheus, and examples/prometheus-rules.yml as it is: at any
time its series say what the host's own counters say, by the host's own arithmetic.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import types
import urllib.parse
import urllib.request

import calls
import prometheus_server
import pytest
import testinfra
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import cores, counters, room
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span

PROJECT = pathlib.Path(os.environ["MOLECULE_PROJECT_DIRECTORY"])
EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
DUTY = PROJECT / "molecule" / "smt_exposure" / "files" / "duty.py"
TEXTFILE = "/var/lib/prometheus/node-exporter/threadwise_smt_usage.prom"
SECONDS = float(os.environ.get("HOUR_SECONDS", "3600"))
# The rules look back over five minutes.
STEP = 300.0
PERIOD = 2.0
# CPU -> seconds of each period in which it is busy, and when they begin: little, so that other work goes on.
DUTIES = {
    "smt-hour-one": {0: (0.3, 0.0), 1: (0.3, 0.15)},
    "smt-hour-two": {0: (0.3, 0.0), 1: (0.1, 1.0), 2: (0.3, 1.0)},
    "smt-hour-four": {0: (0.2, 0.0), 1: (0.2, 0.0), 2: (0.2, 0.1), 3: (0.2, 1.5)},
}
THREADS = {"smt-hour-one": ((0, 1),), "smt-hour-two": ((0, 2), (1, 3)), "smt-hour-four": ((0, 1, 2, 3),)}
# A scrape is every 15 s, so a window of 300 s has up to a twentieth of other time at its ends.
NEAR = 0.03
CONFIG = {
    "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
    "rule_files": [str(PROJECT / "examples" / "prometheus-rules.yml")],
}


def reached(guest):
    return testinfra.get_host(f"ansible://{guest}?ansible_inventory={calls.INVENTORY}")


def prepare():
    """Install node_exporter, plant the load, and let each host look by itself."""
    play = [
        {
            "hosts": "lab",
            "gather_facts": False,
            "tasks": [
                {
                    "ansible.builtin.include_role": {"name": "threadwise.smt.smt_usage"},
                    "vars": {"smt_usage_seconds": 60, "smt_usage_windows": 40, "smt_usage_spread": 0},
                },
            ],
        }
    ]
    (EPHEMERAL / "role.yml").write_text(json.dumps(play))
    for guest, planted in DUTIES.items():
        calls.output(sys.executable, str(calls.LAB), "install", guest, "prometheus-node-exporter")
        host = reached(guest)
        host.ansible("ansible.builtin.copy", f"src={DUTY} dest=/root/duty.py mode=0644", check=False)
        plant(host, planted)
    done = calls.play(EPHEMERAL / "role.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    for guest in DUTIES:
        host = reached(guest)
        while "threadwise_smt_shared_ratio" not in host.run(f"cat {TEXTFILE}").stdout:
            assert host.run("systemctl is-failed threadwise-smt-usage.service").rc
            time.sleep(5)


def plant(host, planted):
    for cpu, (busy, offset) in planted.items():
        host.check_output(
            f"systemd-run --quiet --unit=duty-{cpu} python3 /root/duty.py {cpu} {PERIOD} {busy} {offset} /dev/null"
        )


@contextlib.contextmanager
def serving(directory, targets):
    """Debian's Prometheus over the guests; yields its address."""
    port = prometheus_server.free_port()
    static = [{"targets": [address], "labels": {"instance": guest}} for guest, address in targets.items()]
    config = {**CONFIG, "scrape_configs": [{"job_name": "node", "static_configs": static}]}
    (directory / "prometheus.yml").write_text(json.dumps(config))
    program = prometheus_server.unpacked("prometheus", "usr/bin/prometheus")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            while not prometheus_server.is_ready(f"http://127.0.0.1:{port}"):
                assert process.poll() is None, (directory / "log").read_text()
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def values(url, name, guest, at, of="{}", **labels):
    """The value of a series of a guest at a moment, or what a function makes ``of`` it; None without one."""
    wanted = ",".join(f'{key}="{value}"' for key, value in {"instance": guest, **labels}.items())
    query = urllib.parse.urlencode({"query": of.format(f"{name}{{{wanted}}}"), "time": f"{at:.3f}"})
    with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=60) as answer:
        found = json.load(answer)["data"]["result"]
    assert len(found) <= 1, found
    return float(found[0]["value"][1]) if found else None


def counted(host):
    """The host's counters."""
    text = host.check_output("cat /proc/stat")
    return counters.read(types.SimpleNamespace(read=lambda path: text if path == "proc/stat" else None))


def forwarded(guest):
    said = calls.output(sys.executable, str(calls.LAB), "forward", guest, "9100")
    return re.search(r"[0-9]+", said.splitlines()[-1]).group()


def expected(guest, usage, url, at):
    """What the host's arithmetic makes of its own counters and of its last look."""
    busy, several = (
        Span(*(values(url, f"threadwise_smt_{name}_ratio", guest, at, limit=limit) for limit in ("low", "high")))
        for name in ("busy", "shared")
    )
    threads = sum(usage.values())
    sums = room.Sums(*(Span(*(end * threads for end in span)) for span in (busy, several)))
    return room.use([cores.bounded(core, usage) for core in THREADS[guest]], Span(1.0, 1.3), sums)


def test_an_hour(tmp_path):
    prepare()
    hosts = {guest: reached(guest) for guest in DUTIES}
    targets = {guest: f"127.0.0.1:{forwarded(guest)}" for guest in DUTIES}
    compared, worst = 0, {}
    events = dict.fromkeys(DUTIES, -STEP)
    with serving(tmp_path, targets) as url:
        begun = time.time()
        before = {guest: (time.time(), counted(host)) for guest, host in hosts.items()}
        turn = 0
        while time.time() - begun < SECONDS:
            turn += 1
            # From counters to counters as long as the rules look back: a load that is not the same all the time, as
            # beside a guest that boots, is compared over the same time.
            time.sleep(max(0.0, min(since for since, _counters in before.values()) + STEP - time.time()))
            for guest, host in hosts.items():
                at, now = time.time(), counted(host)
                since, earlier = before[guest]
                before[guest] = at, now
                # With a gap in its scrapes, or a counter that began anew, five minutes are not those of the counters. A
                # scrape that a busy machine does not answer in time is a gap, too.
                answered = values(url, "up", guest, at, "min_over_time({}[6m])")
                if abs(at - since - STEP) > 10 or at - events[guest] < STEP + 60 or not answered:
                    print(f"{at - begun:.0f} s {guest}: left out, {at - since:.0f} s")
                    continue
                use = expected(guest, counters.shares(earlier, now), url, at)
                for name, value in (
                    ("usage:rate5m", use.usage),
                    ("work_low:ratio", use.work.low),
                    ("work_high:ratio", use.work.high),
                ):
                    seen = values(url, f"threadwise_smt:{name}", guest, at)
                    assert seen is not None, (guest, name, at - begun)
                    compared += 1
                    worst[name] = max(worst.get(name, 0.0), abs(seen - value))
                    assert seen == pytest.approx(value, abs=NEAR), (guest, name, at - begun, use)
                print(
                    f"{at - begun:.0f} s {guest}: usage {use.usage:.3f}, work {use.work.low:.3f} to {use.work.high:.3f}"
                )
            if turn == 4:
                # A gap: no answer for two minutes.
                hosts["smt-hour-two"].check_output("systemctl stop prometheus-node-exporter")
                time.sleep(120)
                hosts["smt-hour-two"].check_output("systemctl start prometheus-node-exporter")
                events["smt-hour-two"] = time.time()
                before = {guest: (time.time(), counted(host)) for guest, host in hosts.items()}
            if turn == 6:
                # Its counters begin anew.
                hosts["smt-hour-one"].ansible("ansible.builtin.reboot", "reboot_timeout=1800", check=False)
                plant(hosts["smt-hour-one"], DUTIES["smt-hour-one"])
                events["smt-hour-one"] = time.time()
                before = {guest: (time.time(), counted(host)) for guest, host in hosts.items()}
        for guest in DUTIES:
            assert values(url, "ALERTS", guest, time.time(), alertname="SmtUsageHidesLoad") is None
    print(f"{compared} values over {SECONDS:.0f} s; the largest differences: {worst}")
    assert compared >= 0.6 * 3 * len(DUTIES) * (SECONDS // STEP)
