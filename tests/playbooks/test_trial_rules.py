# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trial whose metric is a recording rule: it is refused while its periods count each other's samples, and finds the
effect that was planted once they do not.

Prometheus, its rule and its scrapes are real; what the service does follows the state of the simulated hosts.
"""

from __future__ import annotations

import json
import threading
import time

import prometheus_server
import pytest
from simulated_trial import TrialFleet

HOSTS = [f"web{number}" for number in range(6)]
EFFECT = 1.26
QUERY = 'host:requests:rate6s{host="{{ inventory_hostname }}"}'
RULES = [
    {
        "name": "requests",
        "interval": "1s",
        "rules": [{"record": "host:requests:rate6s", "expr": "sum by (host) (rate(requests_total[6s]))"}],
    }
]
# A second for the evaluation, six for its range, and one for the scrape.
LOOKS_BACK = 8
SAMPLES = 12


class Service:
    """What the hosts serve: 100 requests a second, and more with SMT off."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.totals = dict.fromkeys(HOSTS, 0.0)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self):
        last = time.monotonic()
        while not self.ended.wait(0.05):
            now = time.monotonic()
            for host, on in self.fleet.get("smt").items():
                self.totals[host] += 100 * (1 if on else EFFECT) * (now - last)
            last = now

    def answer(self, handler):
        text = "".join(f'requests_total{{host="{host}"}} {total}\n' for host, total in self.totals.items())
        prometheus_server.send(handler, text, 200, prometheus_server.EXPOSITION)


@pytest.fixture(name="world", scope="module")
def a_world(tmp_path_factory):
    """The fleet, and a function that carries out a trial on it: (exit code, what a person sees, directory)."""
    directory = tmp_path_factory.mktemp("rules")
    (directory / "fleet").mkdir()
    (directory / "prometheus").mkdir()
    fleet = TrialFleet(directory / "fleet", {host: {} for host in HOSTS})
    service = Service(fleet)
    service.thread.start()
    with (
        prometheus_server.serving(service.answer) as address,
        prometheus_server.prometheus(directory / "prometheus", [address.removeprefix("http://")], rules=RULES) as url,
    ):
        # A scrape that is late changes the median of many gaps little.
        while (prometheus_server.number(url, "min(count_over_time(requests_total[1m]))") or 0) < SAMPLES:
            time.sleep(0.1)

        def trial(run, *words, query=QUERY, **variables):
            metric = {
                "name": "requests",
                "query": query,
                "unit": "1/s",
                "better": "higher",
                "primary": True,
                **variables.pop("of_metric", {}),
            }
            code, said = fleet.play(
                "smt_trial",
                "-f",
                "6",
                *words,
                smt_trial_run=run,
                smt_trial_metrics=[metric],
                smt_trial_metrics_url=url,
                smt_trial_check=2,
                # Nine observations, of which six decide: a machine that is busy can lose a period.
                smt_trial_periods=6,
                smt_trial_most_switched="100%",
                smt_trial_after_switch=["true"],
                smt_trial_seed=1,
                **variables,
            )
            return code, " ".join(said.split()), fleet.directory / "smt_trial_results" / run

        yield fleet, trial
    service.ended.set()
    service.thread.join()


@pytest.mark.parametrize("words", [("--check",), ()])
def test_a_trial_whose_periods_count_each_others_samples_is_refused_before_any_switch(world, words):
    fleet, trial = world
    code, said, path = trial("refused", *words, smt_trial_period=10, smt_trial_settle=1)
    assert code != 0
    assert (
        "smt_trial_settle is 1, and requests counts samples from up to 8 s before (the rule host:requests:rate6s is"
        " evaluated every 1 s and looks back 6 s; requests_total has a sample every 1 s): a period would count what was"
        " in the one before. Set smt_trial_settle to 8 or more, and smt_trial_period to 17 to count as much of each"
        " period as with 10" in said
    )
    assert not path.exists() and fleet.changes() == {} and "Traceback" not in said


@pytest.mark.night
def test_a_rule_of_another_server_is_declared_or_no_host_takes_part(world):
    _fleet, trial = world
    query = (
        'sum(elsewhere:rate{host="{{ inventory_hostname }}"}) or host:requests:rate6s{host="{{ inventory_hostname }}"}'
    )
    code, said, _path = trial("elsewhere", "--check", query=query, smt_trial_period=30, smt_trial_settle=20)
    assert (
        code != 0
        and "web0 is left out: it cannot be measured, because how far back requests counts is not known:" in said
    )
    assert (
        "Say it as looks_back of requests in smt_trial_metrics" in said and "no host can take part in the trial" in said
    )
    code, said, _path = trial(
        "elsewhere", "--check", query=query, smt_trial_period=30, smt_trial_settle=20, of_metric={"looks_back": "25s"}
    )
    assert (
        code != 0
        and "requests counts samples from up to 25 s before (its looks_back says so, because elsewhere:" in said
    )
    code, said, _path = trial(
        "elsewhere", "--check", query=query, smt_trial_period=40, smt_trial_settle=25, of_metric={"looks_back": "25s"}
    )
    assert (
        code == 0 and "Of all metrics, requests counts samples from up to 25 s before (its looks_back says so," in said
    )


@pytest.mark.night
def test_with_the_times_that_it_asks_for_the_effect_is_in_its_interval(world):
    fleet, trial = world
    code, said, path = trial("october", smt_trial_period=17, smt_trial_settle=LOOKS_BACK)
    assert code == 0, said
    assert json.loads((path / "trial.json").read_text())["looks_back_seconds"] == LOOKS_BACK
    found = json.loads((path / "results.json").read_text())["comparisons"][0]
    page = " ".join((path / "index.html").read_text().split())
    assert (
        "A value counts samples from up to 8 s before it, and the first 8 s of a period are not counted: none of them"
        " is of another period." in page
    )
    # A machine that is busy ends a switch later than the service knows of it.
    assert found["verdict"] == "gain" and found["ci_low"] - 0.03 <= EFFECT <= found["ci_high"] + 0.03, found
    assert fleet.get("smt") == dict.fromkeys(HOSTS, True)
