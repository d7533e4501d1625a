# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The textfile, and by promtool the rules of examples/prometheus-rules.yml against the host's own arithmetic."""

from __future__ import annotations

import json
import pathlib
import random
import subprocess

import night
import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull import metrics
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull.errors import PullError
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import cores, look, program, room, textfile
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span

RULES = pathlib.Path(__file__).resolve().parents[4] / "examples" / "prometheus-rules.yml"
LABELS, LATE = 'job="node", instance="web01"', {"eval_time": "55m"}


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
    modes = (("user", 0.7), ("system", 0.3), ("idle", None), ("iowait", 0.0))
    return [
        {
            "series": f'node_cpu_seconds_total{{{LABELS}, cpu="{cpu}", mode="{mode}"}}',
            "values": f"0+{60 * counted * (1 - busy if share is None else busy * share):.9g}x60",
        }
        for cpu, busy in usage.items()
        for mode, share in modes
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
    alerts = [{"exp_labels": labels, "exp_annotations": {"summary": said}}] if said else []
    return {
        "interval": "1m",
        "input_series": inputs,
        "promql_expr_test": [
            # A text has six digits of each number.
            {
                **LATE,
                "expr": f"round({name} - {value!r}, 0.0001)",
                "exp_samples": [{"labels": f"{{{LABELS}}}", "value": 0}],
            }
            for name, value in expected.items()
        ]
        + [{**LATE, "expr": name, "exp_samples": []} for name in absent],
        "alert_rule_test": [{**LATE, "alertname": alert, "exp_alerts": alerts}],
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


TWICE, FOUR = machine(2, 2), machine(4, 4)


def at_random(chance):
    """A machine, and what can be true of it at the same time."""
    sizes = [chance.choice((1, 2, 4, 8)) for _core in range(chance.choice((1, 2, 3)))]
    host = machine(*sizes)
    usage = [round(chance.choice((0.0, 1.0, chance.random())), 3) for _cpu in host.online]
    ends = sorted((chance.uniform(0.6, 2.0), chance.uniform(0.8, 4.0)))
    busy, several = (Span(*sorted((chance.random(), chance.random()))) for _time in range(2))
    return host, usage, [("any", *ends)], chance.choice((None, textfile.Ratios(busy, several)))


def test_rules_say_what_the_host_says(promtool, tmp_path):
    chance = random.Random(1)
    cases = []
    for host, shares, yields, ratios in (at_random(chance) for _machine in range(night.number(8, 40))):
        usage = dict(zip(host.online, shares, strict=True))
        threads = sum(shares)
        sums = ratios and room.Sums(*(Span(*(end * threads for end in ratio)) for ratio in ratios))
        gain = Span(min(one[1] for one in yields), max(one[2] for one in yields))
        used = room.use([cores.bounded(core, usage) for core in host.cores], gain, sums)
        limits = {"work_low": used.work.low, "work_high": used.work.high, "room_low": used.room and used.room.low}
        limits.update(room_high=used.room and used.room.high, room_by_usage=used.by_usage)
        expected = {f"threadwise_smt:{name}:ratio": value for name, value in limits.items() if value is not None}
        expected["threadwise_smt:usage:rate5m"] = used.usage
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
UNKNOWN_SAID = "web01 has CPUs whose cores are not known yet, as after SMT was switched on: look again (systemctl start"
UNKNOWN_SAID += " threadwise-smt-usage.service, or smt_exposure.yml)"
OLD_SAID = (
    "web01 last looked 3d 0h 55m 0s ago at how long siblings are busy together: the limits of its work are those of"
)
OLD_SAID += " its usages alone"


def test_machines_that_change_and_alerts(promtool, tmp_path):
    def look(host, yields, ratios=None, at=1.0):
        return series(textfile.text(host, yields, ratios, at))

    unknown = look(OFF._replace(cores=((0,), (2,))), GUESS)
    spin = look(FOUR, [("spin", 0.8, 0.9)])
    several = {'sum by (job, instance) (threadwise_smt:several:rate5m{limit="high"})': 2.0}
    judged(
        promtool,
        tmp_path,
        # Siblings that are offline; time that was not counted is none.
        case(
            counters({0: 0.3, 2: 0.5}, counted=0.7) + standing_still(1, 3) + look(OFF, GUESS),
            of_work(0.4, 0.4, **{"threadwise_smt:usage:rate5m": 0.4}),
        ),
        # Usage of 60 % that is 94 % in truth, and second threads that give more.
        case(counters(UNEVEN) + look(TWICE, OLTP), {}, said=WORKS.format("94.38%")),
        case(counters(UNEVEN) + look(TWICE, NARROW), {}, said=WORKS.format("82.8%")),
        # SMT was switched off since the look: two full CPUs of two are all that there is, whatever the file says.
        case(
            counters({0: 1.0, 2: 1.0}) + standing_still(1, 3) + look(TWICE, NARROW, seen(0.1, 0.2)), of_work(1.0, 1.0)
        ),
        # It was switched on.
        case(
            counters({0: 0.95, 1: 0.2, 2: 0.95, 3: 0.2}) + unknown,
            {"threadwise_smt:usage:rate5m": 0.575},
            *("SmtSiblingsChanged", UNKNOWN_SAID, "info", UNKNOWN),
        ),
        # An old look counts no more: siblings that were never apart then may take turns now.
        case(
            counters(dict.fromkeys(range(4), 0.5)) + look(TWICE, NARROW, seen(0.49, 0.5), -3 * 86400.0),
            of_work(AT_HALF.work.low, AT_HALF.work.high),
            *("SmtLookIsOld", OLD_SAID, "info"),
        ),
        # Cores of four busy threads are not shared for longer than there is time.
        case(counters(dict.fromkeys(range(8), 1.0)) + spin, {**of_work(1.0, 1.0), **several}),
    )


PLAN = look.Plan(1.0, 10, 0.1)
SEEN = {"busy_ratio": [0.8, 0.9], "shared_ratio": [0.1, 0.2], "reason": None, "use_reason": None}
OF_PULL = "# HELP threadwise_smt_compliant x\nthreadwise_smt_compliant 1\n# EOF\n"


@pytest.fixture(name="shown")
def a_topology(monkeypatch):
    shown = [machine(2, 2)]
    monkeypatch.setattr(program.topology, "read_topology", lambda _fs: shown[0])
    return shown


@pytest.fixture(name="path")
def in_a_folder_of_its_own(tmp_path):
    (tmp_path / "collector").mkdir()
    return "/collector/usage.prom"


def test_an_earlier_look_counts_while_the_next_one_looks(monkeypatch, tmp_path, shown, path):
    fs, before = HostFs(str(tmp_path)), []

    def take(*_arguments):
        before.append((tmp_path / path.lstrip("/")).read_text())
        return SEEN

    monkeypatch.setattr(program.look, "take", take)
    for _turn in range(2):
        program.record(fs, PLAN, [], path)
    assert "shared_ratio" not in before[0] and "shared_ratio" in before[1]
    # Of other cores it says nothing.
    shown[0] = OFF._replace(cores=((0,), (2,)))
    program.record(fs, PLAN, [], path)
    assert "shared_ratio" not in before[2] and 'cpu="1"' not in before[2]


def test_neither_this_nor_the_pull_takes_the_others_file_for_its_own(tmp_path, shown, path):
    fs, file = HostFs(str(tmp_path)), tmp_path / path.lstrip("/")
    ours = textfile.text(shown[0], GUESS, textfile.Ratios(Span(0.8, 0.9), Span(0.1, 0.2)), 1.0)
    file.write_text(OF_PULL)
    for is_dry in (True, False):
        with pytest.raises(textfile.TextfileError, match="is there, and smt_usage did not write it"):
            textfile.write(fs, path, ours, is_dry)
    file.write_text(ours)
    with pytest.raises(PullError, match="is there, and smt_pull did not write it"):
        metrics.write(str(file), OF_PULL)
    assert file.read_text() == ours


def test_no_folder_is_made_and_no_second_file_of_the_same_series(tmp_path, shown, path):
    fs, ours = HostFs(str(tmp_path)), textfile.text(shown[0], GUESS, None, 1.0)
    with pytest.raises(textfile.TextfileError, match="there is no /nowhere"):
        textfile.write(fs, "/nowhere/a.prom", "x")
    textfile.write(fs, path, ours)
    with pytest.raises(textfile.TextfileError, match=r"/collector/usage\.prom has the same series as /collector/b\."):
        textfile.write(fs, "/collector/b.prom", ours)
    assert [one.name for one in tmp_path.rglob("*.prom")] == ["usage.prom"]


def test_names_of_workloads_are_escaped_and_cpus_that_are_offline_left_out():
    text = textfile.text(machine(2)._replace(online=(0,)), [('a"} 1\n\\', 1.0, 1.3)], None, 1.0)
    assert 'workload="a\\"} 1\\\\",limit="low"} 1\n' in text and 'cpu="0"' in text and 'cpu="1"' not in text
