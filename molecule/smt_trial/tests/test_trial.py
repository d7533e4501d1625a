# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trials on guests with a real Prometheus: to their end, and ended by a guardrail, a lost metrics server, Ctrl-C,
a killed controller and a restart.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
import testinfra
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "tests/unit/support"))
import prometheus_server
from interruption import interrupt

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
INVENTORY = EPHEMERAL / "inventory"
TRIALS = EPHEMERAL / "trials"
GUESTS = ("smt-trial-1", "smt-trial-2")
ALL_CPUS, PRIMARIES = "0-3", "0,2"
TOKEN = "s3cret-token"
PLAIN = dict(os.environ, ANSIBLE_FORCE_COLOR="false")
CHECK = 3
PERIOD = 60


class Service:
    """A service on each guest, seen from here: it does half of its work with half of its CPUs."""

    def __init__(self):
        self.source = random.Random(1)
        self.errors = dict.fromkeys(GUESTS, 0.0)
        self.online = dict.fromkeys(GUESTS, 4)
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self.look, args=(name,), daemon=True) for name in GUESTS]

    def look(self, name):
        """Read how many CPUs a guest has, again and again, by one connection."""
        with ssh(name, "while :; do cat /sys/devices/system/cpu/online; sleep 1; done") as process:
            for line in process.stdout:
                if self.ended.is_set():
                    return
                self.online[name] = 4 if line.strip() == ALL_CPUS else 2

    def answer(self, handler):
        lines = []
        for name in GUESTS:
            lines.append(
                f'service_rate{{guest="{name}"}} {100 * self.online[name] * self.source.uniform(0.95, 1.05):.3f}'
            )
            lines.append(f'service_errors{{guest="{name}"}} {self.errors[name]}')
        prometheus_server.send(handler, "\n".join(lines) + "\n", 200, prometheus_server.EXPOSITION)


@contextlib.contextmanager
def ssh(name, command):
    """Run a command on a guest until the block ends."""
    about = yaml.safe_load((INVENTORY / f"{name}.yml").read_text())["lab"]["hosts"][name]
    words = ["ssh", "-p", str(about["ansible_port"]), "-i", about["ansible_ssh_private_key_file"]]
    shell = (
        f"exec {' '.join(words)} {about['ansible_ssh_common_args']} {about['ansible_user']}@{about['ansible_host']}"
        f" '{command}'"
    )
    process = subprocess.Popen(["sh", "-c", shell], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(name="service", scope="module")
def a_service():
    # The directory outlives a call of the scenario.
    shutil.rmtree(TRIALS, ignore_errors=True)
    service = Service()
    for thread in service.threads:
        thread.start()
    yield service
    service.ended.set()


@pytest.fixture(name="url")
def a_metrics_server(service, tmp_path):
    """A Prometheus that has scraped the service."""
    with (
        prometheus_server.serving(service.answer) as address,
        prometheus_server.prometheus(tmp_path, [address.removeprefix("http://")]) as url,
    ):
        time.sleep(4 * prometheus_server.SCRAPE_SECONDS)
        yield url


def query(metric):
    return f'{metric}{{guest="{{{{ inventory_hostname }}}}"}}'


def command(run, url, **changed):
    variables = {
        "smt_trial_run": run,
        "smt_trial_dest": str(TRIALS),
        "smt_trial_metrics_url": url,
        "smt_trial_metrics_token": TOKEN,
        "smt_trial_metrics": [
            {"name": "rate", "query": query("service_rate"), "unit": "1/s", "better": "higher", "primary": True}
        ],
        "smt_trial_guardrails": [{"name": "errors", "query": query("service_errors"), "above": 0.5}],
        "smt_trial_period": PERIOD,
        "smt_trial_settle": 5,
        "smt_trial_check": CHECK,
        "smt_trial_periods": 12,
        "smt_trial_most_switched": 2,
        "smt_trial_affinity_conflicts": "warn",
        **changed,
    }
    # Written, not templated: a query has braces of its own.
    (EPHEMERAL / f"{run}.yml").write_text(json.dumps(variables))
    return [
        "ansible-playbook",
        "-i",
        str(INVENTORY),
        "threadwise.smt.smt_trial",
        "-e",
        f"@{EPHEMERAL / f'{run}.yml'}",
        "-v",
    ]


@contextlib.contextmanager
def running(run, url, **changed):
    """A trial in a session of its own, which is ended with the block."""
    with (EPHEMERAL / f"{run}.log").open("wb") as log:
        process = subprocess.Popen(
            command(run, url, **changed),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=EPHEMERAL,
            env=PLAIN,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            # Ansible's workers have a session of their own. One that was about to switch its host does so, sees that it
            # is alone, and goes back.
            workers = ["pgrep", "-f", str(EPHEMERAL / f"{run}.yml")]
            wait_until(lambda: subprocess.run(workers, check=False, stdout=subprocess.DEVNULL).returncode != 0)


def said(run):
    return (EPHEMERAL / f"{run}.log").read_text()


def guest(name):
    return testinfra.get_host(f"ansible://{name}?ansible_inventory={INVENTORY}")


def online(name):
    return guest(name).check_output("cat /sys/devices/system/cpu/online")


def lines(run, name, kind):
    path = TRIALS / run / "hosts" / f"{name}.{kind}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(what, seconds=300):
    """Wait for something to be true; return how long that took."""
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < seconds, "it never came"
        time.sleep(0.5)
    return time.monotonic() - begun


def switched(service):
    """The guest that has SMT off by now, None while none has."""
    return next((name for name in GUESTS if service.online[name] == 2), None)


@pytest.fixture(autouse=True)
def as_found():
    """Each trial ends with all CPUs of each guest, and leaves nothing that waits.

    One that is killed at the end of its test takes a timer's time for that.
    """
    yield
    wait_until(
        lambda: all(
            guest(name).run("systemctl is-active threadwise-smt-rollback.service").stdout.strip() != "active"
            for name in GUESTS
        ),
        180,
    )
    wait_until(lambda: [online(name) for name in GUESTS] == [ALL_CPUS] * 2, 60)
    # A record of an earlier boot rolls nothing back.
    pending = 'grep -q "$(cat /proc/sys/kernel/random/boot_id)" /var/lib/threadwise-smt/timer-rollback.json'
    wait_until(lambda: all(guest(name).run(pending).rc != 0 for name in GUESTS), 60)


def test_check_mode_shows_the_schedule_and_touches_nothing(url):
    done = subprocess.run(
        [*command("shown", url), "--check"], capture_output=True, text=True, check=False, cwd=EPHEMERAL, env=PLAIN
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A switchback trial of SMT on and SMT off on 2 hosts, judged by rate (higher is better)." in done.stdout
    assert "smt-trial-1: SMT o" in done.stdout and "errors above 0.5" in done.stdout
    assert not (TRIALS / "shown").exists()


def test_an_effect_is_found_and_the_page_says_so(service, url):
    with running("whole", url) as process:
        wait_until((TRIALS / "whole" / "trial.json").exists)
        # Written down before anything was switched.
        assert switched(service) is None
        assert process.wait() == 0, said("whole")
    results = json.loads((TRIALS / "whole" / "results.json").read_text())
    (one,) = results["comparisons"]
    assert one["verdict"] == "loss" and one["ci_low"] < 0.5 < one["ci_high"], one
    assert results["answer"][0].startswith("With SMT off instead of SMT on, rate changes by ")
    # The page ties numbers to their units by no-break spaces.
    page = (TRIALS / "whole" / "index.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert results["answer"][0] in page and "<svg" in page
    for name in GUESTS:
        *whole, last = lines("whole", name, "periods")
        # A guest on a busy machine may take most of a period to switch.
        assert all(
            (
                record["metrics"]["rate"]["points"] > 3
                if record["complete"]
                else "the switch took so long" in record["reason"]
            )
            for record in whole
        )
        # A host that ended its period first has begun the next one when the other one's last numbers decide.
        assert last["complete"] or last["reason"].startswith("each arm is decided")
        (end,) = lines("whole", name, "ended")
        assert end["restored"] and end["before"] == end["after"] == ALL_CPUS
    files = [path for path in (TRIALS / "whole").rglob("*") if path.is_file()]
    assert not any(TOKEN in path.read_text(errors="replace") for path in files) and TOKEN not in said("whole")


def test_a_breached_guardrail_sends_its_host_back_and_the_other_goes_on(service, url):
    with running("breached", url):
        wait_until(lambda: switched(service) is not None)
        name = switched(service)
        other = next(one for one in GUESTS if one != name)
        service.errors[name] = 1.0
        try:
            wait_until(lambda: lines("breached", name, "ended") != [])
        finally:
            service.errors[name] = 0.0
        assert online(name) == ALL_CPUS
        (end,) = lines("breached", name, "ended")
        assert end["reason"] == "the guardrail errors was breached: above 0.5 (1)"
        last = lines("breached", name, "periods")[-1]
        assert not last["complete"] and last["reason"] == end["reason"]
        # The other one follows its schedule.
        count = len(lines("breached", other, "periods"))
        wait_until(lambda: len(lines("breached", other, "periods")) > count)
        assert lines("breached", other, "ended") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_hosts_go_back_without_their_controller(service, url, number):
    run = f"killed-{int(number)}"
    with running(run, url) as process:
        wait_until(lambda: switched(service) is not None and lines(run, GUESTS[0], "periods") != [])
        interrupt(process, number)
        # A host is refused while its rollback is pending.
        if number == signal.SIGKILL:
            again = subprocess.run(
                [*command(f"{run}-again", url), "--check"],
                capture_output=True,
                text=True,
                check=False,
                cwd=EPHEMERAL,
                env=PLAIN,
            )
            assert "a trial that lost its controller has not ended" in again.stdout, again.stdout
        wait_until(lambda: switched(service) is None, 180)
        assert len(lines(run, GUESTS[0], "periods")) >= 1
    # What was measured makes a page all the same.
    report = ["ansible", "localhost", "-m", "threadwise.smt.smt_trial_report", "-a", f"trial_dir={TRIALS / run}"]
    done = subprocess.run(report, check=False, cwd=EPHEMERAL, env=PLAIN, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (TRIALS / run / "index.html").exists()


def test_a_lost_metrics_server_sends_all_hosts_back(service, tmp_path):
    with prometheus_server.serving(service.answer) as address:
        with prometheus_server.prometheus(tmp_path, [address.removeprefix("http://")]) as url:
            time.sleep(4 * prometheus_server.SCRAPE_SECONDS)
            trial = running("lost", url)
            process = trial.__enter__()
            wait_until(lambda: switched(service) is not None)
        process.wait()
        trial.__exit__(None, None, None)
    for name in GUESTS:
        (end,) = lines("lost", name, "ended")
        assert end["restored"] and "nothing was known of" in end["reason"] and "cannot be reached" in end["reason"], end


def test_a_host_that_restarts_ends_its_part_and_the_other_goes_on(service, url):
    with running("restarted", url):
        wait_until(lambda: switched(service) is not None)
        name = switched(service)
        other = next(one for one in GUESTS if one != name)
        guest(name).run("systemctl reboot --force")
        wait_until(lambda: lines("restarted", name, "ended") != [], 600)
        assert lines("restarted", other, "ended") == []
    wait_until(lambda: guest(name).run("true").rc == 0, 600)
