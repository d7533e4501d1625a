# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workload declarations: selection by name, missing commands, parameter values for the host."""

from __future__ import annotations

import os

import pytest
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import placement
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import built_in

TWO_WORKERS = ["single", "same_cpu", "siblings", "cores"]


def executable(path):
    path.write_text("")
    path.chmod(0o755)


def test_unknown_names_are_refused_with_a_list_of_the_valid_names():
    with pytest.raises(built_in.WorkloadError, match=r"no workload nonsense: choose from array_columns, .*, gzip, .*, sysbench_threads"):
        built_in.named(["gzip", "nonsense"])


def test_a_missing_command_is_reported_with_its_package(tmp_path):
    assert built_in.missing(built_in.SYSBENCH_CPU, str(tmp_path)) == "sysbench is not installed (package sysbench)"
    executable(tmp_path / "sysbench")
    assert built_in.missing(built_in.SYSBENCH_CPU, f"/nowhere:{tmp_path}") is None


def test_a_missing_compiler_is_reported_for_a_compiled_workload(tmp_path):
    assert built_in.missing(built_in.STREAM, str(tmp_path)) == "no C compiler is installed: none of cc, gcc, clang (package gcc)"
    executable(tmp_path / "clang")
    assert built_in.missing(built_in.STREAM, str(tmp_path)) is None
    assert built_in.compiler(str(tmp_path)) == str(tmp_path / "clang")


def test_the_newest_version_of_a_server_is_found_by_number_not_by_name(tmp_path):
    for version in ("9.6", "15", "7"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        for command in built_in.POSTGRESQL["commands"]:
            executable(folder / command)
    server = dict(built_in.POSTGRESQL, folders=[str(tmp_path / "*" / "bin")])
    oltp = dict(built_in.OLTP, server=server)
    # The path of this test's directory has numbers too, but they are the same for each version.
    assert built_in.search_path(oltp, "/bin") == f"{tmp_path / '15' / 'bin'}{os.pathsep}/bin"
    assert built_in.missing(oltp, "/nowhere") is None
    (tmp_path / "15" / "bin" / "pgbench").unlink()
    assert built_in.missing(oltp, "/nowhere") == "pgbench is not installed (package postgresql)"


@pytest.mark.parametrize(("cpus", "clients"), [(1, [1, 2, 4]), (2, [1, 2, 3, 4, 8]), (8, [2, 4, 8, 12, 16, 32]), (64, [16, 32, 64, 96, 128, 256])])
def test_the_numbers_of_clients_depend_on_the_number_of_cpus(cpus, clients):
    assert built_in.parameter_values(built_in.OLTP, cpus) == clients


def test_the_part_of_a_declaration_in_a_result():
    assert built_in.described(built_in.LOAD_LEVELS, 4)["points"] == [0.14, 0.29, 0.43, 0.57, 0.71, 0.86, 1.0]
    assert built_in.described(built_in.LOAD_LEVELS, 4)["point"] == {"name": "load", "unit": "of one CPU"}
    own = built_in.described(dict(built_in.GZIP, name="own", argv=["env", "PGPASSWORD=hunter2hunter2", "pgbench"]), 4)
    assert (own["argv"], own["title"]) == (["env"], built_in.GZIP["title"]) and "hunter2" not in str(own)
    gzip = built_in.described(built_in.GZIP, 4)
    assert (gzip["metric"], gzip["unit"], gzip["better"], gzip["aggregate"]) == ("throughput", "MB/s", "higher", "sum")
    assert "point" not in gzip


@pytest.mark.parametrize("name", sorted(built_in.BUILT_IN))
def test_each_declaration_is_complete(name):
    workload = built_in.BUILT_IN[name]
    assert set(workload) == set(built_in.PLAIN) | {"name", "title", "argv", "metric"}
    assert set(workload["placements"] or []) <= set(placement.NAMES)
    assert workload["source"] is None or workload["source"] in sources()
    assert (workload["work"] is not None) == any("{work}" in argument or "{total}" in argument for argument in workload["argv"]) or workload["stdin"]
    assert built_in.package(workload)
