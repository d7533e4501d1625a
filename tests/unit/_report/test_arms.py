# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of many arms in each output: the right question, a row for each arm, what each leaves open,
and no words about SMT for other levers.
"""

from __future__ import annotations

import html
import json
import re

import markup
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build, hardware_classes
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import arms as arms_part

EVEN = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
BOTH = {"gzip": result_maker.GZIP, "even": EVEN}
MANY = {"smt_on": 1.0, "smt_off": 1.0, "isolated": 1.2, "mitigations_off": 1.1}


def measured(arms, **options):
    return result_maker.result(
        **{"arms": arms, "workloads": BOTH, "blocks": 6, "shape": (1, 2, 2), "names": ("all_threads",), **options}
    )


def summary(result, **settings):
    return result_maker.summarised(result, **settings)


def written(directory, *results, **settings):
    """Name -> text of the report."""
    for result in results:
        result_files.save(directory, result)
    build.build(result_files.result_paths(directory), directory, build.Settings(**settings))
    return {
        path.name: path.read_text(encoding="utf-8")
        for path in directory.iterdir()
        if path.suffix in (".html", ".md", ".json", ".prom")
    }


def shown(page):
    """The words of a page, without its pictures."""
    return re.sub(
        r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)))
    ).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("arms", "question"),
    [
        (["smt_on", "smt_off"], "Should SMT be on here?"),
        (["as_found", "overcommit_strict"], "What does strict overcommit do here?"),
        (["smt_on", "isolated"], f"What does {result_maker.title_of('isolated')} do here?"),
        (
            ["smt_on", "smt_off", "isolated"],
            f"Which of SMT on, SMT off and {result_maker.title_of('isolated')} is best here?",
        ),
        (["smt_on", "smt_off", "isolated", "nosmt", "threads_per_core_2"], "Which of these 5 arms is best here?"),
    ],
)
def test_the_question_is_that_of_the_arms(tmp_path, arms, question):
    files = written(tmp_path, measured(dict.fromkeys(arms, 1.0)))
    assert f"<h1>{question} web01</h1>" in files["index.html"]
    assert f"## `web01`: {question}" in files["summary.md"] and files["summary.md"].count("Should SMT be on") == (
        len(arms) == 2 and "smt_off" in arms
    )


def test_each_arm_has_a_row_below_the_baseline_of_its_workload():
    made = summary(measured(MANY))
    (picture,) = arms_part.forests(arms_part.against_baseline(made))
    texts = [one.text for one in markup.picture(picture.svg).iter() if one.tag == "text"]
    titles = [result_maker.title_of(name) for name in MANY]
    labels = [text for text in texts if text in (*titles[1:], "gzip of a fixed stream", "sysbench cpu")]
    assert labels == ["gzip of a fixed stream", *titles[1:], "sysbench cpu", *titles[1:]]
    assert texts.count(f"{titles[0]} (baseline)") == 2 and any("worse than the baseline" in text for text in texts)
    assert not any("with SMT" in text for text in texts)


def _rows(picture):
    """How many rows of a forest plot have a mark."""
    return len(list(markup.picture(picture.svg).iter("title")))


def test_many_workloads_are_drawn_in_several_charts_of_whole_groups():
    workloads = {f"w{number:02d}": {**EVEN, "title": f"work {number}"} for number in range(20)}
    found = arms_part.against_baseline(summary(measured(MANY, workloads=workloads, blocks=4)))
    pictures = arms_part.forests(found)
    assert [_rows(one) for one in pictures] == [28, 28, 24]
    texts = [[text.text for text in markup.picture(one.svg).iter("text")] for one in pictures]
    assert all(one[one.index("SMT on (baseline)") - 1].startswith("work ") for one in texts)
    assert "and 1 more in the table" in pictures[0].label
    assert (
        sum(
            _rows(one)
            for one in arms_part.forests(
                [{**one, "workload": f"{one['workload']}{n}"} for n in range(9) for one in found]
            )
        )
        <= 180
    )


def test_a_page_of_many_arms_says_what_each_does_and_leaves_open(tmp_path):
    files = written(tmp_path, measured(MANY), compare="all")
    page = shown(files["index.html"])
    isolated = result_maker.title_of("isolated")
    assert f"{isolated[:1].upper()}{isolated[1:]} is the best of the 4 arms" in page
    assert f"<title>web01: {isolated} is best" in files["index.html"]
    assert "Each other arm against SMT on, every online thread busy" in page.replace("each other", "Each other")
    assert (
        f"{result_maker.title_of('mitigations_off')} against {isolated}" in page
        and "The other arms among each other (6 comparisons)" in page
    )
    assert "What each arm leaves open" in page and "SMT part closed" in page and "no longer mitigated" in page
    host = json.loads(files["results.json"])["hosts"][0]
    assert {one["name"]: one["states"]["mds"] for one in host["exposure"]} == {
        "smt_on": "smt_open",
        "smt_off": "smt_closed",
        "isolated": "smt_open",
        "mitigations_off": "opened",
    }
    assert host["recommendation"]["best"] == "isolated" and len(host["recommendation"]["pairs"]) == 6
    lines = files["summary.md"].splitlines()
    assert any(
        line.startswith("- SMT off: closes the part that depends on SMT, of mds") and line.endswith("(inferred)")
        for line in lines
    )
    assert (
        'threadwise_smt_arm_ratio{host="web01",' in files["metrics.prom"]
        and 'arm="mitigations_off",baseline="isolated"' in files["metrics.prom"]
    )


def test_other_levers_are_not_spoken_of_as_smt(tmp_path):
    page = shown(
        written(tmp_path, measured({"as_found": 1.0, "overcommit_strict": 0.9, "panic_on_oom": 1.0}))["index.html"]
    )
    assert "better with SMT" not in page and "Leave SMT" not in page and "SMT on web01" not in page
    assert "Which of as found, strict overcommit and" in page and "What each arm leaves open" not in page


def test_a_fleet_gives_each_arm_its_own_outcome(tmp_path):
    arms = {"smt_on": 1.0, "smt_off": 1.0, "overcommit_strict": 1.2, "panic_on_oom": 0.9}
    page = written(
        tmp_path,
        *(measured(arms, host=f"web{seed}", seed=seed, workloads={"gzip": result_maker.GZIP}) for seed in range(4)),
    )["index.html"]
    words, panic = shown(page), result_maker.title_of("panic_on_oom")
    assert (
        "Leave SMT on at all 4 hosts. Strict overcommit: better, " in words
        and f"{panic}: worse at all 4 hosts." in words
    )
    assert f"Should SMT be on? What do {panic} and strict overcommit do? 4 hosts" in words
    labels = re.findall(r'aria-label="(Change with its interval[^"]*)"', page)
    assert len(labels) == 2 and "against SMT on" not in labels[0] and labels[1].count("against SMT on") == 8
    assert (
        f"SMT off against SMT on with every online thread busy; {panic} against the baseline; strict overcommit against"
        " the baseline" in words
    )
    assert page.count("better with SMT off") == 1 and page.count("better than the baseline") == 1


def test_arms_that_this_collection_does_not_know_keep_their_own_outcomes(tmp_path):
    """A host that a later release evaluated: its titles are not trusted in an overview."""
    arms = {"as_found": 1.0, "later_one": 1.2, "later_two": 0.9}
    row = hardware_classes.row(summary(measured(arms, workloads={"gzip": result_maker.GZIP})), "web01.html")
    assert row["title"] == "another arm: better, another arm: worse" and row["subject"] == "another arm"
