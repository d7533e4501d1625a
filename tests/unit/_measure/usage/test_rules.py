# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recording rules and alerts of examples/prometheus-rules.yml, by promtool, against the host's own arithmetic."""

from __future__ import annotations

import json
import pathlib
import random
import subprocess

import night
import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import cores, room, textfile
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span

RULES = pathlib.Path(__file__).resolve().parents[4] / "examples" / "prometheus-rules.yml"
LABELS = 'job="node", instance="web01"'


@pytest.fixture(name="promtool", scope="module")
def promtool_of_debian():
    return prometheus_server.unpacked("prometheus", "usr/bin/promtool")


def series(text):
    """The series of a textfile as node_exporter's server has them, constant."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _space, value = line.rpartition(" ")
            name, _brace, labels = name.partition("{")
            found.append({"series": f"{name}{{{LABELS}, {labels.rstrip('}')}}}", "values": f"{value}x60"})
    return found


def counters(usage, counted=1.0):
    """node_exporter's counters, a minute each, of which the kernel counts a share."""
    return [
        {
            "series": f'node_cpu_seconds_total{{{LABELS}, cpu="{cpu}", mode="{mode}"}}',
            "values": f"0+{60 * counted * share:.9g}x60",
        }
        for cpu, busy in usage.items()
        for mode, share in (("user", busy * 0.7), ("system", busy * 0.3), ("idle", 1 - busy), ("iowait", 0.0))
    ]


def standing_still(*cpus):
    """What node_exporter goes on to give for CPUs that went offline."""
    return [
        {"series": f'node_cpu_seconds_total{{{LABELS}, cpu="{cpu}", mode="{mode}"}}', "values": "1000x60"}
        for cpu in cpus
        for mode in ("user", "idle")
    ]


def case(inputs, expected, alert="SmtUsageHidesLoad", said=None, severity="warning", absent=()):
    """The values of expressions after an hour of inputs, those that have none, and what an alert says then."""
    labels = {"severity": severity, "job": "node", "instance": "web01"}
    return {
        "interval": "1m",
        "input_series": inputs,
        "promql_expr_test": [
            {
                # A text has six digits of each number.
                "expr": f"round({name} - {value!r}, 0.0001)",
                "eval_time": "55m",
                "exp_samples": [{"labels": f"{{{LABELS}}}", "value": 0}],
            }
            for name, value in expected.items()
        ]
        + [{"expr": name, "eval_time": "55m", "exp_samples": []} for name in absent],
        "alert_rule_test": [
            {
                "eval_time": "55m",
                "alertname": alert,
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": {"summary": said}}] if said else [],
            }
        ],
    }


def judged(promtool, tmp_path, *cases):
    test = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "test.yml").write_text(json.dumps(test))
    done = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def machine(*sizes):
    """A machine whose cores have so many threads online."""
    numbers = iter(range(sum(sizes)))
    of_cores = tuple(tuple(next(numbers) for _thread in range(size)) for size in sizes)
    online = tuple(range(sum(sizes)))
    return Topology(online=online, cores=of_cores, packages=(online,), nodes={0: online})


def seen(low, high):
    """What a look says of cores with two threads whose siblings share so much of their CPU time."""
    return textfile.Ratios(Span(1 - high, 1 - low), Span(low, high))


TWICE, FOUR, EIGHT = machine(2, 2), machine(4, 4), machine(8)
GZIP, POWER = [("gzip", 1.2, 1.3)], [("gzip", 1.6, 1.9), ("oltp", 2.2, 2.4)]
FULL = (0.95, 0.9, 0.99, 0.97)
LIGHT = (0.9, 0.3, 0.0, 0.1, 0.5, 0.5, 0.5, 0.5)
# The machine, the usage of its CPUs, what second threads give, and what the last look saw.
MACHINES = [
    (TWICE, (0.9, 0.0, 0.9, 0.0), GZIP, None),
    (TWICE, (0.5, 0.5, 0.5, 0.5), [*GZIP, ("oltp", 1.05, 1.1)], None),
    (TWICE, (0.5, 0.5, 0.4, 0.6), GZIP, seen(0.05, 0.1)),
    (TWICE, FULL, [("guess", 1.0, 1.3)], None),
    # A look that contradicts the counters, and second threads that may take work away, or more than double it.
    (TWICE, FULL, [("guess", 1.0, 1.3)], seen(0.0, 0.01)),
    (TWICE, FULL, [("spin", 0.6, 1.2)], None),
    (TWICE, (0.5, 0.5, 0.4, 0.6), [("odd", 2.5, 3.0)], None),
    (FOUR, LIGHT, POWER, None),
    (FOUR, LIGHT, POWER, textfile.Ratios(Span(0.55, 0.6), Span(0.2, 0.25))),
    (FOUR, LIGHT, POWER, textfile.Ratios(Span(0.0, 0.1), Span(0.8, 0.9))),
    (EIGHT, LIGHT, POWER, None),
    (EIGHT, (0.2, *[0.1] * 7), [("many", 2.5, 3.5)], None),
    (EIGHT, (1.0, *[0.0] * 7), [("many", 2.5, 3.5)], None),
    # Cores with one thread beside others, and SMT off on a part of the machine.
    (machine(1, 2, 1), (0.5, 0.4, 0.3, 1.0), GZIP, None),
    (machine(1, 4), (0.5, 0.4, 0.3, 0.2, 0.1), POWER, None),
]


def at_random(chance):
    """A machine, and what can be true of it at the same time."""
    sizes = [chance.choice((1, 2, 4, 8)) for _core in range(3)]
    host = machine(*sizes)
    usage = [round(chance.choice((0.0, 1.0, chance.random())), 3) for _cpu in host.online]
    ends = sorted((chance.uniform(0.8, 2.0), chance.uniform(0.8, 4.0)))
    busy, several = (Span(*sorted((chance.random(), chance.random()))) for _time in range(2))
    return host, usage, [("any", *ends)], chance.choice((None, textfile.Ratios(busy, several)))


def test_rules_say_what_the_host_says(promtool, tmp_path):
    chance = random.Random(1)
    cases = []
    for host, shares, yields, ratios in [
        *MACHINES[:: night.number(2, 1)],
        *(at_random(chance) for _machine in range(night.number(3, 20))),
    ]:
        usage = dict(zip(host.online, shares, strict=True))
        threads = sum(shares)
        sums = ratios and room.Sums(*(Span(*(end * threads for end in ratio)) for ratio in ratios))
        gain = Span(min(one[1] for one in yields), max(one[2] for one in yields))
        used = room.use([cores.bounded(core, usage) for core in host.cores], gain, sums)
        expected = {
            "threadwise_smt:usage:rate5m": used.usage,
            "threadwise_smt:work_low:ratio": used.work.low,
            "threadwise_smt:work_high:ratio": used.work.high,
            "threadwise_smt:room_low:ratio": used.room.low,
            "threadwise_smt:room_high:ratio": used.room.high,
            "threadwise_smt:room_by_usage:ratio": used.by_usage,
        }
        text = textfile.text(host, yields, ratios, 1.0)
        # Alerts are tried below.
        cases.append({**case(counters(usage) + series(text), expected), "alert_rule_test": []})
    judged(promtool, tmp_path, *cases)


def of_work(low, high, **more):
    return {"threadwise_smt:work_low:ratio": low, "threadwise_smt:work_high:ratio": high, **more}


GUESS, OLTP, NARROW = [("guess", 1.0, 1.3)], [("oltp", 1.0, 1.05)], [("gzip", 1.2, 1.25)]
OFF = TWICE._replace(online=(0, 2))
UNEVEN = {0: 0.98, 1: 0.22, 2: 0.98, 3: 0.22}
AT_HALF = room.use([cores.bounded(core, dict.fromkeys(range(4), 0.5)) for core in TWICE.cores], Span(1.2, 1.25))
WORKS = "web01 does {} or more of the work that it can do, and its CPU usage does not show it"
UNKNOWN = ("threadwise_smt:work_low:ratio", "threadwise_smt:room_high:ratio")
UNKNOWN_SAID = (
    "web01 has CPUs whose cores are not known yet, as after SMT was switched on: look again (systemctl start"
    " threadwise-smt-usage.service, or smt_exposure.yml)"
)
OLD_SAID = (
    "web01 last looked 3d 0h 55m 0s ago at how long siblings are busy together: the limits of its work are those of its"
    " usages alone"
)


def test_machines_that_change_and_alerts(promtool, tmp_path):
    judged(
        promtool,
        tmp_path,
        # Siblings that are offline; time that was not counted is none.
        case(counters({0: 0.5, 2: 0.7}) + series(textfile.text(OFF, GUESS, None, 1.0)), of_work(0.6, 0.6)),
        case(
            counters({0: 0.3, 2: 0.5}, counted=0.7)
            + standing_still(1, 3)
            + series(textfile.text(OFF, GUESS, None, 1.0)),
            of_work(0.4, 0.4, **{"threadwise_smt:usage:rate5m": 0.4}),
        ),
        # Usage of 60 % that is 94 % in truth, a guess, and second threads that give more.
        case(counters(UNEVEN) + series(textfile.text(TWICE, OLTP, None, 1.0)), {}, said=WORKS.format("94.38%")),
        case(
            counters({0: 1.0, 1: 0.38, 2: 1.0, 3: 0.38}) + series(textfile.text(TWICE, GUESS, None, 1.0)),
            {},
            said=WORKS.format("85.69%"),
        ),
        case(counters(UNEVEN) + series(textfile.text(TWICE, NARROW, None, 1.0)), {}, said=WORKS.format("82.8%")),
        # SMT was switched off since the look: two full CPUs of two are all that there is, whatever the file says.
        case(
            counters({0: 1.0, 2: 1.0})
            + standing_still(1, 3)
            + series(textfile.text(TWICE, NARROW, seen(0.1, 0.2), 1.0)),
            of_work(1.0, 1.0),
        ),
        # It was switched on.
        case(
            counters({0: 0.95, 1: 0.2, 2: 0.95, 3: 0.2})
            + series(textfile.text(OFF._replace(cores=((0,), (2,))), GUESS, None, 1.0)),
            {"threadwise_smt:usage:rate5m": 0.575},
            *("SmtSiblingsChanged", UNKNOWN_SAID, "info", UNKNOWN),
        ),
        # An old look counts no more: siblings that were never apart then may take turns now.
        case(
            counters(dict.fromkeys(range(4), 0.5))
            + series(textfile.text(TWICE, NARROW, seen(0.49, 0.5), -3 * 86400.0)),
            of_work(AT_HALF.work.low, AT_HALF.work.high),
            *("SmtLookIsOld", OLD_SAID, "info"),
        ),
        # Cores of four busy threads are not shared for longer than there is time.
        case(
            counters(dict.fromkeys(range(8), 1.0)) + series(textfile.text(FOUR, [("spin", 0.8, 0.9)], None, 1.0)),
            {**of_work(1.0, 1.0), 'sum by (job, instance) (threadwise_smt:several:rate5m{limit="high"})': 2.0},
        ),
    )
