# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that run as many processes or threads as there were CPUs."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import worker_counts


@pytest.fixture(name="host")
def a_host_with_services(tmp_path):
    def process(pid, name, parent, unit, threads=1):
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "status").write_text(f"Name:\t{name}\nPid:\t{pid}\nPPid:\t{parent}\nThreads:\t{threads}\n")
        (folder / "cgroup").write_text(f"0::/system.slice/{unit}\n" if unit else "0::/\n")

    process(100, "nginx", 1, "nginx.service")
    for number in range(4):
        process(101 + number, "nginx", 100, "nginx.service")
    process(200, "java", 1, "app.service", threads=4)
    process(300, "postgres", 1, "postgresql@15-main.service")
    for number in range(5):
        process(301 + number, "postgres", 300, "postgresql@15-main.service")
    for number in range(4):
        process(400 + number, "sh", 2000 + number, "cron.service")
        process(500 + number, "kworker", 2, "")
    process(201, "java", 1, "more.service", threads=9)
    process(202, "java", 1, "few.service", threads=3)
    process(600, "\x1b[31mx", 1, "odd.service", threads=4)
    (tmp_path / "proc" / "self").mkdir()
    (tmp_path / "proc" / "700").mkdir()
    return kernel_files.KernelFiles(str(tmp_path))


def test_services_with_as_many_workers_as_cpus(host):
    found = [(one["unit"], one["name"], one["kind"]) for one in worker_counts.of_services(host, 4)]
    assert found == [
        ("app.service", "java", "threads"),
        ("nginx.service", "nginx", "processes"),
        ("odd.service", "\\x1b[31mx", "threads"),
    ]
    assert [one["unit"] for one in worker_counts.of_services(host, 5)] == ["postgresql@15-main.service"]
    # Few CPUs would name services that count none.
    assert [one for cpus in (0, 1, 2, 3, 8) for one in worker_counts.of_services(host, cpus)] == []
