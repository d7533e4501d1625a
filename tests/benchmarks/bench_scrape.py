# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check by scrape costs: hosts behind Debian's Prometheus on loopback, with planted ones."""

import collections
import datetime
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import bench_compliance
import prometheus_server
import scraped_fleet
import yaml
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources import base, prometheus

EACH = 20
PLAYBOOK = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
CALL = [PLAYBOOK, "-i", "inventory.yml", "-f", "10", "threadwise.smt.smt_compliance"]
MIB = 1024


def main(words: list[str]) -> int:
    """Print what it costs; the exit code is 1 when a status is not the right one."""
    count, asked = (int(words[0]) if words else 10_000, int(words[1]) if words[1:] else 200)
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        pushed = by_push(place / "pushed", asked)
        now = time.time()
        fleet = scraped_fleet.planted(count - asked, EACH, now)
        parts = [scraped_fleet.with_target(pull(host, lines, now), f"{host}:9100") for host, lines in pushed[1].items()]
        text = fleet.text + "".join(parts)
        expected = {**fleet.expected, **pushed[0]}
        exporter, server = prometheus_server.Exporter(), place / "server"
        server.mkdir()
        scraped = {**scraped_fleet.HONOURED, "scrape_interval": "15s", "scrape_timeout": "14s"}
        with (
            prometheus_server.serving(exporter.answer) as target,
            prometheus_server.prometheus(server, [target.removeprefix("http://")], scraped=scraped) as url,
        ):
            fleet.scraped_by(exporter)
            exporter.text = text
            exporter.wait(2)
            print(f"{len(expected)} hosts, {text.count(chr(10))} series, {len(text) / 1e6:.1f} MB scraped")
            found = own_work(url, expected)
            whole_call(place / "whole", url, expected)
    wrong = {host: (found[host], status) for host, status in expected.items() if found[host] != status}
    print(f"statuses: {dict(collections.Counter(found.values()))}; not as planted: {len(wrong)}")
    same = sum(found[host] == status for host, status in pushed[0].items())
    print(f"{same} of {len(pushed[0])} hosts have the status that a check found that asked them")
    print("wrong: ", dict(list(wrong.items())[:5])) if wrong else None
    return 1 if wrong else 0


def by_push(place: pathlib.Path, count: int) -> tuple[dict[str, str], dict[str, str]]:
    """Check hosts by asking each; return their statuses, and their lines of the metrics."""
    place.mkdir()
    bench_compliance.inventory(place, count)
    text = (place / "inventory.yml").read_text().replace("h0", "asked0")
    (place / "inventory.yml").write_text(text)
    command = [*CALL, "-e", "smt_policy=disabled"]
    with (place / "log").open("w") as log:
        subprocess.run(command, cwd=place, stdout=log, stderr=log, check=False)
    document = json.loads((place / "smt_compliance.json").read_text())
    lines: dict[str, str] = collections.defaultdict(str)
    for line in (place / "smt_compliance.prom").read_text().splitlines(keepends=True):
        if line[0] != "#":
            lines[line.partition('host="')[2].partition('"')[0]] += line
    print(f"asked {len(document['hosts'])} hosts: {document['counts']}")
    return {host["host"]: host["status"] for host in document["hosts"]}, lines


def pull(host: str, lines: str, now: float) -> str:
    """Return the file of a pull with what a check found."""
    runs = f'threadwise_smt_pull_run_timestamp_seconds{{host="{host}"}} {int(now)}\n'
    return lines + runs


def own_work(url: str, expected: dict[str, str]) -> dict[str, str]:
    """Do in a process of its own what the call does itself; return the statuses."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        begun, before = time.monotonic(), time.process_time()
        options, now = {"label": None, "names": None, "max_age": None}, datetime.datetime.now(datetime.UTC)
        one = base.Asked(sorted(expected), [], now, options, lambda *_words: None, {"url": url}.get)
        answer = prometheus.SOURCE.read(one)
        asked = time.monotonic() - begun
        check = Check(answer.judged, now, strangers=answer.strangers, notes=answer.notes)
        sizes = {name: len(made.make(check)) for name, made in registry.formats().items()}
        compliance_report.table(answer.judged)
        took, cpu = time.monotonic() - begun, time.process_time() - before
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB
        print(f"own work: {took:.1f} s, of which {asked:.1f} s until all are judged, {cpu:.1f} s of CPU time", end=", ")
        print(f"at most {most:.0f} MiB; bytes of files: {sizes}; notes: {answer.notes}", flush=True)
        with os.fdopen(writer, "w") as stream:
            json.dump({host: result.status for host, result in answer.judged}, stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        found: dict[str, str] = json.load(stream)
    os.waitpid(process, 0)
    return found


def whole_call(place: pathlib.Path, url: str, expected: dict[str, str]) -> None:
    """Call the playbook."""
    place.mkdir()
    hosts: dict[str, None] = dict.fromkeys(expected)
    (place / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    here = pathlib.Path.cwd()
    os.chdir(place)
    variables = {"smt_compliance_source": "prometheus", "smt_compliance_metrics_url": url}
    seconds, kilobytes = bench_compliance.measure(place, [*CALL, "-e", json.dumps(variables)])
    os.chdir(here)
    document = json.loads((place / "smt_compliance.json").read_text())
    load = f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs"
    print(f"the whole call: {seconds:.1f} s, at most {kilobytes / MIB:.0f} MiB in one process ({load})", end=": ")
    print(document["error"] or document["counts"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
