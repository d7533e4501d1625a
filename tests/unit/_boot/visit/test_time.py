# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a host of an evaluation by boots has no sign of its controller before it goes back, as the role says it."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible import template
from ansible.parsing.dataloader import DataLoader

VARS = pathlib.Path(__file__).resolve().parents[4] / "roles/smt_eval/vars/main.yml"


@pytest.mark.parametrize(
    ("hosts", "forks", "timeout", "seconds"),
    [
        (1, 5, None, 1200),
        (1, 5, 1800, 2400),
        (5, 5, None, 1200 + 1860),
        (6, 5, None, 1200 + 2 * 1860),
        (12, 5, None, 1200 + 3 * 1860),
        (100, 50, "900", 1500 + 2 * 1860),
    ],
)
def test_hosts_of_a_play_wait_for_each_other(hosts, forks, timeout, seconds):
    written = yaml.safe_load(VARS.read_text(encoding="utf-8"))["__smt_eval_visit_seconds"]
    known = {"ansible_play_batch": ["db"] * hosts, "ansible_forks": forks, "__smt_eval_plan": {"share": 60}}
    if timeout is not None:
        known["smt_boot_reboot_timeout"] = timeout
    # Releases before 2.19 trust each text.
    trusted = getattr(template, "trust_as_template", str)(written)
    assert int(template.Templar(loader=DataLoader(), variables=known).template(trusted)) == seconds
