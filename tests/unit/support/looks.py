# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What smt_usage answers, and what a look is made of it."""

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use

USE = {
    "usage": 0.5, "busy": [0.9, 0.95], "several": [0.05, 0.1], "work": [0.76, 0.84], "room": [0.19, 0.32],
    "by_usage": 1.0, "bound": 0.05, "gain": [1.0, 1.3],
}  # fmt: skip
UNITS = [
    {"unit": "/system.slice/postgresql.service", "ran": 1000.0, "beside": 400.0, "apart": 310.0},
    {"unit": "/system.slice/backup.service", "ran": 2000.0, "beside": 320.0, "apart": 310.0},
    {"unit": None, "ran": 10.0, "beside": 9.0, "apart": 9.0},
]
ANSWER = {
    "changed": False, "guessed": True, "method": "switches", "reason": None, "use_reason": None, "source": "proc_stat",
    "source_reason": None, "seconds": 600.0, "windows": 60, "watched_seconds": 30.0, "cut": 0,
    "switches_a_second": 5000, "busy_ratio": [0.9, 0.95], "shared_ratio": [0.05, 0.1],
    "cores": [{"cpus": [0, 4], "usage": 0.5, "busy": [0.9, 0.95], "several": [0.05, 0.1]}], "use": USE, "units": UNITS,
    "pairs": [{"units": ["/system.slice/backup.service", None], "seconds": 310.0}],
}  # fmt: skip


def answer(**changed):
    return {**ANSWER, **changed}


def looked(**changed):
    return cores_in_use.host("web01", answer(**changed), [])
