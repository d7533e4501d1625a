# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a page has to say beside a number, so that nobody takes it for more than it is."""

from __future__ import annotations

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion
from result_maker import analysed

OF_EACH = "answers latency_p99 is that of each worker, and with SMT on 8 workers and with SMT off 4 workers ran at once"


def concluded(aggregate, names=("all_threads",), blocks=6):
    """A time of each worker that grows with how many of them run."""
    answers = {
        "title": "answers",
        "metrics": {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": aggregate}},
        "model": lambda _arm, _spot, placed: [1.0 + 0.1 * len(placed)] * len(placed),
    }
    return conclusion.conclude(
        analysed(result_maker.result(workloads={"own": answers}, shape=(1, 4, 2), blocks=blocks, names=names))
    )


@pytest.mark.parametrize("aggregate", ["max", "mean", "mean_per_job"])
def test_a_time_of_each_worker_is_none_of_what_more_of_them_did_together(aggregate):
    found = concluded(aggregate)
    # Which side did more work is only asked where it is no response time.
    assert found["recommendation"] == ("off" if aggregate == "max" else "undecided") and any(
        one.startswith(OF_EACH) for one in found["cautions"]
    )


@pytest.mark.parametrize(
    ("aggregate", "names"), [("per_job", ("all_threads",)), ("max", ("cores",)), ("mean", ("free_6", "free_12"))]
)
def test_as_many_workers_or_a_time_of_all_need_no_such_word(aggregate, names):
    assert not any("of each worker" in one for one in concluded(aggregate, names)["cautions"])


@pytest.mark.parametrize(("noise", "fewer"), [(0.005, False), (0.2, True)])
def test_no_host_needs_fewer_blocks_than_a_verdict(noise, fewer):
    document = result_maker.result(blocks=3, noise=noise, shape=(1, 2, 2), names=("all_threads",))
    step = conclusion.conclude(analysed(document))["next"]
    assert step.startswith("To decide, measure about") and step.endswith("a quieter host needs fewer.") is fewer


@pytest.mark.parametrize(
    ("server", "compared", "number"), [(True, True, 1), (True, True, 5), (False, True, 1), (True, False, 1)]
)
def test_a_server_that_did_not_count_its_cpus_again_is_named(server, compared, number):
    document = result_maker.result(blocks=3, shape=(1, 2, 2), names=("all_threads",), compared=compared)
    counts = {"program": "nginx", "unit": "nginx.service", "is_service": True, "counted": 4, "cpus": 2}
    counts.update(has="nginx.service has 4 worker processes for 4 CPUs", remedy="restart it")
    document["facts"]["consumers_after_switch"] = [counts] * number
    for workload in document["plan"]["workloads"]:
        workload["server"] = server
    said = [one for one in conclusion.conclude(analysed(document))["cautions"] if "that they had counted" in one]
    assert len(said) == (server and compared)
    assert ("and 2 more." in "".join(said)) is (number == 5)
