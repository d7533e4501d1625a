# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of exceptions with an end in other tools, each tried on ours. A test is named after its source."""

from __future__ import annotations

import datetime

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.action import smt_status
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull import program
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, policy, rollout, waivers

NOW = datetime.datetime(2021, 6, 17, 12, tzinfo=datetime.UTC)


def of(until):
    return waivers.parse(yaml.safe_load(f"{{until: {until}, reason: x, owner: y}}"))


def drifted(waiver, now=NOW):
    return waivers.applied(compliance.refused("x", compliance.DRIFTED), waiver, now)


@pytest.mark.parametrize("until", ["2021-07-07", "'2021-07-07'", '"2021-07-07T00:00:00Z"', "2021-07-07T00:00:00Z"])
def test_inspec_5037_and_5570_a_day_that_is_a_text_or_has_a_time(until):
    assert of(until).until == datetime.date(2021, 7, 7) and drifted(of(until))["status"] == "waived"


@pytest.mark.parametrize("value", [yaml.safe_load("2021-07-07"), {"threads_per_core": yaml.safe_load("2021-07-07")}])
def test_inspec_7391_a_day_of_yaml_where_none_is_expected(value):
    with pytest.raises(policy.PolicyError, match="2021-07-07"):
        policy.check(smt_status._plain(value), None)


@pytest.mark.parametrize("until", ["2021-06-17T00:00:00", "2021-06-17T00:00:00+02:00", "2021-06-16"])
def test_cloud_custodian_1019_and_ggshield_872_moments_with_and_without_a_zone_are_compared(until):
    assert of(until).days_left(NOW.astimezone()) in (0, -1)


def test_kyverno_17473_an_exception_that_is_over_for_one_part_and_not_for_another():
    before, after = drifted(of("2021-06-17")), drifted(of("2021-06-16"))
    for one, is_waived in ((before, True), (after, False)):
        assert (one["status"] in compliance.FINE) == is_waived == waivers.in_force(one)
        assert rollout.is_pending({**one, "running": None}, reboot_ok=True) != is_waived
        assert one["status"] in program.VERDICTS
