# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arms of an evaluation: which are measured, in which order, what is switched and restored between them.

Real arms are switched in guests (molecule/).
"""

from __future__ import annotations

import collections
import itertools
import json
import typing

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base, catalogue, registry
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import order, selection
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results

ORIGIN = {"control": "on", "active": True, "online": [0, 1], "present": [0, 1]}
TOPOLOGY = Topology(present=(0, 1), online=(0, 1), cores=((0, 1),), packages=((0, 1),), source="sysfs", complete=True)
HOST = base.ArmHost({}, TOPOLOGY, ORIGIN)


class Fan(base.RuntimeArm):
    """An arm with a number in its name, on a host that is a dict."""

    pattern = "fan_[0-9]+"
    lever = "fan"
    host_is: typing.ClassVar = {}

    def examine(self, host):
        super().examine(host)
        self.settings = {"speed": int(self.name.partition("_")[2])}
        self.reason = f"this {self.lever} has 9 speeds" if self.settings["speed"] > 9 else None

    def restoration(self):
        return f"the {self.lever}"

    def switch(self):
        self.host_is[self.lever] = self.settings["speed"]
        self.host_is["log"].append(self.name)

    def observe(self):
        return {"settings": {"speed": self.host_is[self.lever]}}

    def prove(self):
        if self.host_is[self.lever] != self.settings["speed"]:
            raise base.ArmError(f"the {self.lever} has speed {self.host_is[self.lever]}")

    def save(self):
        return {"speed": self.host_is[self.lever]}

    @classmethod
    def states(cls, files, saved):
        return {f"{cls.lever}.speed": saved["speed"]}, {f"{cls.lever}.speed": cls.host_is[cls.lever]}

    def restore(self, saved):
        if "stuck" in self.host_is:
            return ["the fan is stuck"]
        self.host_is[self.lever] = saved[self.lever]["speed"]
        self.host_is["log"].append("restored")
        return []


class Lamp(Fan):
    """An arm with another lever."""

    pattern = "lamp_[0-9]+"
    lever = "lamp"


class Steady(Lamp):
    """A lamp that knows whether it is as found."""

    pattern = "steady_[0-9]"

    def examine(self, host):
        super().examine(host)
        self.is_as_found = self.settings["speed"] == 0


@pytest.fixture(autouse=True)
def _two_more_arms(monkeypatch):
    monkeypatch.setattr(registry, "ARMS", (*registry.ARMS, (Fan, Lamp, Steady)))
    monkeypatch.setattr(Fan, "host_is", {"fan": 1, "lamp": 0, "log": []})


def chosen(*names):
    found = selection.Arms(names, HOST)
    found.begin(found.save())
    return found


def speeds():
    return Fan.host_is["fan"], Fan.host_is["lamp"]


@pytest.mark.parametrize(
    ("names", "measured", "left_out", "reason"),
    [
        (["as_found", "fan_12", "fan_3"], ["as_found", "fan_3"], ["fan_12"], "this fan has 9 speeds"),
        # Without a baseline or with one arm nothing is compared.
        (["fan_12", "fan_3", "fan_4"], ["as_found"], ["fan_12", "fan_3", "fan_4"], "this fan has 9 speeds"),
        (["fan_3"], ["as_found"], ["fan_3"], "there is nothing to compare it with: no other arm was asked for"),
        (["as_found"], ["as_found"], [], None),
        # A level that the host has already is not measured twice.
        (["as_found", "steady_0", "fan_5__steady_0"], None, ["steady_0"], "already in effect"),
        (["fan_1", "fan_1__steady_0", "fan_5"], ["fan_1", "fan_5"], ["fan_1__steady_0"], "already in effect"),
        (["fan_1", "steady_0", "fan_5__steady_0"], None, [], None),
    ],
)
def test_an_arm_that_the_host_cannot_have_is_left_out_with_its_reason(names, measured, left_out, reason):
    found = chosen(*names)
    assert found.names == (measured or [name for name in names if name not in left_out])
    assert [arm["name"] for arm in found.left_out] == left_out and found.compared == (len(found.names) > 1)
    assert reason is None or reason in found.left_out[0]["reason"]
    if not found.compared:
        assert found.reason == (found.left_out[0]["reason"] if left_out else found.reason)


ALONE = "Nothing will be switched: no other arm than the host as found was asked for."
PLACEMENTS = "The placements that exist on this host will be measured for about 5 min, or less once enough is known."
SWITCHED = "The host will be switched between {} many times, for about 5 min, or less once enough is known."
RESTORED = "Then the present state of {} is restored, also when the run fails or loses its controller."
PAIRS = ("fan_2__lamp_3", "fan_2__lamp_4", "fan_5__lamp_3", "fan_5__lamp_4")


@pytest.mark.parametrize(
    ("names", "place", "sentence"),
    [
        (["as_found"], 0, ALONE),
        (["as_found", "fan_3", "lamp_1"], 0, SWITCHED.format("as found, fan 3 and lamp 1")),
        (["as_found", "fan_3", "lamp_1"], 1, "as found, about 100 s in all: nothing is switched."),
        (["as_found", "fan_3"], -1, RESTORED.format("the fan")),
        (PAIRS, -1, RESTORED.format("the fan and the lamp")),
    ],
)
def test_what_is_switched_is_said_before(names, place, sentence):
    assert chosen(*names).announcement(300)[place] == sentence


@pytest.mark.parametrize(
    ("names", "after"),
    [
        # Arms with one lever replace each other.
        ("fan_2 fan_3 fan_2", [(2, 0), (3, 0), (2, 0)]),
        # The lever of the previous arm is restored first.
        ("fan_3 lamp_8 as_found", [(3, 0), (1, 8), (1, 0)]),
        (" ".join(PAIRS), [(2, 3), (2, 4), (5, 3), (5, 4)]),
        ("fan_5__lamp_4 fan_6 as_found", [(5, 4), (6, 0), (1, 0)]),
    ],
)
def test_arms_are_switched_and_what_others_switched_is_restored(names, after):
    found = chosen(*dict.fromkeys(names.split()))
    saved = found.save()
    assert (saved["fan"], saved.get("lamp", {"speed": 0})) == ({"speed": 1}, {"speed": 0})
    for name, speed in zip(names.split(), after):
        found.switch(name)
        found.prove(name)
        assert speeds() == speed
    # Each lever once.
    Fan.host_is["log"].clear()
    assert found.restore(saved) == [] and speeds() == (1, 0)
    assert Fan.host_is["log"] == ["restored"] * (len(saved) - 1)


def test_a_host_that_was_prepared_is_as_found_in_that_arm():
    found = chosen("as_found", "fan_3")
    Fan.host_is["fan"] = 5
    found.switch("as_found")
    assert speeds() == (1, 0)


def test_an_arm_that_cannot_be_undone_ends_the_evaluation():
    found = chosen("as_found", "fan_3")
    found.switch("fan_3")
    Fan.host_is["stuck"] = True
    with pytest.raises(base.ArmError, match=r"fan 3 could not be undone: the fan is stuck"):
        found.switch("as_found")
    assert found.restore({"fan": {"speed": 1}}) == ["the fan is stuck"]


def test_an_arm_whose_state_was_not_saved_is_left_out():
    """Its possibility came to light when the siblings had come online: nobody could restore what it changes."""
    found = selection.Arms(("as_found", "fan_3", "lamp_1"), HOST, saved={"cpu": ORIGIN, "fan": {"speed": 1}})
    assert found.names == ["as_found", "fan_3"] and "was not saved" in found.left_out[0]["reason"]


def test_what_differs_is_said_by_each_lever(tmp_path):
    saved = {"cpu": ORIGIN, "fan": {"speed": 1}, "lamp": {"speed": 0}}
    (tmp_path / "sys/devices/system/cpu/smt").mkdir(parents=True)
    for name, text in (("online", "0-1"), ("present", "0-1"), ("smt/control", "on"), ("smt/active", "1")):
        (tmp_path / "sys/devices/system/cpu" / name).write_text(text)
    files = KernelFiles(str(tmp_path))
    assert selection.differences(saved, files=files)["ok"]
    Fan.host_is["fan"] = 4
    found = selection.differences(saved, ["the fan is stuck"], files)
    assert found["differences"] == ["the fan is stuck", "fan.speed was 1, is 4"] and not found["ok"]
    assert found["before"]["settings"] == {"fan.speed": 1, "lamp.speed": 0}
    document = {**result_maker.result(), "restored": found}
    assert results.parse(json.dumps(document), "a host").restored.after.settings["fan.speed"] == 4


def test_more_work_in_one_of_two_arms_is_more_work_in_both():
    """The known effect beside another factor: as_found switches nothing, and neither does more work."""
    assert catalogue.get("fan_2__more_work_5").more_work == 1.05 and catalogue.get("fan_2__lamp_3").more_work == 1


NO_ARM = [*("fan_2__fan_3", "fan_2__", "__fan_2", "fan_2__nosmt", "fan_2__x", "smt_on__smt_off", "fan_2____lamp_3")]
NO_ARM += [*("fan_2__lamp_3__smt_on", "fan_2__x__lamp_3", "x__fan_2__lamp_3", "fan_", "Fan_3", "fan_3\n", "fan_3x", "")]


@pytest.mark.parametrize("name", [*NO_ARM, "../fan_3", "smt_on "])
def test_what_cannot_be_combined_or_does_not_match_whole_is_no_arm(name):
    with pytest.raises(base.ArmError, match="there is no arm"):
        catalogue.check(["as_found", name])
    assert catalogue.title(name) is None


THP = ["thp_always", "thp_never"]
SMT = ["smt_on", "smt_off"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([SMT], "are not two factors of two arms each"),
        ("smt_on,smt_off", "are not two factors of two arms each"),
        ([["smt_on", 3], THP], "3 is not an arm"),
        ([["smt_on", "smt_of"], THP], "there is no arm 'smt_of'"),
        ([SMT, SMT], "smt_on cannot be combined: both switch the same thing"),
        # Huge pages are not available to what a policy lets programs ask for: each alone may be safe, and both not.
        (
            [["overcommit_always", "overcommit_strict"], ["hugepages_0", "hugepages_2"]],
            "both take of memory or limit it",
        ),
        ([["smt_on__thp_never", "smt_off"], ["fan_2", "fan_5"]], "one of them is two arms already"),
    ],
)
def test_what_are_no_factors_is_said(given, said):
    with pytest.raises(base.ArmError) as refused:
        catalogue.of_factors(given)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "factors",
    [
        [["fan_2", "fan_5"], ["lamp_3", "lamp_4"]],
        [THP, ["smt_on", {"smt_off_on": {"cpus": "0-7"}}]],
        [["smt_on", {"one_thread_per_core": {"unit": "my__svc.service"}}], THP],
    ],
)
def test_factors_are_all_levels_of_one_with_all_of_the_other(factors):
    names = catalogue.of_factors(factors)
    assert len(names) == 4 and all(len(catalogue.get(name).made_of) == 2 for name in names)
    assert factors[0][0] != "fan_2" or tuple(names) == PAIRS
    for name in names:
        document = json.dumps(result_maker.result()).replace('"smt_off"', json.dumps(name))
        assert results.parse(document, "a host").arms[1].name == name


LETTERS = "abcdefgh"


@pytest.mark.parametrize("count", range(1, 9))
def test_each_arm_follows_each_other_one_equally_often_and_takes_each_place_equally_often(count):
    rows = [order.of_block(LETTERS[:count], block) for block in range(count if count % 2 == 0 else 2 * count)]
    assert all(sorted(row) == sorted(LETTERS[:count]) for row in rows)
    follows = collections.Counter(pair for row in rows for pair in itertools.pairwise(row))
    places = collections.Counter(place for row in rows for place in enumerate(row))
    assert len(follows) == count * (count - 1) and len(set(follows.values())) <= 1
    assert len(places) == count * count and len(set(places.values())) == 1


def test_two_arms_alternate_and_the_baseline_begins():
    assert [order.of_block("ab", block) for block in range(4)] == [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]]
    assert order.of_block("abc", 0)[0] == "a"
