# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose siblings count: the kernel's, measured ones, or those that a user names;
what is not valid or not known is refused with the reason.
"""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import cache as sibling_cache, source
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    snapshot as smt_snapshot,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.errors import SmtError
from fake_host import Host
from fake_kernel import numbered_cores

FOUR = Topology(
    present=(0, 1, 2, 3), online=(0, 1, 2, 3), cores=((0,), (1,), (2,), (3,)), source="sysfs", complete=True
)


def measured(**changes):
    found = {"cpus": "0-3", "pairs": ["0-1", "2-3"], "singles": "", "unclear": "", "ratios": [], "rounds": 60}
    return {**found, "seconds": 3.0, "confidence": 0.99, "agrees_with_kernel": False, **changes}


@pytest.mark.parametrize(
    ("given", "cores"),
    [
        ("kernel", FOUR.cores),
        ("measured", ((0, 1), (2, 3))),
        ([[2, 3], [0, 1]], ((0, 1), (2, 3))),
        (["0,2", "1,3"], ((0, 2), (1, 3))),
        ([["0", "3"]], ((0, 3), (1,), (2,))),
    ],
)
def test_what_can_be_asked_for(given, cores):
    found = source.applied(FOUR, given, measured())
    kind = given if isinstance(given, str) else "declared"
    assert found.cores == cores and found.complete and found.source == {"kernel": "sysfs"}.get(kind, kind)
    method = "auto" if kind == "kernel" else "cpu_online"
    assert (source.method(found), source.described(found) is None) == (method, kind == "kernel")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("guessed", "siblings is 'guessed': give kernel, measured, or the CPUs of each core"),
        ("", "siblings is ''"),
        ([], r"siblings is \[\]"),
        ({"a": 1}, "siblings is {'a': 1}"),
        (7, "siblings is 7"),
        ([[0, 1], [1, 2]], "siblings names CPU 1 in more than one core"),
        ([[0, 1], []], "siblings has a core without CPUs"),
        ([[0, "x"]], r"siblings has the core \[0, 'x'\]: .*not a valid CPU list"),
        ([[0, -1]], "siblings has the core"),
        ([{"a": 1}], "siblings has the core"),
        (["0-4095"] * 4096, "lists more than 64 CPUs"),
        ([list(range(100))], "siblings has the core"),
        ([[0, 9]], "siblings names CPU 9, which this host does not have: it has CPUs 0-3"),
    ],
)
def test_what_is_not_valid_is_refused(given, reason):
    with pytest.raises(source.SiblingsError, match=reason):
        source.applied(FOUR, given, None)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "were not measured since it booted"),
        (measured(pairs=["0-1"], unclear="2-3"), "not clear which CPUs share a core with CPUs 2-3"),
        (measured(pairs=["0-1"], cpus="0-1"), "the siblings of CPUs 2-3 were not measured"),
    ],
)
def test_measured_siblings_have_to_be_sure(found, reason):
    with pytest.raises(source.SiblingsError, match=reason + ".*measure again on an idle host.*or name the siblings"):
        source.applied(FOUR, "measured", found)


@pytest.fixture(name="misled")
def host_whose_kernel_shows_no_siblings(tmp_path):
    host = Host(tmp_path, numbered_cores(4, 1, "adjacent"), control="notsupported")
    sibling_cache.save(HostFs(tmp_path), measured())
    return host


def test_disabled_and_restored_by_measured_siblings(misled):
    before = smt_state.read(files=misled)
    with pytest.raises(SmtError, match="no core has a second thread"):
        misled.ask(threads=2)
    assert misled.ask("disabled", siblings="measured", check=True)["after"]["online"] == "0,2"
    assert smt_state.read(files=misled) == before
    assert misled.ask("disabled", siblings="measured")["changed"]
    assert smt_state.read(files=misled)["online"] == [0, 2]
    assert not misled.ask("disabled", siblings="measured")["changed"]
    seen = smt_snapshot.seen_cores(HostFs(misled.sysroot))
    assert seen == [[0], [1], [2], [3]], "what is saved is what the kernel shows"
    assert misled.ask("enabled", siblings=[[0, 1], [2, 3]])["changed"]
    assert smt_state.read(files=misled) == before
    misled.ask("disabled", siblings=["0,2", "1,3"])
    assert smt_state.read(files=misled)["online"] == [0, 1]
    assert misled.ask("restored", siblings="measured")["changed"]
    assert (smt_state.read(files=misled), misled.saved()) == (before, None)


def test_restoring_needs_no_siblings(misled):
    misled.ask("disabled", siblings="measured")
    misled.boot("another")
    with pytest.raises(source.SiblingsError, match="were not measured since it booted"):
        misled.ask("disabled", siblings="measured")
    misled.boot("first")
    misled.put(sibling_cache.PATH, "damaged")
    misled.ask("restored", siblings="measured")
    assert smt_state.read(files=misled)["online"] == [0, 1, 2, 3]


def test_the_kernels_control_is_not_used_for_other_siblings(tmp_path):
    host = Host(tmp_path)
    with pytest.raises(SmtError, match="these are declared: use the method auto or cpu_online"):
        host.ask("disabled", siblings=[[0, 2], [1, 3]], method="smt_control")
    host.ask("disabled", siblings=[[0, 2], [1, 3], [4, 6], [5, 7]])
    state = smt_state.read(files=host)
    assert (state["control"], state["online"]) == ("on", [0, 1, 4, 5])
    host.ask("disabled")
    assert smt_state.read(files=host)["online"] == [0, 2, 4, 6], "one thread of each of the kernel's cores"
    host.ask("restored")
    assert smt_state.read(files=host)["online"] == list(range(8))


def test_facts_arms_and_placements_follow_them(misled):
    filesystem = HostFs(misled.sysroot)
    kernels = smt_facts.gather(filesystem)
    assert (kernels["source"], kernels["supported"], kernels["cores"]) == ("sysfs", False, 4)
    facts = smt_facts.gather(filesystem, "measured")
    wanted = {"source": "measured", "supported": True, "active": True, "cores": 2, "sibling_groups": ["0-1", "2-3"]}
    wanted.update(numbering="adjacent", complete=True)
    assert {name: facts[name] for name in wanted} == wanted
    assert facts["hardware_class"] == kernels["hardware_class"]
    reasons = facts["methods"]["runtime"]["impossible"]
    assert reasons["smt_control"] == "smt/control knows only the kernel's siblings, and these are measured"
    assert "recorded tree" in reasons["cpu_online"], "not that there is no sibling"
    is_saved = topology_cache.save(filesystem, source.read(filesystem, "measured"))
    assert not is_saved, "only what the kernel shows is saved"
