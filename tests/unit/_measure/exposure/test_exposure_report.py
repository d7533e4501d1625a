# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page and the document of looks at many hosts."""

from __future__ import annotations

import json

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use, exposure_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure.cores_in_use import HostLook
from looks import UNITS, USE, looked

AT = "2026-11-27 10:00 UTC"


def test_nothing_of_a_host_is_markup_or_moves_the_terminal():
    attack = "/user.slice/\x1b[2J<script>alert(1)</script>\u202e{{ 7 * 7 }}"
    hosts = [
        looked(
            units=[{**UNITS[0], "unit": attack}],
            pairs=[{"units": [attack, attack], "seconds": 1.0}],
            method="counters",
            reason="<b>\x1b]0;x\x07",
        ),
        HostLook("<i>web", "<u>why</u>", None),
    ]
    page = exposure_report.page(hosts, AT)
    assert "<script>alert" not in page and "<b>\x1b" not in page and "<i>web" not in page and "<u>why" not in page
    assert "&lt;i&gt;web" in page and "&lt;u&gt;why" in page
    assert "\x1b" not in page and "49" not in page.replace("{{ 7 * 7 }}", "").split("<main", 1)[1].split("<script")[0]
    assert "\x1b" not in "\n".join(cores_in_use.table(hosts))


def test_the_document_has_all_hosts():
    made = exposure_report.document([looked(), HostLook("gone", "it is not reachable", None)], "2026-11-27T10:00:00Z")
    assert json.loads(json.dumps(made)) == made
    assert [one["host"] for one in made["hosts"]] == ["gone", "web01"]
    assert made["hosts"][1]["use"] == USE and made["hosts"][0]["reason"] == "it is not reachable"
