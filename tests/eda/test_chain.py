# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chain of examples/eda: the metrics of a check, Prometheus, Alertmanager."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

import prometheus_server
import pytest
import yaml
from containers import UNSHARE
from simulated_fleet import ROOT, Fleet

EXAMPLE = ROOT / "examples" / "eda"
RULEBOOK = ROOT / ".cache" / "rulebook" / "bin"
TOKEN = "a word that only Alertmanager and ansible-rulebook know".replace(" ", "-")
HOSTS = ("h1", "h2", "h3", "h4")
POLICY = {"smt_policy": "disabled", "smt_policy_scope": "runtime"}


def wait(condition, what, log=None):
    for _turn in range(1800):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"{what}: not in three minutes; {log.read_text()[-6000:] if log else ''}")


@contextlib.contextmanager
def started(directory, command, **environment):
    """Run a program. Yields the file of what it says."""
    log = directory / "log"
    with log.open("wb") as output:
        how = {"cwd": directory, "env": {**os.environ, **environment}, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(command, stdout=output, stderr=output, **how)
        try:
            yield log
        finally:
            process.terminate()
            process.wait()


class Chain:
    """The fleet, and where alerts go."""

    def __init__(self, place):
        self.metrics = place / "smt_compliance.prom"
        self.fleet = Fleet(place / "fleet", {name: {} for name in HOSTS})
        # ansible-rulebook 681 and 817: variables beside an inventory that it does not hand on.
        (place / "inventory" / "group_vars").mkdir(parents=True)
        shutil.copy(place / "fleet" / "inventory.yml", place / "inventory" / "hosts.yml")
        variables = {**POLICY, "smt_compliance_metrics": str(self.metrics)}
        (place / "inventory" / "group_vars" / "all.yml").write_text(yaml.safe_dump(variables))
        self.receiver = f"http://127.0.0.1:{prometheus_server.free_port()}/smt"
        self.log = None

    def drift(self, *hosts):
        """Only these are not as their policy wants them."""
        for host in HOSTS:
            self.fleet.set(host, smt=host in hosts)
        self.fleet.changes()

    def drifted(self):
        return [host for host, smt in self.fleet.get("smt").items() if smt]

    def wait_for(self, *hosts):
        """Wait until only these are left that are not as their policy wants them."""
        wait(lambda: self.drifted() == list(hosts), f"{self.drifted()} instead of {hosts}", self.log)

    def send(self, *alerts, token=TOKEN):
        """Send alerts as Alertmanager does. Returns the status of the answer."""
        body = json.dumps({"version": "4", "status": "firing", "alerts": alerts}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        request = urllib.request.Request(self.receiver, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code


def alert(host, **more):
    return {"status": "firing", "labels": {"alertname": "SmtPolicyDrifted", "host": host}, **more}


@pytest.fixture(name="chain")
def _chain(tmp_path):
    """Run ansible-rulebook with the example, and wait until it listens."""
    (tmp_path / "fleet").mkdir()
    chain = Chain(tmp_path)
    shutil.copytree(EXAMPLE, tmp_path / "eda")
    command = [RULEBOOK / "ansible-rulebook", "--rulebook", "rulebook.yml", "-i", "../inventory"]
    with started(
        tmp_path / "eda",
        [*command, "--env-vars", "SMT_EDA_TOKEN,SMT_EDA_PORT", "-v"],
        SMT_EDA_TOKEN=TOKEN,
        SMT_EDA_PORT=chain.receiver.split(":")[2].removesuffix("/smt"),
        ANSIBLE_COLLECTIONS_PATH=str(tmp_path / "fleet" / "collections"),
        PATH=f"{pathlib.Path(sys.executable).parent}:{RULEBOOK}:{os.environ['PATH']}",
    ) as chain.log:

        def listens():
            with contextlib.suppress(OSError):
                return chain.send() in (200, 500)
            return False

        wait(listens, "ansible-rulebook listens", chain.log)
        yield chain


@contextlib.contextmanager
def alertmanager(place, receiver):
    """Run it with the file of the example, which does not make a test wait. Yields its address."""
    config = yaml.safe_load((EXAMPLE / "alertmanager.yml").read_text())
    (route,) = config["route"]["routes"]
    route.update(group_wait="1s", group_interval="1s")
    (webhook,) = config["receivers"][1]["webhook_configs"]
    (place / "token").write_text(TOKEN)
    webhook.update(url=receiver, http_config={"authorization": {"credentials_file": str(place / "token")}})
    (place / "alertmanager.yml").write_text(yaml.safe_dump(config))
    listens = f"127.0.0.1:{prometheus_server.free_port()}"
    program = prometheus_server.unpacked("prometheus-alertmanager", "usr/bin/prometheus-alertmanager")
    # Debian's reads a template below /usr/share, of a package that is not installed here.
    shares = ["sh", "-c", 'mount --bind "$1" /usr/share && shift && exec "$@"', "sh"]
    given = {"config.file": "alertmanager.yml", "storage.path": place / "data", "web.listen-address": listens}
    words = [f"--{name}={value}" for name, value in {**given, "cluster.listen-address": ""}.items()]
    command = [*UNSHARE, *shares, str(pathlib.Path(program).parents[1] / "share"), program, *words]
    with started(place, command):
        yield listens


def test_a_host_that_drifts_is_mended_and_its_alert_ends(chain, tmp_path):
    """The whole loop, from the metrics of a check to those after the rollout."""
    chain.drift("h3")
    code, seen = chain.fleet.play("smt_compliance", **POLICY, smt_compliance_metrics=str(chain.metrics))
    assert code == 2, seen
    groups = yaml.safe_load((ROOT / "examples" / "prometheus-rules.yml").read_text())["groups"][:1]
    (rule,) = (one for one in groups[0]["rules"] if one["alert"] == "SmtPolicyDrifted")
    groups = [{"name": "drift", "interval": "1s", "rules": [{**rule, "for": "0s"}]}]
    for name in ("alertmanager", "prometheus"):
        (tmp_path / name).mkdir()

    def answer(handler):
        prometheus_server.send(handler, chain.metrics.read_text(), 200, prometheus_server.EXPOSITION)

    with (
        alertmanager(tmp_path / "alertmanager", chain.receiver) as manager,
        prometheus_server.serving(answer) as exporter,
        prometheus_server.prometheus(
            tmp_path / "prometheus", [exporter.removeprefix("http://")], rules=groups, alertmanagers=[manager]
        ) as url,
    ):
        wait(lambda: prometheus_server.number(url, "count(ALERTS)") == 1, "an alert")
        chain.wait_for()
        wait(lambda: prometheus_server.number(url, "count(ALERTS)") is None, "the end of the alert", chain.log)
        assert prometheus_server.number(url, "sum(threadwise_smt_compliant)") == len(HOSTS)
    assert list(chain.fleet.changes()) == ["h3"]


def test_a_host_is_mended_once_in_a_while_and_others_are_not_kept_waiting(chain):
    chain.drift("h1", "h2")
    assert chain.send(alert("h1"), alert("h1", annotations={"summary": "another aspect"})) == 200
    chain.wait_for("h2")
    # It drifts again at once: who does that is not fought, and h2 comes after it in one queue.
    chain.fleet.set("h1", smt=True)
    chain.send(alert("h1"))
    chain.send(alert("h2"))
    chain.wait_for("h1")


def test_what_somebody_writes_into_an_alert_chooses_no_hosts_and_runs_nothing(chain, tmp_path):
    chain.drift(*HOSTS)
    canary = tmp_path / "canary"
    template = "{{ lookup('pipe', 'touch " + str(canary) + "') }}"
    names = ["all", "*", "h1,h2", "h1:h2", "h*", "~h.*", "!h1", "h1:&all", "all[0]", f"@{tmp_path}/limit", "-h1"]
    names += ["", "h1\n", "h1\nh2", "nobody", template, ["h1", "h2"], {"a": "h1"}, None, 7]
    (tmp_path / "limit").write_text("h1\n")
    for name in names:
        # Some make a filter fail, which is an error of the one message.
        assert chain.send(alert(name)) in (200, 500), name
    chosen = {"hosts": ["h1", "h2"]}
    assert chain.send(alert("nobody", meta=chosen), {"status": "firing", "labels": {}, "meta": chosen}) in (200, 500)
    for token in ("", "other", TOKEN.upper()):
        assert chain.send(alert("h1"), token=token) == 401
    # Whoever may send alerts may name a host: all that it gets is its policy.
    more = {"annotations": {"summary": template}, "generatorURL": template, "smt_policy": "enabled", "meta": chosen}
    good = alert("h4", **more)
    good["labels"].update(smt_enforce_hosts="all", summary=template)
    assert chain.send(good) == 200
    chain.wait_for("h1", "h2", "h3")
    assert list(chain.fleet.changes()) == ["h4"] and not canary.exists()
