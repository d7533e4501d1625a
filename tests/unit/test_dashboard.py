# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboard of examples/grafana: its queries on a real Prometheus that scrapes real files of this collection."""

from __future__ import annotations

import contextlib
import datetime
import json
import pathlib
import re
import runpy
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import compliance_maker
import prometheus_server
import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull import metrics as pull
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import program, textfile
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import waivers

# It takes a real Prometheus with a fleet behind it.
pytestmark = pytest.mark.night
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
FILE = EXAMPLES / "grafana" / "threadwise-smt.json"
BOARD = json.loads(FILE.read_text(encoding="utf-8"))
NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
DAY = datetime.timedelta(days=1)
ENDS = (NOW + 9 * DAY).date()


def aspect(status):
    return {"status": status, "reasons": ["x"], "blocked_by": None}


def host(status, kind, **known):
    running = aspect("drifted" if status == "drifted" else "compliant")
    usual = {"running": running, "reboot_pending": False, "hardware_class": kind}
    return compliance_maker.found(status, **{**usual, **known})


def fleet():
    """What a check of today found, and what an earlier one found of a host that today's leaves out."""
    gone = metrics.metrics(Check([("gone", host("compliant", "epyc"))], NOW - 3 * DAY))
    waiver = waivers.parse({"until": ENDS.isoformat(), "reason": "x", "owner": "y"})
    today = [
        ("web01", host("compliant", "xeon", decision={"stale": ["another kernel"]})),
        ("web02", host("drifted", "xeon", configured=aspect("drifted"), decision={"stale": []})),
        ("web03", host("drifted", "xeon").under(waiver, NOW)),
        ("db01", host("compliant", "epyc", reboot_pending=True, services=["nginx", "java"])),
        ("db02", host("unknown", "epyc")),
        ("new01", compliance_maker.found("unreachable", "no route")),
    ]
    return metrics.metrics(Check(today, NOW, left_out=["gone"], earlier=gone))


def pulled():
    judged = metrics.metrics(Check([("edge01", host("compliant", "atom"))], NOW))
    return pull.text("edge01", pull.Outcome(NOW.timestamp(), False, NOW.timestamp() - 7200, "a1", "b2", judged))


@contextlib.contextmanager
def node_exporter(directory):
    """Run it for files alone and the counters of CPUs. Yields its address."""
    listens = f"127.0.0.1:{prometheus_server.free_port()}"
    program_of = prometheus_server.unpacked("prometheus-node-exporter", "usr/bin/prometheus-node-exporter")
    options = ["disable-defaults", "cpu", "textfile", f"textfile.directory={directory}"]
    command = [program_of, f"--web.listen-address={listens}", "--log.level=error"]
    command += [f"--collector.{option}" for option in options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=directory)
    try:
        for _turn in range(600):
            with contextlib.suppress(OSError), socket.create_connection(listens.split(":")):
                break
            time.sleep(0.1)
        yield listens
    finally:
        process.kill()
        process.wait()


def asked(url, path, **words):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=20) as answer:
        return json.load(answer)["data"]


def found(url, expression):
    """The samples of a query now: the labels beside those of targets, and the value."""
    of_targets = ("__name__", "job", "instance")
    answers = [(one["metric"], float(one["value"][1])) for one in asked(url, "query", query=expression)["result"]]
    return sorted(
        (tuple(value for name, value in sorted(labels.items()) if name not in of_targets), number)
        for labels, number in answers
    )


@pytest.fixture(name="places", scope="module")
def _places(tmp_path_factory):
    """A controller and a host with the files that are written there. Yields the addresses of Prometheus and of both."""
    directory = tmp_path_factory.mktemp("dashboard")
    controller, machine = directory / "controller", directory / "machine"
    for place in (controller, machine, directory / "prometheus"):
        place.mkdir()
    (controller / "smt_compliance.prom").write_text(fleet())
    pull.write(str(machine / "threadwise_smt_pull.prom"), pulled())
    text = program.text(HostFs("/"), [("gzip", 1.2, 1.3)], None)
    textfile.write(HostFs("/"), str(machine / "threadwise_smt_usage.prom"), text)
    rules = yaml.safe_load((EXAMPLES / "prometheus-rules.yml").read_text(encoding="utf-8"))["groups"]
    groups = [{**group, "interval": "1s"} for group in rules]
    with (
        node_exporter(controller) as of_controller,
        node_exporter(machine) as of_machine,
        prometheus_server.prometheus(directory / "prometheus", [of_controller, of_machine], rules=groups) as url,
    ):
        for _turn in range(600):
            if prometheus_server.number(url, "threadwise_smt:room_high:ratio") is not None:
                break
            time.sleep(0.1)
        yield url, of_controller, of_machine


def as_grafana(expression, instance, **chosen):
    """Put the values of variables into a query, "All" as the dashboard has it."""
    known = {one["name"]: one.get("allValue") for one in BOARD["templating"]["list"]}
    values = {**known, "instance": instance, **chosen}
    return re.sub(r"\$(\w+)", lambda name: values[name[1]], expression)


def queries(title, instance, **chosen):
    """Those of the panels with a title: a number and the hosts behind it may have the same."""
    panels = [panel for panel in BOARD["panels"] if panel["title"] == title]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [as_grafana(expression, instance, **chosen) for expression in expressions]


END = datetime.datetime.combine(ENDS + DAY, datetime.time(), datetime.UTC).timestamp() * 1000
BY_STATUS = [(("compliant",), 4), *(((one,), 1) for one in ("drifted", "unknown", "unreachable", "waived"))]
ANSWERS = {
    "Hosts": [[((), 8)]],
    "Compliant": [[((), 0.5)]],
    "Need action": [[((), 3)]],
    # One is gone, and one was never checked.
    "Silent hosts": [[((), 2)]],
    "Pending reboots": [[((), 1)], [(("epyc", "db01"), 1)]],
    "Stale decisions": [[((), 1)]],
    "Wrong CPU counts": [[((), 2)]],
    "Pulls that failed": [[((), 1)]],
    "Hosts by status": [BY_STATUS],
    "Compliant by hardware class": [[(("unknown",), 0), (("atom",), 1), (("epyc",), 2 / 3), (("xeon",), 1 / 3)]],
    "Drift by hardware class": [[(("atom",), 0), (("epyc",), 0), (("xeon",), 1)]],
    "Drifted hosts": [[(("configured", "xeon", "web02"), 1), (("running", "xeon", "web02"), 1)]],
    "Waivers": [[(("xeon", "web03"), END)]],
    "Hosts that need action beside drift": [[(("epyc", "db02", "unknown"), 1), (("new01", "unreachable"), 1)]],
    "Stale decisions by hardware class": [[(("xeon",), 1)]],
    "Programs with a wrong number of CPUs": [[(("epyc", "db01"), 2)]],
    "Hosts by commit of their policy": [[(("a1", "enforced"), 1), (("b2", "refused"), 1)]],
}


def test_what_a_panel_asks_is_answered_and_use_of_cores_is_what_the_rules_say(places):
    url, _of_controller, of_machine = places
    for title, answers in ANSWERS.items():
        for expression, wanted in zip(queries(title, of_machine), answers, strict=True):
            answer, wanted_here = found(url, expression), sorted(wanted)
            assert [labels for labels, _value in answer] == [labels for labels, _value in wanted_here], expression
            assert [value for _labels, value in answer] == pytest.approx([value for _labels, value in wanted_here])
    for expression in queries("Fullest machines", of_machine):
        (row,) = asked(url, "query", query=expression)["result"]
        # A name of a metric would keep Grafana from putting the columns into one row.
        assert row["metric"] == {"job": "service", "instance": of_machine}
    rules = ("usage:rate5m", "work_low:ratio", "work_high:ratio")
    expressions = queries("Work that $instance does, beside its CPU usage", of_machine)
    for rule, expression in zip(rules, expressions, strict=True):
        (answer,) = asked(url, "query", query=expression)["result"]
        assert answer["metric"]["__name__"] == f"threadwise_smt:{rule}" and 0 <= float(answer["value"][1]) <= 1
    for expression in queries("Room that $instance has left", of_machine):
        ((_labels, value),) = found(url, expression)
        assert value >= 0


def test_each_variable_chooses(places):
    url, _of_controller, of_machine = places
    choices = {}
    for one in BOARD["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", one["query"]).groups()
        words = {"match[]": as_grafana(metric, of_machine)}
        choices[one["name"]] = asked(url, f"label/{label}/values", **words)
    assert choices == {
        "job": ["service"],
        "hardware_class": ["atom", "epyc", "xeon"],
        "host": ["db01", "db02", "edge01", "gone", "new01", "web01", "web02", "web03"],
        "instance": [of_machine],
    }
    for title, chosen, answer in (
        ("Hosts", {"hardware_class": "(epyc|atom)"}, [((), 4)]),
        ("Hosts", {"host": "web0.*", "job": "service"}, [((), 3)]),
        ("Hosts", {"job": "other"}, []),
        # No data, which is no fleet without a host that needs action.
        ("Need action", {"job": "other"}, []),
    ):
        (expression,) = queries(title, of_machine, **chosen)
        assert found(url, expression) == answer


def test_the_file_is_what_the_program_makes_and_all_of_it_asks_the_source_that_was_chosen():
    made = runpy.run_path(str(EXAMPLES / "grafana" / "dashboard.py"))["text"]()
    assert made == FILE.read_text(encoding="utf-8"), "run examples/grafana/dashboard.py > threadwise-smt.json"
    sources = re.findall(r'"datasource": (\{.*?"\})', json.dumps(BOARD))
    assert len(sources) > len(BOARD["panels"])
    assert {*sources} == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(numbers) == len(set(numbers))
