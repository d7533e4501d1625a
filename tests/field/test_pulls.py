# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about hosts that pull their configuration and stopped, went back, or said that all was well, each on a
host with smt_pull; and about waivers.
"""

import datetime

import compliance_maker
import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.action import smt_status
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull import program
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import policy, rollout, waivers
from pulling import Place, git


@pytest.fixture(name="place")
def a_place(tmp_path):
    place = Place(tmp_path)
    place.pull(now=1e9)
    place.enforced()
    return place


LOCKS = ["refs/smt-pull/offered.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "objects/info/commit-graph.lock"]


def locked(place):
    for lock in LOCKS:
        path = place.directory / "state/pulled/repository.git" / lock
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def changed(place):
    (place.directory / "state/pulled/commits" / place.first / "policy").write_text("x")


def renamed(place):
    git(place.repository, "checkout", "-q", "-b", "trunk")
    git(place.repository, "branch", "-qD", "main")


CASES = {"agenc_49": locked, "ansible_29574": changed, "ansible_14398": renamed}


@pytest.mark.parametrize("happens", CASES.values(), ids=CASES)
def test_lock_files_local_changes_and_another_branch_do_not_stop_updates(place, happens):
    happens(place)
    newer = place.commit("compliant")
    place.pull()
    assert place.enforced() == [newer] and place.value("pull_success") == 1


def test_ansible_84863_what_failed_is_tried_again_without_a_new_commit(place):
    broken = place.commit("broken")
    place.pull()
    tool = place.directory / "bin/ansible-playbook"
    mended = tool.read_text().replace('== "broken"', '== "mended"')
    tool.write_text(mended.replace('"status": policy', '"status": "compliant"'))
    place.pull()
    assert place.enforced() == [place.first, broken]


def test_flux_696_a_rewritten_branch_is_taken_without_signatures(place):
    git(place.repository, "commit", "-q", "--amend", "-m", "another")
    place.pull()
    assert place.enforced() == [git(place.repository, "rev-parse", "HEAD")]


def test_nagios_plugins_8_and_node_exporter_713_an_earlier_commit_or_no_result_is_no_success(
    place,
):
    place.commit("broken")
    place.pull(now=2e9)
    names = ("compliant", "pull_success", "pull_last_success_timestamp_seconds")
    assert [place.value(name) for name in names] == [1, 0, 1e9]
    (place.directory / "bin/ansible-playbook").write_text("#!/bin/sh\nexit 1\n")
    place.pull(now=3e9)
    names = ("compliant", "pull_success", "pull_run_timestamp_seconds")
    assert [place.value(name) for name in names] == [0, 0, 3e9]


NOW = datetime.datetime(2021, 6, 17, 12, tzinfo=datetime.UTC)


def of(until):
    return waivers.parse(yaml.safe_load(f"{{until: {until}, reason: x, owner: y}}"))


def drifted(waiver, now=NOW):
    return compliance_maker.found("drifted").under(waiver, now)


def test_inspec_5037_5570_cloud_custodian_1019_and_ggshield_872_days_and_moments_with_and_without_a_zone():
    for until in ("2021-07-07", "'2021-07-07'", '"2021-07-07T00:00:00Z"', "2021-07-07T00:00:00Z"):
        assert of(until).until == datetime.date(2021, 7, 7) and drifted(of(until)).status == "waived"
    for until in ("2021-06-17T00:00:00", "2021-06-17T00:00:00+02:00", "2021-06-16"):
        assert of(until).days_left(NOW.astimezone()) in (0, -1)


@pytest.mark.parametrize("value", [yaml.safe_load("2021-07-07"), {"threads_per_core": yaml.safe_load("2021-07-07")}])
def test_inspec_7391_a_day_of_yaml_where_none_is_expected(value):
    with pytest.raises(policy.PolicyError, match="2021-07-07"):
        policy.check(smt_status._plain(value), None)


def test_kyverno_17473_an_exception_that_is_over_for_one_part_and_not_for_another():
    before, after = drifted(of("2021-06-17")), drifted(of("2021-06-16"))
    for one, is_waived in ((before, True), (after, False)):
        assert one.status.row.is_fine == is_waived == one.is_excused
        assert rollout.is_pending(one, reboot_ok=True) != is_waived
        assert one.status in program.VERDICTS
