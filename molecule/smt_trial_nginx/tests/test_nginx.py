# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""nginx under more clients than it can serve, seen by a real Prometheus: a trial finds what the guests' pins say."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples/trial"
sys.path.insert(0, str(EXAMPLE))
import laboratory

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
INVENTORY = EPHEMERAL / "inventory"
OWN = ("smt-nginx-own-1", "smt-nginx-own-2")
SHARED = ("smt-nginx-shared-1", "smt-nginx-shared-2")
# More than a guest with all its CPUs can serve.
RATE = 120
MARGIN = 0.1


@pytest.fixture(scope="module", autouse=True)
def a_service():
    laboratory.serve((*OWN, *SHARED), INVENTORY, 10000)


def trial(names, tmp_path):
    """Play a trial of guests that cannot serve all that they are asked for; return its results."""
    with contextlib.ExitStack() as stack:
        pages = {name: laboratory.address(name, laboratory.PAGES) for name in names}
        seen = stack.enter_context(
            laboratory.clients(pages, tmp_path, "--rate", str(RATE), "--swing", "0.2", "--day", "100")
        )
        nodes = {name: laboratory.address(name, laboratory.NODE) for name in names}
        url = stack.enter_context(laboratory.prometheus(seen, nodes, tmp_path))
        metrics = [
            {
                "name": "pages",
                "query": 'rate(page_seconds_count{host="{{ inventory_hostname }}"}[10s])',
                "unit": "1/s",
                "better": "higher",
                "primary": True,
            }
        ]
        variables = {
            "smt_trial_metrics_url": url,
            "smt_trial_metrics": metrics,
            # Clients that go away are what is planted.
            "smt_trial_guardrails": [],
            "smt_trial_traffic": "",
            "smt_trial_margin": MARGIN,
            "smt_trial_most_switched": 2,
            "smt_trial_periods": 24,
            "smt_trial_run": names[0],
            "smt_trial_dest": str(EPHEMERAL / "trials"),
            "smt_trial_hosts": ",".join(names),
        }
        # Written, not templated: a query has braces of its own.
        (tmp_path / "trial.json").write_text(json.dumps(variables))
        laboratory.play(
            INVENTORY,
            "threadwise.smt.smt_trial",
            "-e",
            f"@{EXAMPLE / 'trial.yml'}",
            "-e",
            f"@{tmp_path / 'trial.json'}",
        )
    results = json.loads((EPHEMERAL / "trials" / names[0] / "results.json").read_text())
    (one,) = results["comparisons"]
    print(
        f"{names[0]}: {one['verdict']}, ratio {one['ratio']:.3f}, {one['ci_low']:.3f} to {one['ci_high']:.3f},"
        f" {one['n']} observations, {one['looks']} looks"
    )
    return one


def test_siblings_with_their_own_cpus_lose_half(tmp_path):
    one = trial(OWN, tmp_path)
    assert one["verdict"] == "loss" and one["ci_low"] < 0.5 < one["ci_high"], one


def test_siblings_that_share_a_cpu_lose_nothing(tmp_path):
    one = trial(SHARED, tmp_path)
    assert one["verdict"] == "equivalent" and one["ci_low"] < 1 < one["ci_high"], one
