# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trial that is refused before any switch; those that are carried out are in test_trial_secrets.py, in
tests/unit/_trial_run and on guests in molecule/smt_trial.
"""

from __future__ import annotations

import json

import prometheus_server
from simulated_trial import TrialFleet
from this_machine import line


def test_a_trial_whose_periods_count_each_others_samples_is_refused_before_any_switch(tmp_path):
    """The server does not know how its rule is made: the user says how far it looks back."""
    fleet = TrialFleet(tmp_path, {"web0": {}, "web1": {}})
    number = json.dumps({"status": "success", "data": {"resultType": "scalar", "result": [1e9, "5"]}})
    metric = {"name": "requests", "query": "vector(5)", "looks_back": "25s", "better": "higher", "primary": True}
    times = {"smt_trial_period": 30, "smt_trial_settle": 20, "smt_trial_check": 2, "smt_trial_periods": 6}
    with prometheus_server.serving(lambda handler: prometheus_server.send(handler, number)) as url:
        asked = {"smt_trial_run": "one", "smt_trial_metrics": [metric], "smt_trial_metrics_url": url, **times}
        code, said = fleet.play("smt_trial", **asked, smt_trial_after_switch=["true"])
    assert code != 0 and "smt_trial_settle is 20, and requests counts samples from up to 25 s before" in line(said)
    assert "Set smt_trial_settle to 25 or more" in line(said), said
    assert not (tmp_path / "smt_trial_results").exists() and fleet.changes() == {}
