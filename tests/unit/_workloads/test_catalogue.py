# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built-in workloads as a whole: each is registered, complete and documented, and can be chosen by name."""

from __future__ import annotations

import ast
import importlib
import pathlib
import re

import pytest
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import placement
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import catalogue, declaration, metrics
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.built_in import registry

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = pathlib.Path(registry.__file__).parent


def declared_in(name):
    """Return the workloads of a file of the folder."""
    return importlib.import_module(f"{registry.__name__.rpartition('.')[0]}.{name}").WORKLOADS


def test_each_file_of_the_folder_is_in_the_registry():
    files = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "registry")
    assert tuple(declared_in(name) for name in files) == registry.WORKLOADS
    assert sorted(catalogue.BUILT_IN) == sorted(workload["name"] for name in files for workload in declared_in(name))


def test_the_registry_holds_imports_and_a_tuple_only():
    kinds = [type(node) for node in ast.parse((FOLDER / "registry.py").read_text(encoding="utf-8")).body]
    assert kinds == [ast.Expr, ast.ImportFrom, ast.ImportFrom, ast.Assign]


def test_unknown_names_are_refused_with_a_list_of_the_valid_names():
    assert [workload["name"] for workload in catalogue.named(["stream", "gzip"])] == ["stream", "gzip"]
    with pytest.raises(declaration.WorkloadError, match=r"no workload nonsense: choose from array_columns, .*, gzip, .*, sysbench_threads"):
        catalogue.named(["gzip", "nonsense"])


@pytest.mark.parametrize("name", sorted(catalogue.BUILT_IN))
def test_each_declaration_is_complete(name):
    workload = catalogue.BUILT_IN[name]
    assert set(workload) == set(declaration.PLAIN) | {"name", "title", "argv", "metrics"}
    assert set(workload["placements"] or []) <= set(placement.NAMES)
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


def documented():
    """Return the rows of the table of workloads in docs/measuring.md: the names, and the other cells."""
    page = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    table = page[page.index("| workload | work of a worker |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()[2:]]
    return {name: cells[1:] for cells in rows for name in re.findall(r"`([a-z_]+)`", cells[0])}


def test_the_documentation_lists_each_workload():
    assert sorted(documented()) == sorted(catalogue.BUILT_IN)


@pytest.mark.parametrize("name", sorted(catalogue.BUILT_IN))
def test_the_documentation_names_the_unit_and_the_origin_of_a_workload(name):
    workload = catalogue.BUILT_IN[name]
    _work, metric, origin = documented()[name]
    assert metric == "the same" or metric.startswith(workload["metrics"][0]["unit"])
    assert origin.strip("`").lower() == (workload["source"] or workload["package"])
