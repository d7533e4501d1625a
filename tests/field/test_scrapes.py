# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of files of node_exporter, of series whose labels change, of alerts about them and of sliced jobs,
each tried on the ways in which a fleet is judged without asking its hosts.

A test is named after its source.
"""

import datetime
import json
import pathlib
import subprocess
import time
import urllib.request

import night
import prometheus_server
import pytest
import scraped_fleet
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.remediation import Call
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources import base, files, prometheus
from scraped_fleet import HOUR, Machine, drifted, found

RULES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "prometheus-rules.yml"


def judged(directory, text, hosts, scraped=None, labels=None, before=None, **options):
    """What is judged of hosts by a real server that scraped a text twice, and another one before it:
    (host -> result, the whole answer).
    """
    exporter = prometheus_server.Exporter()
    exporter.text = before or text
    with prometheus_server.serving(exporter.answer) as address:
        target = address.removeprefix("http://")
        kept = scraped_fleet.HONOURED if scraped is None else scraped
        labelled = {target: labels or {}}
        with prometheus_server.prometheus(directory, [target], scraped=kept, instance_labels=labelled) as url:
            exporter.wait(2)
            if before:
                exporter.text = text
                exporter.wait(2)
            options = {"label": None, "names": None, "max_age": None, **options}
            now = datetime.datetime.now(datetime.UTC)
            asked = base.Asked(sorted(hosts), [], now, options, lambda *_words: None, {"url": url}.get)
            answer = prometheus.SOURCE.read(asked)
    return dict(answer.judged), answer


@pytest.mark.night
def test_node_exporter_713_the_file_of_a_timer_that_stopped_is_shown_for_ever(tmp_path):
    """Also puppet-prometheus_reporter 84: the time of the file's own is what tells."""
    found_there = judged(tmp_path, Machine("h1", time.time() - 9 * HOUR).exported(), ["h1"])[0]
    assert found_there["h1"].status == "silent"


@pytest.mark.night
def test_prometheus_14320_a_label_that_changed_leaves_two_series_that_overlap(tmp_path):
    before = Machine("h1", time.time() - HOUR, result=drifted())
    after = Machine("h1", time.time() - 60)
    lines = after.exported().splitlines(keepends=True)
    text = before.exported() + "".join(line for line in lines if "status_timestamp" in line)
    found_there, _answer = judged(tmp_path, text, ["h1"])
    assert found_there["h1"].status == "compliant"


def test_prometheus_2262_a_host_has_the_address_that_another_one_had(tmp_path):
    now = time.time()
    former = Machine("web1", now - HOUR, "10.0.0.5:9100").exported()
    text = Machine("db1", now - 60, "10.0.0.5:9100", drifted()).exported()
    found_there, answer = judged(tmp_path, text, ["web1", "db1"], before=former)
    expected = {"db1": "drifted", "web1": "unknown_to_server"}
    assert {host: one.status for host, one in found_there.items()} == expected
    assert answer.notes[0] == "Renamed: web1 is db1 now."


@pytest.mark.night
def test_zk_exporter_1_a_label_of_the_target_takes_the_place_of_that_in_the_file(tmp_path):
    """Also mongodb_exporter 1143, windows_exporter 691."""
    lines = Machine("web1", time.time() - 60).text().splitlines(keepends=True)
    text = "".join(line for line in lines if line[0] != "#")
    found_there, answer = judged(tmp_path, text, ["web1"], scraped={}, labels={"host": "rack7"})
    assert found_there["web1"].status == "compliant" and not answer.strangers


@pytest.mark.night
def test_nvidia_gpu_exporter_97_an_instance_without_its_port_is_beside_the_one_with_it(tmp_path):
    now = time.time()
    machines = [Machine("web1", now - HOUR, "web1:9100", drifted()), Machine("web1", now - 60, "web1")]
    text = "".join(one.exported() for one in machines)
    # Two targets that are up, of which one has an older file, are two machines as far as anybody can see.
    found_there, _answer = judged(tmp_path, text, ["web1"], label="instance")
    assert found_there["web1"].status == "unknown"
    assert "2 machines have this name: web1 says compliant" in found_there["web1"].sentence


@pytest.mark.night(after=1)
@pytest.mark.parametrize("names", [["one", "two"], ["two", "one"]])
def test_node_exporter_1885_and_509_two_files_of_one_metric_with_other_labels(names, tmp_path):
    """The file of a pull that judged nobody beside that of a check of many, read by the real one."""
    now = datetime.datetime.now(datetime.UTC)
    fleet = [("h1", found("compliant")), ("h2", drifted()), ("h3", found("unreachable", "no route"))]
    (tmp_path / f"{names[0]}.prom").write_text(registry.formats()["metrics"].make(Check(fleet, now)))
    (tmp_path / f"{names[1]}.prom").write_text(Machine("h4", now.timestamp(), result=None).text())
    program = prometheus_server.unpacked("prometheus-node-exporter", "usr/bin/prometheus-node-exporter")
    port = prometheus_server.free_port()
    command = [program, f"--web.listen-address=127.0.0.1:{port}", "--collector.disable-defaults"]
    command += ["--collector.textfile", f"--collector.textfile.directory={tmp_path}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _turn in range(300):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    text = answer.read().decode()
                break
            except OSError:
                time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    said = [line for line in text.splitlines() if line.startswith("threadwise_smt_status_timestamp_seconds{")]
    assert len(said) == 4 and "node_textfile_scrape_error 0" in text


def test_awx_15589_slices_without_hosts_are_no_failure(tmp_path):
    """Also awx 2893 and 8636: a limit leaves most slices of a job without hosts, whose calls fail."""
    now = datetime.datetime.now(datetime.UTC)
    make = registry.formats()["json"].make
    (tmp_path / "1.json").write_text(make(Check([("h1", found("compliant")), ("h2", found("compliant"))], now)))
    for number in (2, 3, 4):
        failed = Call(error="no host matches both smt_compliance_hosts=all and --limit h1,h2: change one of them")
        moment = now - datetime.timedelta(seconds=number)
        (tmp_path / f"{number}.json").write_text(make(Check([], moment, call=failed)))
    (tmp_path / "5.json").write_text(make(Check([], now)))
    options = {"files": [str(tmp_path)], "max_age": None}
    answer = files.SOURCE.read(base.Asked(["h1", "h2"], [], now, options, lambda *_words: None, lambda _name: None))
    assert {host: one.status for host, one in answer.judged} == {"h1": "compliant", "h2": "compliant"}
    assert len(answer.notes) == 3 and all("checked no host: no host matches both" in note for note in answer.notes)


def alerts(tmp_path, inputs, minute, expected):
    promtool = prometheus_server.unpacked("prometheus", "usr/bin/promtool")
    test = {
        "interval": "1m",
        "input_series": inputs,
        "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []} for name in expected],
    }
    for one in test["alert_rule_test"]:
        one["exp_alerts"] = expected[one["alertname"]]
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}))
    done = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


DRIFTED = {
    "exp_labels": {"severity": "warning", "host": "h1", "aspect": "running"},
    "exp_annotations": {"summary": "h1 does not comply with its SMT policy (running), and enforcement did not fix it"},
}


def test_awesome_prometheus_alerts_414_and_385_a_host_with_two_series_is_one_alert(tmp_path):
    """Also kolla-operations 34: two labels, two jobs or two replicas at once end a rule that matches one to one."""
    own = [
        {"job": "node", "instance": "h1:9100", "hardware_class": "c1"},
        {"job": "node", "instance": "h1:9100", "hardware_class": "c2"},
        {"job": "linux", "instance": "h1:9100", "hardware_class": "c2", "replica": "b"},
    ]
    inputs = [
        {"series": f"threadwise_smt_{metric}{{{text}}}", "values": "1x300"}
        for labels in own
        for metric, more in (("drifted", {"aspect": "running"}), ("status", {"status": "drifted"}))
        for text in [",".join(f'{name}="{value}"' for name, value in {"host": "h1", **labels, **more}.items())]
    ]
    alerts(tmp_path, inputs, 200, {"SmtPolicyDrifted": [DRIFTED], "SmtPolicyUnknown": []})


def test_prometheus_5434_and_boshrelease_312_a_number_that_changes_is_the_same_alert(tmp_path):
    series = 'threadwise_smt_services_wrong{host="h1",hardware_class="c1",job="node",instance="h1:9100"}'
    said = "3 programs of h1 believe in the number of CPUs from before a change: see how it is listed in"
    said += " smt_compliance.json, and smt_runtime_consumers"
    expected = {"exp_labels": {"severity": "info", "host": "h1"}, "exp_annotations": {"summary": said}}
    alerts(tmp_path, [{"series": series, "values": "1x60 2x60 3x100"}], 190, {"SmtServicesWrong": [expected]})


def test_prometheus_6816_and_7527_missed_scrapes_end_no_alert(tmp_path):
    series = 'threadwise_smt_drifted{host="h1",hardware_class="c1",aspect="running",job="node",instance="h1:9100"}'
    values = "1x170 _x40 1x5"
    for minute in (214, 185)[: night.number(1, 2)]:
        alerts(tmp_path, [{"series": series, "values": values}], minute, {"SmtPolicyDrifted": [DRIFTED]})
