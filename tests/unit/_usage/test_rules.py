# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recording rules and alerts of examples/prometheus-rules.yml, by promtool, against the host's own arithmetic."""

from __future__ import annotations

import json
import pathlib
import subprocess

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._usage import cores, room, textfile
from ansible_collections.threadwise.smt.plugins.module_utils._usage.cores import Span

RULES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "prometheus-rules.yml"
LABELS = 'job="node", instance="web01"'


@pytest.fixture(name="promtool", scope="module")
def promtool_of_debian():
    return prometheus_server.unpacked("prometheus", "usr/bin/promtool")


def test_the_rules_are_valid(promtool):
    subprocess.run([promtool, "check", "rules", str(RULES)], check=True, capture_output=True)


def series(text):
    """The series of a textfile as node_exporter's server has them, constant."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _space, value = line.rpartition(" ")
            name, _brace, labels = name.partition("{")
            found.append({"series": f"{name}{{{LABELS}, {labels.rstrip('}')}}}", "values": f"{value}x60"})
    return found


def counters(usage):
    """node_exporter's counters, a minute each."""
    return [
        {
            "series": f'node_cpu_seconds_total{{{LABELS}, cpu="{cpu}", mode="{mode}"}}',
            "values": f"0+{60 * share:.9g}x60",
        }
        for cpu, busy in usage.items()
        for mode, share in (("user", busy * 0.7), ("system", busy * 0.3), ("idle", 1 - busy), ("iowait", 0.0))
    ]


def judged(promtool, tmp_path, inputs, expected, alerts=()):
    """Check the values of expressions after an hour, and the alerts that fire then."""
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": inputs,
                "promql_expr_test": [
                    {
                        "expr": f"round({name}, 0.0001)",
                        "eval_time": "55m",
                        "exp_samples": [
                            {"labels": f"{{{LABELS}}}", "value": round(round(value / 0.0001) * 0.0001, 10)}
                        ],
                    }
                    for name, value in expected.items()
                ],
                "alert_rule_test": [
                    {
                        "eval_time": "55m",
                        "alertname": "SmtUsageHidesLoad",
                        "exp_alerts": [
                            {"exp_labels": one, "exp_annotations": {"summary": said}} for one, said in alerts
                        ],
                    }
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))
    done = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


MACHINES = {
    "one thread of each core": ({0: 0.9, 1: 0.0, 2: 0.9, 3: 0.0}, [("gzip", 1.2, 1.3)], None),
    "half and half": ({0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5}, [("gzip", 1.2, 1.3), ("oltp", 1.05, 1.1)], None),
    "half and half, seen": ({0: 0.5, 1: 0.5, 2: 0.4, 3: 0.6}, [("gzip", 1.2, 1.3)], (0.05, 0.1)),
    "nearly full": ({0: 0.95, 1: 0.9, 2: 0.99, 3: 0.97}, [("guess", 1.0, 1.3)], None),
    "a look that contradicts the counters": ({0: 0.95, 1: 0.9, 2: 0.99, 3: 0.97}, [("guess", 1.0, 1.3)], (0.0, 0.01)),
}


@pytest.mark.parametrize(("usage", "yields", "shared"), MACHINES.values(), ids=MACHINES)
def test_rules_say_what_the_host_says(usage, yields, shared, promtool, tmp_path):
    host = Topology(online=tuple(usage), cores=((0, 1), (2, 3)), packages=((0, 1, 2, 3),), nodes={0: (0, 1, 2, 3)})
    found = [cores.bounded(core, usage) for core in host.cores]
    threads = sum(usage.values())
    sums = None
    if shared:
        low, high = (ratio * threads for ratio in shared)
        sums = room.Sums(Span(threads - high, threads - low), Span(low, high))
    used = room.use(found, Span(min(one[1] for one in yields), max(one[2] for one in yields)), sums)
    text = textfile.text(host, yields, shared, 1.0)
    expected = {
        "threadwise_smt:usage:rate5m": used.usage,
        "threadwise_smt:work_low:ratio": used.work.low,
        "threadwise_smt:work_high:ratio": used.work.high,
        "threadwise_smt:room_low:ratio": used.room.low,
        "threadwise_smt:room_high:ratio": used.room.high,
        "threadwise_smt:room_by_usage:ratio": used.by_usage,
    }
    judged(promtool, tmp_path, counters(usage) + series(text), expected)


def test_siblings_that_are_offline(promtool, tmp_path):
    usage = {0: 0.5, 2: 0.7}
    host = Topology(online=(0, 2), cores=((0, 1), (2, 3)), packages=((0, 1, 2, 3),), nodes={})
    expected = {"threadwise_smt:work_low:ratio": 0.6, "threadwise_smt:work_high:ratio": 0.6}
    text = textfile.text(host, [("guess", 1.0, 1.3)], None, 1.0)
    judged(promtool, tmp_path, counters(usage) + series(text), expected)


def test_usage_of_60_percent_that_is_90_in_truth_is_an_alert(promtool, tmp_path):
    usage = {0: 0.98, 1: 0.22, 2: 0.98, 3: 0.22}
    host = Topology(online=tuple(usage), cores=((0, 1), (2, 3)), packages=((0, 1, 2, 3),), nodes={})
    alert = {"severity": "warning", "job": "node", "instance": "web01"}
    text = textfile.text(host, [("oltp", 1.0, 1.05)], None, 1.0)
    done = {"threadwise_smt:usage:rate5m": 0.6}
    said = "web01 does 94.38% or more of the work that it can do, and its CPU usage does not show it"
    judged(promtool, tmp_path, counters(usage) + series(text), done, [(alert, said)])
