# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built-in workloads as a whole: each is registered, complete and documented, and can be chosen by name."""

from __future__ import annotations

import importlib
import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import catalogue, declaration, metrics
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.built_in import registry

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = pathlib.Path(registry.__file__).parent


def declared_in(name):
    """Return the workloads of a file of the folder."""
    return importlib.import_module(f"{registry.__name__.rpartition('.')[0]}.{name}").WORKLOADS


def test_unknown_names_are_refused_with_a_list_of_the_valid_names():
    assert [workload["name"] for workload in catalogue.named(["stream", "gzip"])] == ["stream", "gzip"]
    with pytest.raises(declaration.WorkloadError, match=r"no workload nonsense: choose from array_columns, .*, gzip, .*, sysbench_threads"):
        catalogue.named(["gzip", "nonsense"])


@pytest.mark.parametrize("name", sorted(catalogue.BUILT_IN))
def test_each_declaration_is_complete(name):
    workload = catalogue.BUILT_IN[name]
    assert set(workload) == set(declaration.PLAIN) | {"name", "title", "argv", "metrics"}
    assert set(workload["placements"] or []) <= set(placements.NAMES)
    assert workload["source"] is None or workload["source"] in sources()
    assert (workload["work"] is not None) == any("{work}" in argument or "{total}" in argument for argument in workload["argv"]) or workload["stdin"]
    assert (workload["parameter"] is not None) == any("{parameter}" in argument or "{percent}" in argument for argument in workload["argv"])
    assert declaration.package(workload) and not workload["custom"]
    names = [metric["name"] for metric in workload["metrics"]]
    assert names and len(set(names)) == len(names)
    assert all(metric["better"] in ("higher", "lower") and metric["aggregate"] in metrics.AGGREGATES for metric in workload["metrics"])


def test_each_source_belongs_to_a_workload_that_is_declared_beside_it():
    declared = {(name, workload["source"]) for name in (path.stem for path in FOLDER.glob("*.py") if path.stem != "registry") for workload in declared_in(name)}
    assert {(name.partition(".")[0], name) for name in sources()} == {(file, source) for file, source in declared if source}


@pytest.mark.parametrize("name", sorted(catalogue.BUILT_IN))
def test_what_a_worker_does_is_said_for_the_documentation(name):
    assert catalogue.BUILT_IN[name]["description"] and "|" not in catalogue.BUILT_IN[name]["description"]
