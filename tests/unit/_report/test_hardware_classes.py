# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts: the class judged with hosts as units, outliers, two runs beside each other."""

from __future__ import annotations

import html
import json
import re

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build, hardware_classes
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import comparison as comparison_page, fleet as fleet_page
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import result_files

SETTINGS = build.Settings()


def row(host, hardware_class="class-a", boots=None, confounded=False, **options):
    result = result_maker.result(host=host, **{"blocks": 5, "shape": (1, 2, 2), **options})
    result["plan"].update(boots=boots, confounded=confounded)
    result["facts"]["hardware_class"] = hardware_class
    return hardware_classes.row(build.summarise(result, f"{host}.json", SETTINGS), f"{host}.html")


def scaled(one, host, factor):
    workloads = {name: {**it, "ratio": it["ratio"] * factor, "candidate_value": it["candidate_value"] * factor} for name, it in one["workloads"].items()}
    return {**one, "host": host, "workloads": workloads}


def test_the_host_is_the_unit():
    rows = [row(f"web{number}", seed=number) for number in range(4)]
    (few,) = hardware_classes.by_class(rows[:3], 0.01, 0.95)
    (enough,) = hardware_classes.by_class(rows, 0.01, 0.95)
    assert few["workloads"][0]["n"] == 3 and few["workloads"][0]["verdict"] == "inconclusive" and few["recommendation"] == "undecided"
    assert enough["workloads"][0]["n"] == 4 and enough["workloads"][0]["verdict"] == "loss" and enough["recommendation"] == "on"
    assert enough["workloads"][0]["ratio"] == pytest.approx(0.8, rel=0.01) and 0 < enough["workloads"][0]["deviation"] < 0.01
    assert enough["counts"] == {"SMT on": 4} and enough["vulnerable"] == 4


def test_hosts_that_were_all_booted_in_the_same_order_do_not_tell_the_change_from_the_reboot():
    rows = [row(f"web{number}", seed=number, boots=1, confounded=True) for number in range(4)]
    (one,) = hardware_classes.by_class(rows, 0.01, 0.95)
    assert (one["workloads"][0]["verdict"], one["recommendation"], one["title"]) == ("loss", "undecided", "not decided")
    assert 'loss</span> <span class="muted">confounded with the reboot</span>' in fleet_page.render(rows, [], 0.01, 0.95)


def test_the_largest_class_comes_first_and_the_unknown_last():
    rows = [row("a", None), row("b", "small"), row("c", "large"), row("d", "large"), row("e", None), row("f", None)]
    assert [(one["hardware_class"], one["hosts"]) for one in hardware_classes.by_class(rows, 0.01, 0.95)] == [("large", 2), ("small", 1), (None, 3)]


def test_a_host_that_was_not_compared_counts_without_a_ratio():
    (one,) = hardware_classes.by_class([row("a", compared=False, reason="no SMT"), row("b")], 0.01, 0.95)
    assert one["hosts"] == 2 and one["workloads"][0]["n"] == 1 and one["workloads"][0]["deviation"] is None


def test_outliers_are_beyond_the_fences():
    usual = {f"web{number}": 0.8 + 0.001 * number for number in range(9)}
    assert hardware_classes.outliers({**usual, "odd": 0.7}) == {"odd": 0.7}
    assert hardware_classes.outliers(usual) == {}
    assert hardware_classes.outliers({"a": 1.0, "b": 1.0, "c": 1.0, "odd": 2.0}) == {}


def test_what_a_person_has_to_look_at_is_named_on_top():
    first = row("web0")
    rows = [scaled(first, f"web{number}", 1 + 0.001 * number) for number in range(8)]
    rows.append(scaled(first, "odd", 0.5))
    rows[1] = {**rows[1], "restored": False, "differences": ["CPU 3 is offline"]}
    rows[2] = {**rows[2], "reboot_required": True}
    rows[3] = {**rows[3], "disagreement": "CPUs 0 and 2 share a core by measuring; the kernel says otherwise."}
    top = html.unescape(fleet_page.render(rows, [], 0.01, 0.95).partition("</section>")[0])
    for words in (
        "1 host not put back as it was before: web1: CPU 3 is offline",
        "1 host would boot with other SMT arguments than now: web2",
        "web3: CPUs 0 and 2 share a core by measuring",
        "1 host unlike the other hosts of their class: odd (gzip",
    ):
        assert words in top


def test_an_effect_has_changed_where_the_intervals_have_nothing_in_common():
    before = {"ci_low": 0.79, "ci_high": 0.81}
    assert comparison_page.distinguish(before, {"ci_low": 0.82, "ci_high": 0.84}) == comparison_page.CHANGED
    assert comparison_page.distinguish({"ci_low": 0.82, "ci_high": 0.84}, before) == comparison_page.CHANGED
    assert comparison_page.distinguish(before, {"ci_low": 0.80, "ci_high": 0.84}) == comparison_page.SAME
    assert comparison_page.distinguish(before, {"ci_low": None, "ci_high": None}) == comparison_page.UNKNOWN


def test_two_runs_beside_each_other(tmp_path):
    for run, share, hosts in (("before", 0.6, "abcd"), ("after", 0.66, "bcde")):
        for host in hosts:
            workloads = {"gzip": {**result_maker.GZIP, "share": share}}
            result = result_maker.result(host=host, run=run, blocks=6, shape=(1, 2, 2), seed=ord(host), workloads=workloads)
            result["environment"]["kernel"] = {"before": "6.1.0-38", "after": "6.1.0-40"}[run]
            result_files.save(tmp_path / run, result)
    (tmp_path / "before" / "broken.json").write_text("{")
    settings = build.Settings(before=tuple(result_files.result_paths(tmp_path / "before")))
    made = build.build(result_files.result_paths(tmp_path / "after"), tmp_path / "after", settings)
    text = (tmp_path / "after" / "compare.html").read_text(encoding="utf-8")
    assert "3 hosts in both runs" in text and "changed in 3 of 3 comparisons" in text
    assert "1 host only in the run before: a." in text and "1 host only in the run after: e." in text
    assert "<td>6.1.0-38</td><td>6.1.0-40</td>" in text
    assert [one.reason.partition(":")[0] for one in made.refused] == ["of the earlier run"]


def test_hosts_that_switched_another_setting_are_shown_with_it_and_not_counted_for_smt(tmp_path):
    for number in range(4):
        for prefix, make in (("smt", result_maker.result), ("memory", result_maker.policy_result)):
            result_files.save(tmp_path, make(host=f"{prefix}{number}", blocks=6, shape=(1, 2, 2), seed=number))
    build.build(result_files.result_paths(tmp_path), tmp_path)
    text = re.sub(r"\s+", " ", (tmp_path / "index.html").read_text(encoding="utf-8"))
    assert "Should SMT be on? What does strict overcommit do? 8 hosts" in text
    assert "SMT on: 4; Strict overcommit: worse: 4." in text
    assert "gzip of a fixed stream, strict overcommit" in text and "better than the baseline" in text and "better with SMT off" in text
    rows = [hardware_classes.row(one, "page") for one in json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["hosts"]]
    classes = {one["subject"]: one for one in hardware_classes.by_class(rows, 0.01, 0.95)}
    assert {subject: (one["hosts"], one["recommendation"], one["title"]) for subject, one in classes.items()} == {
        None: (4, "on", "SMT on"),
        "strict overcommit": (4, "not_compared", "strict overcommit: worse"),
    }
    unknown = {**result_maker.policy_result(name="x" * 59, blocks=5, shape=(1, 2, 2)), "host": "odd"}
    assert hardware_classes.row(build.summarise(unknown, "odd.json", SETTINGS), "odd.html")["title"] == "another arm: worse"
    booted = {**result_maker.policy_result(name="nosmt", blocks=5, shape=(1, 2, 2)), "host": "booted"}
    assert hardware_classes.row(build.summarise(booted, "booted.json", SETTINGS), "booted.html")["title"] == "nosmt: worse"
    assert {workload["workload"] for workload in classes["strict overcommit"]["workloads"]} == {"gzip, all_threads, overcommit_strict"}
