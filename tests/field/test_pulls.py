# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about hosts that pull their configuration and stopped, went back, or said that all was well:
each on a host with smt_pull.
"""

from __future__ import annotations

import pytest
from pulling import Place, git


@pytest.fixture(name="place")
def a_place(tmp_path):
    place = Place(tmp_path)
    place.pull(now=1e9)
    place.enforced()
    return place


LOCKS = ["refs/smt-pull/offered.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "objects/info/commit-graph.lock"]


def locked(place):
    """Leave the files of a killed git."""
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


def test_nagios_plugins_8_an_earlier_commit_in_use_is_no_success(place):
    place.commit("broken")
    place.pull(now=2e9)
    names = ("compliant", "pull_success", "pull_last_success_timestamp_seconds")
    assert [place.value(name) for name in names] == [1, 0, 1e9]


def test_node_exporter_713_nothing_is_left_of_a_check_that_came_to_nothing(place):
    assert place.value("compliant") == 1
    (place.directory / "bin/ansible-playbook").write_text("#!/bin/sh\nexit 1\n")
    place.pull(now=2e9)
    names = ("compliant", "pull_success", "pull_run_timestamp_seconds")
    assert [place.value(name) for name in names] == [0, 0, 2e9]
