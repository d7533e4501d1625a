# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a series of a metrics server is, and how old: against Debian's Prometheus, and servers that lie."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
import time

import prometheus_server
import pytest
import scraped_fleet
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources import base, prometheus
from prometheus_client import parser
from scraped_fleet import Machine, drifted, found

NOW = datetime.datetime(2026, 11, 28, 12, tzinfo=datetime.UTC)
AT = NOW.timestamp()


def asked(hosts, others=(), now=NOW, url="http://127.0.0.1:1", **options):
    options = {"label": None, "names": None, "max_age": None, **options}
    return base.Asked(sorted(hosts), others, now, options, lambda *_words: None, {"url": url}.get)


def labels_of(line):
    ((sample,),) = ([*family.samples] for family in parser.text_string_to_metric_families(line + "\n"))
    return sample.labels


def samples(machines, name):
    """What a server has of a metric, as its client gives it."""
    lines = [line for one in machines for line in one.exported().splitlines()]
    found_there = [line for line in lines if line.startswith(f"threadwise_smt_{name}{{")]
    return [(labels_of(line), float(line.rpartition(" ")[2])) for line in found_there]


def heard(hosts, machines, alive=None, now=NOW, others=(), extra=(), **options):
    """What is judged where the server has these machines, of which some are alive."""
    one = asked(hosts, others, now, **options)
    which = prometheus.Names([*one.hosts, *one.others], one.options["label"], one.options["names"] or {})
    words = [*samples(machines, "status_timestamp_seconds"), *extra]
    runs, now_alive = (samples(some, "pull_run_timestamp_seconds") for some in (machines, alive or machines))
    of_server = prometheus.Heard(words, runs, now_alive, which, now)
    judged = base.judged(
        one, of_server.words, lambda host: prometheus._unheard(host, of_server, {}), datetime.timedelta(hours=3)
    )
    return dict(judged), of_server


def statuses(judged):
    return {host: result.status for host, result in judged.items()}


@pytest.fixture(name="server", scope="module")
def a_server_that_scrapes_a_fleet(tmp_path_factory):
    """A real Prometheus: (its address, what it scrapes, the fleet, the present time)."""
    now, directory = time.time(), tmp_path_factory.mktemp("prometheus")
    fleet, exporter = scraped_fleet.planted(200, 10, now), prometheus_server.Exporter()
    with prometheus_server.serving(exporter.answer) as target:
        targets = [target.removeprefix("http://")]
        with prometheus_server.prometheus(directory, targets, scraped=scraped_fleet.HONOURED) as url:
            fleet.scraped_by(exporter)
            yield url, exporter, fleet, datetime.datetime.fromtimestamp(now, datetime.UTC)


def test_each_planted_host_of_a_fleet_is_judged_rightly(server):
    url, _exporter, fleet, now = server
    answer = prometheus.SOURCE.read(asked(fleet.expected, now=now, url=url))
    judged = dict(answer.judged)
    assert statuses(judged) == fleet.expected
    assert answer.strangers == sorted(fleet.strangers)
    said = collections.defaultdict(set)
    for one in judged.values():
        said[one.status].add(one.sentence)
    assert said["drifted"] == {"running: CPUs 4-7 are online"}
    assert all(sentence.startswith("2 machines have this name: h000") for sentence in said["unknown"])
    renamed_by = {f"h000{number}:9100," for number in range(30, 40)}
    assert {sentence.partition(" ")[0] for sentence in said["unknown_to_server"]} == {"the", *renamed_by}
    renamed, several = answer.notes
    assert renamed.startswith("Renamed: h00030 is new-h00030 now") and renamed.endswith("and 17 more.")
    assert several.startswith("Scraped as several targets: h00040 (10.0.0.0:9100, h00040:9100), h00041")
    # Each of them alone: machines that share a name are no targets of one.
    assert several.endswith("and 7 more.")


def test_what_a_server_has_not_heard_for_a_day_is_looked_for_too(tmp_path):
    now = int(time.time())
    yesterday, lately = range(now - 30 * 3600, now - 26 * 3600, 60), range(now - 3600, now, 60)
    lines = collections.defaultdict(list)
    for times, machine in (
        (yesterday, Machine("gone", 0, "gone:9100", drifted())),
        (yesterday, Machine("former", 0, "moved:9100")),
        (lately, Machine("present", 0, "moved:9100")),
        (yesterday, Machine("well", 0, "well:9100", drifted())),
        (lately, Machine("well", 0, "well:9100")),
    ):
        for at in times:
            for line in dataclasses.replace(machine, at=at).exported().splitlines():
                if line.startswith(("threadwise_smt_status_timestamp", "threadwise_smt_pull_run_timestamp")):
                    lines[line.partition("{")[0]].append(f"{line} {at}\n")
    text = "".join(f"# TYPE {name} gauge\n{''.join(of_name)}" for name, of_name in lines.items())
    (tmp_path / "samples.txt").write_text(f"{text}# EOF\n")
    prometheus_server.backfilled(tmp_path, "openmetrics", "samples.txt", "data")
    with prometheus_server.prometheus(tmp_path, []) as url:
        hosts = ["gone", "former", "present", "well", "never"]
        answer = prometheus.SOURCE.read(asked(hosts, now=datetime.datetime.fromtimestamp(now, datetime.UTC), url=url))
    expected = ("silent", "unknown_to_server", "compliant", "compliant", "unknown_to_server")
    assert statuses(dict(answer.judged)) == dict(zip(hosts, expected))
    sentence = dict(answer.judged)["gone"].sentence
    assert "(gone:9100)" in sentence and "drifted" in sentence
    assert answer.strangers == [] and answer.notes == ["Renamed: former is present now."]


def test_a_host_that_is_gone_was_known_and_one_that_never_was_is_not(server):
    url, exporter, fleet, now = server
    exporter.text = "".join(line for line in fleet.text.splitlines(keepends=True) if "h00100" not in line)
    exporter.wait(2)
    judged = dict(prometheus.SOURCE.read(asked(["h00100", "h99999"], now=now, url=url)).judged)
    # Its last word is of half an hour ago, whether it is up now or not.
    assert statuses(judged) == {"h00100": "compliant", "h99999": "unknown_to_server"}
    later = dict(prometheus.SOURCE.read(asked(["h00100"], now=now + datetime.timedelta(hours=9), url=url)).judged)
    assert statuses(later) == {"h00100": "silent"}


@pytest.mark.parametrize(
    ("label", "names", "host", "instance"),
    [
        ("instance", None, "web1", "web1:9100"),
        ("instance", None, "web1:9100", "web1:9100"),
        ("instance", None, "2001:db8::1", "[2001:db8::1]:9100"),
        ("instance", {"10.0.0.1": "web1"}, "web1", "10.0.0.1:9100"),
        ("instance", {"10.0.0.1:9100": "web1"}, "web1", "10.0.0.1:9100"),
        (None, {"itself": "web1"}, "web1", "10.0.0.1:9100"),
        ("job", None, "node", "10.0.0.1:9100"),
    ],
)
def test_the_label_that_has_the_name_is_the_users(label, names, host, instance):
    judged, _of_server = heard([host], [Machine("itself", AT - 60, instance)], label=label, names=names)
    assert statuses(judged) == {host: "compliant"}


def exported(host, status, at, instance="controller:9100"):
    """Series about a host that its own file does not have."""
    return samples([Machine(host, at, instance, found(status))], "status_timestamp_seconds")


GONE = [Machine("db1", AT - 40_000)]


@pytest.mark.parametrize("instance", ["evil:9100", "10.0.0.66:9100"], ids=["by name", "by address"])
@pytest.mark.parametrize("own", [[], GONE, [Machine("db1", AT - 60, result=drifted())]], ids=["none", "old", "drifted"])
def test_a_second_file_of_a_host_makes_no_other_one_better(instance, own):
    without, _of_server = heard(["db1"], own, others=["evil"])
    # By a pull as another host, and by a check of it.
    for second, extra in (
        ([Machine("db1", AT - 1, instance)], []),
        ([], exported("db1", "compliant", AT - 1, instance)),
    ):
        judged, of_server = heard(["db1", "evil"], [*own, Machine("evil", AT - 30, instance), *second], extra=extra)
        assert statuses(judged)["db1"] == statuses(without)["db1"] != "compliant"
        assert f"{instance} says compliant at 2026-11-28T11:59:59Z, which does not count" in judged["db1"].sentence
        (note,) = base.speakers(asked(["db1"]), of_server.words)
        assert note.startswith("Hosts that speak of others: ") and "db1" in note
    # Who says worse is heard, and named.
    judged, _of_server = heard(["db1"], own, extra=exported("db1", "drifted", AT - 1, instance))
    assert judged["db1"].status == "drifted"


EVIL_BY_NAME, EVIL_BY_ADDRESS = Machine("db1", AT - 1, "evil:9100"), Machine("db1", AT - 1, "10.0.0.66:9100")
NOW_GOOD, LATE_BAD = Machine("db1", AT - 60), Machine("db1", AT - 3000, result=drifted())
OF_CONTROLLER, MISSED = exported("db1", "drifted", AT - 60), exported("db1", "unreachable", AT - 10)
# As a server has it that does not honour labels.
RENAMED = [({**labels, "host": "controller", "exported_host": labels["host"]}, at) for labels, at in OF_CONTROLLER]
BY_ADDRESS = {"others": ["evil"], "names": {"10.0.0.66": "evil"}}


def two(behind, status):
    """Two machines that have a name: the last pull of the second was half an hour before that of the first."""
    return [Machine("db1", AT - behind, "a:9100"), Machine("db1", AT - behind - 1800, "b:9100", found(status))]


@pytest.mark.parametrize(
    ("machines", "options", "status", "word"),
    [
        # Of a word before and after a change of a label the later counts.
        ([Machine("db1", AT - 600, result=drifted()), NOW_GOOD], {"alive": [NOW_GOOD]}, "compliant", None),
        ([NOW_GOOD, Machine("db1", AT - 600, result=drifted())], {"alive": [NOW_GOOD]}, "compliant", None),
        # The file of a controller is of many hosts, and of none by its target.
        ([Machine("controller", AT - 60)], {"extra": OF_CONTROLLER}, "drifted", ""),
        ([Machine("controller", AT - 60)], {"extra": RENAMED}, "drifted", ""),
        ([Machine("controller", AT - 60)], {"extra": OF_CONTROLLER, "label": "instance"}, "unknown_to_server", ""),
        # Who asked a host later, and found it worse, is right; who could not reach it does not overrule it.
        ([Machine("db1", AT - 3000)], {"extra": OF_CONTROLLER}, "drifted", ""),
        ([NOW_GOOD], {"extra": MISSED}, "compliant", "controller:9100 says unreachable"),
        ([Machine("db1", AT - 3600)], {"extra": MISSED}, "unreachable", ""),
        # A target that the server knows by name is no other host, also by an address that the user knows.
        ([*GONE, EVIL_BY_NAME], {"alive": [EVIL_BY_NAME], "others": ["evil"]}, "silent", ""),
        ([*GONE, EVIL_BY_ADDRESS], {"alive": [EVIL_BY_ADDRESS], **BY_ADDRESS}, "silent", ""),
        # Who says it is another host makes that one no better.
        ([LATE_BAD, EVIL_BY_NAME], {}, "unknown", "evil:9100 says compliant"),
        # One machine of which two targets were scraped before and after its pull; and nobody can say whether this is
        # one: a machine that always has the latest file could say what it likes.
        (two(60, "compliant"), {}, "compliant", ""),
        (two(60, "drifted"), {}, "unknown", "2 machines have this name: a:9100 says compliant at "),
        (two(1200, "compliant"), {}, "compliant", "2 machines have this name"),
        # Of a target that is gone the host has moved.
        (two(60, "drifted"), {"alive": two(60, "drifted")[:1]}, "compliant", "b:9100 says drifted at "),
        # A clock was ahead and is right again, and is far ahead: no latest word for ever.
        ([Machine("db1", AT + 9999, result=drifted()), NOW_GOOD], {"alive": [NOW_GOOD]}, "compliant", ""),
        ([Machine("db1", AT + 86400 * 400)], {}, "unknown", "has not come yet"),
        # A pull that could not judge its host has spoken.
        ([Machine("db1", AT - 60, result=None)], {}, "unknown", "the pull could not judge"),
    ],
)
def test_whose_word_counts_and_when(machines, options, status, word):
    judged, _of_server = heard(["db1"], machines, **options)
    sentence = judged["db1"].sentence
    assert judged["db1"].status == status and (sentence == "" if word is None else word in sentence)


def test_a_series_that_says_nothing_is_named_and_judges_nobody():
    usual = {"host": "h1", "job": "node", "instance": "a:9100", "status": "compliant"}
    odd = [({**usual, "status": "silent"}, AT), ({**usual, "host": ""}, AT), (usual, -1.0), (usual, 1e99)]
    for series in (*odd, ({name: usual[name] for name in ("host", "job", "instance")}, AT)):
        judged, of_server = heard(["h1"], [], extra=[series])
        assert statuses(judged) == {"h1": "unknown_to_server"} and of_server.odd, series
        assert "cannot be read" in prometheus._notes(of_server)[0]


EVIL = "\x1b[31m\u202e<script>{{ 7 * 7 }}\n" + "x" * 4000


def vector(*series):
    return success([{"metric": labels, "value": [AT, value]} for labels, value in series])


def success(result, kind="vector"):
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})


def answering(body):
    return prometheus_server.serving(lambda handler: prometheus_server.send(handler, body))


def test_what_a_server_says_is_shown_in_lines_of_bounded_length():
    names = ("status", "wanted", "scope", "hardware_class", "sentence", "running", "reboot_pending", "instance", "job")
    evil = dict.fromkeys(names, EVIL) | {"host": "h1", "status": "drifted"}
    with answering(vector((evil, str(AT)), (dict(evil, host=EVIL[:300]), str(AT)))) as url:
        ((_host, result),) = prometheus.SOURCE.read(asked(["h1"], url=url)).judged
    assert result.status == "drifted" and result.scope is None and result.running is None
    for shown in (result.sentence, result.wanted, result.hardware_class):
        assert shown.isprintable() and len(shown) <= 500


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (vector(*(({"host": f"h{number}", "x": "x" * 99}, "1") for number in range(10))), "is larger than"),
        (vector(*(({"host": f"h{number}"}, "1") for number in range(10))), "has 10 series"),
        ("{", "cannot be read"),
        (json.dumps({"status": "error", "error": "no"}), "refuses the query"),
        (success([], kind="matrix"), "with a matrix"),
        (success([{"metric": {"a": 1}}]), "not that of a Prometheus server"),
        (vector(), "threadwise_smt_status_timestamp_seconds"),
    ],
)
def test_a_server_that_lies_or_says_too_much_is_one_sentence(body, sentence, monkeypatch):
    monkeypatch.setattr(prometheus, "MAX_BYTES", 1000)
    monkeypatch.setattr(prometheus, "MAX_SERIES", 9)
    with answering(body) as url, pytest.raises(base.SourceError) as caught:
        prometheus.SOURCE.read(asked(["h1"], url=url))
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_no_address_and_a_bad_one_name_the_variable():
    for url in (None, "prometheus:9090", "http://u:p@x"):
        with pytest.raises(base.SourceError, match="smt_compliance_metrics_url"):
            prometheus.SOURCE.read(asked(["h1"], url=url))
