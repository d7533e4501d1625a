# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Energy of the processor's packages, from trees of machines whose kernel counts it."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import energy, telemetry

RANGE = 262_143_328_850
# Zone -> name and count, as a server with two packages shows them, and a laptop with psys and a second way to its
# package.
SERVER = {
    "intel-rapl": (None, None),
    "intel-rapl:0": ("package-0", 1_000_000),
    "intel-rapl:0:0": ("dram", 500_000),
    "intel-rapl:1": ("package-1", 2_000_000),
    "intel-rapl:1:0": ("dram", 500_000),
    "dtpm": (None, None),
}
LAPTOP = {
    "intel-rapl-mmio:0": ("package-0", 7_000_000),
    "intel-rapl:0": ("package-0", 3_000_000),
    "intel-rapl:0:0": ("core", 2_000_000),
    "intel-rapl:0:1": ("uncore", 1_000_000),
    "intel-rapl:1": ("psys", 9_000_000),
}
DIES = {f"intel-rapl:{number}": (f"package-0-die-{number}", 1_000_000) for number in range(2)}


def count(root, zone, microjoules):
    (root / energy.ZONES / zone / "energy_uj").write_text(f"{microjoules}\n")


def machine(root, zones):
    for zone, (name, microjoules) in zones.items():
        place = root / energy.ZONES / zone
        place.mkdir(parents=True)
        if name:
            (place / "name").write_text(f"{name}\n")
            (place / "max_energy_range_uj").write_text(f"{RANGE}\n")
            count(root, zone, microjoules)
    return energy.Energy(HostFs(str(root)))


@pytest.mark.parametrize(("zones", "packages"), [(SERVER, 2), (LAPTOP, 1), (DIES, 2)])
def test_packages_are_counted_once(tmp_path, zones, packages):
    found = machine(tmp_path, zones)
    before = found.read()
    assert len(before.counts) == packages
    for zone, (name, microjoules) in zones.items():
        if name:
            count(tmp_path, zone, microjoules + 1_500_000)
    assert found.joules(before, found.read()) == 1.5 * packages


def test_a_counter_begins_again_after_its_range(tmp_path):
    found = machine(tmp_path, SERVER)
    count(tmp_path, "intel-rapl:0", RANGE - 400_000)
    before = found.read()
    count(tmp_path, "intel-rapl:0", 600_000)
    assert found.joules(before, found.read()) == 1.0


def test_a_package_that_cannot_be_read_or_a_time_too_long_leaves_the_energy_unknown(tmp_path):
    found = machine(tmp_path, SERVER)
    before = found.read()
    # A counter may have gone through its whole range since.
    assert found.joules(before._replace(seconds=before.seconds - 300), found.read()) is None
    (tmp_path / energy.ZONES / "intel-rapl:1" / "energy_uj").unlink()
    assert found.read().counts == {} and found.joules(before, found.read()) is None
    (tmp_path / energy.ZONES / "intel-rapl:1" / "max_energy_range_uj").unlink()
    assert energy.Energy(HostFs(str(tmp_path))).read().counts == {}


@pytest.mark.parametrize(("zones", "joules"), [(LAPTOP, 5.25), ({}, None)])
def test_a_sample_has_its_energy_and_a_host_without_counters_none(tmp_path, zones, joules):
    machine(tmp_path, zones)
    recorder, record = telemetry.Recorder([(0, 1)], HostFs(str(tmp_path))), {}
    with recorder.around([[0]], record):
        if zones:
            count(tmp_path, "intel-rapl:0", 8_250_000)
    assert record["joules"] == joules
