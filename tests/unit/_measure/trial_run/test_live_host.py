# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live host after a switch: whether the service follows its CPUs."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import live_host

RESTART = ("systemctl", "restart", "nginx")


class Calls:
    """A host whose nginx has four workers, or as many as its last start found."""

    def __init__(self, workers=4, code=0, others=1):
        self.workers, self.code, self.others, self.ran, self.asked = workers, code, others, [], []

    def ask(self, module, arguments, _seconds):
        assert module == "smt_trial_workers"
        self.asked.append(arguments["cpus"])
        if arguments["cpus"] != self.workers:
            return {"workers": [], "consumers": []}
        return {
            "workers": [{"unit": "ingest.service", "name": "ingest", "kind": "processes"}] * self.others,
            "consumers": [{"unit": "nginx.service", "has": "4 worker processes for 4 CPUs"}],
        }

    def run(self, command, _most):
        self.ran.append(command)
        return {"rc": self.code, "stdout": "", "stderr": "no such unit"}


NAMED = "nginx.service (4 worker processes for 4 CPUs), ingest.service (4 processes ingest)"
THESE = "these still run as with the CPUs from before,"


@pytest.mark.parametrize(
    ("hook", "calls", "said"),
    [
        ((), Calls(), f"{THESE} and smt_trial_consumers does not make them follow: {NAMED}"),
        (RESTART, Calls(), f"{THESE} although systemctl restart nginx was run: {NAMED}"),
        (RESTART, Calls(code=5), "systemctl restart nginx ended with 5: no such unit"),
        (RESTART, Calls(workers=2), None),
    ],
)
def test_services_that_did_not_count_their_cpus_again_are_named_once(hook, calls, said):
    host = live_host.AnsibleHost(calls, {}, hook)
    assert host.after_switch(4) == said
    if not calls.code:
        # Back to four CPUs: nobody believes in two, unless the service has just been started.
        host.after_switch(2)
        assert host.after_switch(4) is None and calls.asked == [4, 2] and calls.ran == [" ".join(hook)] * 3 * bool(hook)


def test_where_there_are_many_it_is_said_how_many():
    said = live_host.AnsibleHost(Calls(others=live_host.MAX_NAMED + 1), {}).after_switch(4)
    assert said.count("ingest.service") == live_host.MAX_NAMED - 1 and said.endswith(" and 2 more")
