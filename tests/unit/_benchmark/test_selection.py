# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arms of an evaluation: which are measured, what is switched and restored between them.

Real arms are switched in guests (molecule/).
"""

from __future__ import annotations

import json
import re
import typing

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._arms import base, catalogue, registry
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import selection
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results

ORIGIN = {"control": "on", "active": True, "online": [0, 1], "present": [0, 1]}
TOPOLOGY = Topology(
    present=(0, 1), online=(0, 1), isolated=(), cores=((0, 1),), packages=((0, 1),), source="sysfs", complete=True
)
HOST = base.Host({}, TOPOLOGY, ORIGIN)


class Fan(base.RuntimeArm):
    """An arm with a number in its name, on a host whose fan is a dict."""

    pattern = "fan_[0-9]+"
    lever = "fan"
    host_fan: typing.ClassVar = {"speed": 1, "log": [], "stuck": False}

    def examine(self, host):
        super().examine(host)
        self.settings = {"speed": int(self.name.partition("_")[2])}
        self.reason = "this fan has 9 speeds" if self.settings["speed"] > 9 else None

    def restoration(self):
        return "the fan"

    def switch(self):
        self.host_fan["speed"] = self.settings["speed"]
        self.host_fan["log"].append(self.name)

    def observe(self):
        return {"settings": {"speed": self.host_fan["speed"]}}

    def prove(self):
        if self.host_fan["speed"] != self.settings["speed"]:
            raise base.ArmError(f"the fan has speed {self.host_fan['speed']}")

    def save(self):
        return {"speed": self.host_fan["speed"]}

    @classmethod
    def states(cls, files, saved):
        return {"fan.speed": saved["speed"]}, {"fan.speed": cls.host_fan["speed"]}

    def restore(self, saved):
        if self.host_fan["stuck"]:
            return ["the fan is stuck"]
        self.host_fan["speed"] = saved["fan"]["speed"]
        self.host_fan["log"].append("restored")
        return []


class Lamp(Fan):
    """An arm with another lever."""

    pattern = "lamp_[0-9]+"
    lever = "lamp"
    host_lamp: typing.ClassVar = {"speed": 0}

    def restoration(self):
        return "the lamp"

    def switch(self):
        self.host_lamp["speed"] = self.settings["speed"]

    def prove(self):
        pass

    def save(self):
        return {"speed": self.host_lamp["speed"]}

    def restore(self, saved):
        self.host_lamp["speed"] = saved["lamp"]["speed"]
        return []

    @classmethod
    def states(cls, files, saved):
        return {"lamp.speed": saved["speed"]}, {"lamp.speed": cls.host_lamp["speed"]}


@pytest.fixture(autouse=True)
def _two_more_arms(monkeypatch):
    monkeypatch.setattr(registry, "ARMS", (*registry.ARMS, (Fan, Lamp)))
    monkeypatch.setattr(Fan, "host_fan", {"speed": 1, "log": [], "stuck": False})
    monkeypatch.setattr(Lamp, "host_lamp", {"speed": 0})


def chosen(*names):
    found = selection.Arms(names, HOST)
    found.begin(found.save())
    return found


def test_arms_are_described_with_their_settings_and_one_baseline():
    found = chosen("fan_1", "fan_7", "as_found")
    assert found.compared and found.reason is None and found.left_out == []
    assert found.described() == [
        {"name": "fan_1", "title": "fan 1", "baseline": True, "settings": {"speed": 1}},
        {"name": "fan_7", "title": "fan 7", "baseline": False, "settings": {"speed": 7}},
        {"name": "as_found", "title": "as found", "baseline": False, "settings": {}},
    ]


def test_an_arm_that_the_host_cannot_have_is_left_out_with_its_reason():
    found = chosen("as_found", "fan_12", "fan_3")
    assert found.names == ["as_found", "fan_3"]
    assert found.left_out == [{"name": "fan_12", "title": "fan 12", "reason": "this fan has 9 speeds"}]
    assert found.announcement(5)[-1] == "fan 12 is left out: this fan has 9 speeds."


@pytest.mark.parametrize(
    ("names", "left_out", "reason"),
    [
        (("fan_12", "fan_3", "fan_4"), ["fan_12", "fan_3", "fan_4"], "this fan has 9 speeds"),
        (("as_found", "fan_12"), ["fan_12"], "this fan has 9 speeds"),
        (("fan_3",), ["fan_3"], "there is nothing to compare it with: no other arm was asked for"),
        (("as_found",), [], "no other arm than the host as found was asked for"),
    ],
)
def test_without_a_baseline_or_with_one_arm_nothing_is_compared(names, left_out, reason):
    found = chosen(*names)
    assert found.names == ["as_found"] and not found.compared
    assert [arm["name"] for arm in found.left_out] == left_out and found.reason == reason
    assert found.announcement(5) == [
        f"Nothing will be switched: {reason}.",
        "The placements that exist on this host will be measured for about 5 s, or less once enough is known.",
    ]


def test_what_is_switched_is_said_before():
    said = chosen("as_found", "fan_3", "lamp_1").announcement(300)
    assert (
        said[0]
        == "The host will be switched between as found, fan 3 and lamp 1 many times, for about 5 min, or less once"
        " enough is known."
    )
    assert (
        said[-1] == "Then the present state of the fan and the lamp is restored, also when the run fails or loses its"
        " controller."
    )


def test_arms_with_one_lever_replace_each_other():
    found = chosen("fan_2", "fan_3")
    for name in ("fan_2", "fan_3", "fan_2"):
        found.switch(name)
    assert Fan.host_fan == {"speed": 2, "log": ["fan_2", "fan_3", "fan_2"], "stuck": False}


def test_the_lever_of_the_previous_arm_is_restored_first():
    found = chosen("as_found", "fan_3", "lamp_8")
    found.switch("fan_3")
    found.switch("lamp_8")
    assert (Fan.host_fan["speed"], Lamp.host_lamp["speed"]) == (1, 8)
    found.switch("as_found")
    assert (Fan.host_fan["speed"], Lamp.host_lamp["speed"]) == (1, 0)


def test_a_host_that_was_prepared_is_as_found_in_that_arm():
    found = chosen("as_found", "fan_3")
    Fan.host_fan["speed"] = 5
    found.switch("as_found")
    assert Fan.host_fan["speed"] == 1


def test_an_arm_that_cannot_be_undone_ends_the_evaluation():
    found = chosen("as_found", "fan_3")
    found.switch("fan_3")
    Fan.host_fan["stuck"] = True
    with pytest.raises(base.ArmError, match=r"fan 3 could not be undone: the fan is stuck"):
        found.switch("as_found")
    assert found.restore({"fan": {"speed": 1}}) == ["the fan is stuck"]


def test_each_lever_is_restored_once():
    found = chosen("fan_2", "fan_3", "lamp_1")
    saved = found.save()
    assert {name: saved[name] for name in ("fan", "lamp")} == {"fan": {"speed": 1}, "lamp": {"speed": 0}}
    found.switch("fan_3")
    assert found.restore(saved) == [] and Fan.host_fan["log"] == ["fan_3", "restored"]


def test_an_arm_that_switches_nothing_is_observed_by_the_others():
    found = chosen("as_found", "fan_3")
    assert found.observe("as_found") == [{"arm": "as_found", "settings": {"speed": 1}}]
    found.switch("fan_3")
    assert found.observe("fan_3") == [{"arm": "fan_3", "settings": {"speed": 3}}]


def test_an_arm_whose_state_was_not_saved_is_left_out():
    """Its possibility came to light when the siblings had come online: nobody could restore what it changes."""
    found = selection.Arms(("as_found", "fan_3", "lamp_1"), HOST, saved={"cpu": ORIGIN, "fan": {"speed": 1}})
    assert found.names == ["as_found", "fan_3"] and "was not saved" in found.left_out[0]["reason"]


def test_what_differs_is_said_by_each_lever(tmp_path):
    saved = {"cpu": ORIGIN, "fan": {"speed": 1}, "lamp": {"speed": 0}}
    for name, text in (("online", "0-1"), ("present", "0-1"), ("smt/control", "on"), ("smt/active", "1")):
        (tmp_path / "sys/devices/system/cpu/smt").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/devices/system/cpu" / name).write_text(text)
    files = KernelFiles(str(tmp_path))
    assert selection.differences(saved, files=files)["ok"]
    Fan.host_fan["speed"] = 4
    found = selection.differences(saved, ["the fan is stuck"], files)
    assert found["differences"] == ["the fan is stuck", "fan.speed was 1, is 4"] and not found["ok"]
    assert (
        found["before"]["settings"] == {"fan.speed": 1, "lamp.speed": 0}
        and found["after"]["settings"]["fan.speed"] == 4
    )
    document = result_maker.result()
    document["restored"] = found
    assert results.parse(json.dumps(document), "a host").restored.after.settings["fan.speed"] == 4


PAIRS = ("fan_2__lamp_3", "fan_2__lamp_4", "fan_5__lamp_3", "fan_5__lamp_4")


def test_two_arms_at_once_are_both_switched_and_both_restored():
    found = chosen(*PAIRS)
    saved = found.save()
    assert {name: saved[name] for name in ("fan", "lamp")} == {"fan": {"speed": 1}, "lamp": {"speed": 0}}
    for name, fan, lamp in zip(PAIRS, (2, 2, 5, 5), (3, 4, 3, 4)):
        found.switch(name)
        found.prove(name)
        assert (Fan.host_fan["speed"], Lamp.host_lamp["speed"]) == (fan, lamp)
    assert found.restore(saved) == []
    assert (Fan.host_fan["speed"], Lamp.host_lamp["speed"]) == (1, 0)


def test_what_one_of_two_arms_switched_is_restored_for_an_arm_without_it():
    found = chosen("as_found", "fan_5__lamp_4", "fan_6")
    found.switch("fan_5__lamp_4")
    found.switch("fan_6")
    assert (Fan.host_fan["speed"], Lamp.host_lamp["speed"]) == (6, 0)
    found.switch("as_found")
    assert (Fan.host_fan["speed"], Lamp.host_lamp["speed"]) == (1, 0)


def test_both_are_described_and_said():
    found = chosen(*PAIRS)
    assert found.described()[1] == {
        "name": "fan_2__lamp_4",
        "title": "fan 2, lamp 4",
        "baseline": False,
        "settings": {"speed": 4},
    }
    said = found.announcement(300)
    assert "between fan 2, lamp 3, fan 2, lamp 4, fan 5, lamp 3 and fan 5, lamp 4" in said[0]
    assert said[-1].startswith("Then the present state of the fan and the lamp is restored")


def test_more_work_in_one_of_two_arms_is_more_work_in_both():
    """The known effect beside another factor: as_found switches nothing, and neither does more work."""
    assert catalogue.get("fan_2__more_work_5").more_work == 1.05 and catalogue.get("fan_2__lamp_3").more_work == 1


def test_two_arms_are_possible_where_both_are():
    found = chosen("fan_2__lamp_3", "fan_2__lamp_4", "fan_12__lamp_3")
    assert found.names == ["fan_2__lamp_3", "fan_2__lamp_4"]
    assert found.left_out[0]["reason"] == "this fan has 9 speeds"


@pytest.mark.parametrize(
    "name",
    [
        *("fan_2__fan_3", "fan_2__", "__fan_2", "fan_2__nosmt", "fan_2__x", "smt_on__smt_off", "fan_2____lamp_3"),
        *("fan_2__lamp_3__smt_on", "fan_2__x__lamp_3", "x__fan_2__lamp_3"),
    ],
)
def test_what_cannot_be_combined_is_no_arm(name):
    with pytest.raises(base.ArmError, match="there is no arm"):
        catalogue.check(["as_found", name])


def test_factors_are_all_levels_of_one_with_all_of_the_other():
    assert tuple(catalogue.of_factors([["fan_2", "fan_5"], ["lamp_3", "lamp_4"]])) == PAIRS


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([["smt_on", "smt_off"]], "are not two factors of two arms each"),
        ([["smt_on", "smt_off"], ["thp_always"]], "are not two factors of two arms each"),
        ("smt_on,smt_off", "are not two factors of two arms each"),
        ([["smt_on", 3], ["thp_always", "thp_never"]], "3 is not an arm: give a name, or one of"),
        ([["smt_on", "smt_of"], ["thp_always", "thp_never"]], "there is no arm 'smt_of'"),
        (
            [["smt_on", "nosmt"], ["thp_always", "thp_never"]],
            "nosmt and thp_always cannot be combined: one takes a reboot",
        ),
        ([["smt_on", "smt_off"], ["smt_on", "smt_off"]], "smt_on cannot be combined: both switch the same thing"),
        # Huge pages are not available to what a policy lets programs ask for: each alone may be safe, and both not.
        (
            [["overcommit_heuristic", "overcommit_strict"], ["hugepages_0", "hugepages_2500"]],
            "overcommit_heuristic and hugepages_0 cannot be combined: both take of memory or limit it",
        ),
        ([["as_found", "smt_off"], ["more_work_5", "thp_never"]], "cannot be combined: neither switches anything"),
        ([["smt_on__thp_never", "smt_off"], ["fan_2", "fan_5"]], "cannot be combined: one of them is two arms already"),
        ([["smt_on", "smt_on"], ["thp_always", "thp_never"]], "arms has a name twice"),
    ],
)
def test_what_are_no_factors_is_said(given, said):
    with pytest.raises(base.ArmError, match=re.escape(said)):
        catalogue.of_factors(given)


@pytest.mark.parametrize("name", ["fan_", "Fan_3", "fan_3\n", "fan_3x", "", "../fan_3", "smt_on "])
def test_a_name_matches_whole(name):
    with pytest.raises(base.ArmError, match="there is no arm"):
        catalogue.check(["as_found", name])
    assert catalogue.title(name) is None


def test_a_level_that_the_host_has_already_is_not_measured_twice():
    """Of two factors of which one is the host as it was found."""
    assert chosen("fan_1__as_found", "fan_5__as_found").left_out == []

    class Steady(Lamp):
        """A lamp that knows whether it is as found."""

        pattern = "steady_[0-9]"

        def examine(self, host):
            super().examine(host)
            self.is_as_found = self.settings["speed"] == 0

    registry.ARMS = (*registry.ARMS, (Steady,))
    said = "this is already in effect, so there is nothing to compare it with"
    for names, measured in (
        (["fan_1__as_found", "fan_1__steady_0", "fan_5__as_found", "fan_5__steady_0"], [0, 2]),
        # One arm alone does the same as with what the host has already.
        (["fan_1", "fan_1__steady_0", "fan_5", "steady_0__fan_5"], [0, 2]),
        (["as_found", "steady_0", "fan_5__steady_0"], [0, 2]),
        (["fan_1", "steady_0", "fan_5__steady_0"], [0, 1, 2]),
    ):
        found = chosen(*names)
        assert found.names == [names[place] for place in measured], names
        assert {one["reason"] for one in found.left_out} <= {said}


@pytest.mark.parametrize(
    ("name", "siblings"),
    [
        ("one_thread_per_core__smt_off", "offline"),
        ("smt_off__one_thread_per_core", "offline"),
        ("smt_on__thp_never", "online"),
        ("thp_never__smt_on", "online"),
    ],
)
def test_siblings_are_what_the_stronger_of_two_arms_makes_of_them(name, siblings):
    assert catalogue.get(name).siblings == siblings


@pytest.mark.parametrize(
    "factors",
    [
        [["smt_on", "smt_off_on_cpus_0-7"], ["thp_always", "thp_never"]],
        [["thp_always", "thp_never"], ["smt_on", {"smt_off_on": {"cpus": "0-7"}}]],
        [["smt_on", {"one_thread_per_core": {"unit": "my__svc.service"}}], ["thp_always", "thp_never"]],
    ],
)
def test_an_arm_of_a_part_of_the_host_is_a_level_of_a_factor(factors):
    names = catalogue.of_factors(factors)
    assert len(names) == 4 and all(len(catalogue.get(name).made_of) == 2 for name in names)
    for name in names:
        document = result_maker.result()
        document["arms"][1] = {**document["arms"][1], "name": name}
        for sample in document["samples"]:
            sample["arm"] = name if sample["arm"] == "smt_off" else sample["arm"]
        document["plan"]["placements"][name] = document["plan"]["placements"].pop("smt_off")
        assert results.parse(json.dumps(document), "a host").arms[1].name == name
