# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of many arms in each output: the right question, a row for each arm, what each leaves open,
and no words about SMT for other levers.
"""

import html
import json
import re

import markup
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import arms as arms_part

EVEN = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
BOTH = {"gzip": result_maker.GZIP, "even": EVEN}
MANY = {"smt_on": 1.0, "smt_off": 1.0, "isolated": 1.2, "mitigations_off": 1.1}
ISOLATED = result_maker.title_of("isolated")


def measured(arms, **options):
    usual = {"workloads": BOTH, "blocks": 6, "shape": (1, 2, 2), "names": ("all_threads",)}
    return result_maker.result(**{"arms": arms, **usual, **options})


def written(directory, *results, **settings):
    """Name -> text of the report; the words of its first page, without its pictures."""
    for result in results:
        result_files.save(directory, result)
    build.build(result_files.result_paths(directory), directory, build.Settings(**settings))
    suffixes = (".html", ".md", ".json", ".prom")
    files = {path.name: path.read_text(encoding="utf-8") for path in directory.iterdir() if path.suffix in suffixes}
    words = re.sub(r"<[^>]+>", " ", re.sub(r"<svg.*?</svg>", "", files["index.html"], flags=re.DOTALL))
    return files, re.sub(r"\s+", " ", html.unescape(words)).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("arms", "question"),
    [
        (["smt_on", "smt_off"], "Should SMT be on here?"),
        (["as_found", "overcommit_strict"], "What does strict overcommit do here?"),
        (["smt_on", "isolated"], f"What does {ISOLATED} do here?"),
        (["smt_on", "smt_off", "isolated"], f"Which of SMT on, SMT off and {ISOLATED} is best here?"),
        (["smt_on", "smt_off", "isolated", "nosmt", "threads_per_core_2"], "Which of these 5 arms is best here?"),
    ],
)
def test_the_question_is_that_of_the_arms(tmp_path, arms, question):
    files, _words = written(tmp_path, measured(dict.fromkeys(arms, 1.0)))
    assert f"<h1>{question} web01</h1>" in files["index.html"] and f"## `web01`: {question}" in files["summary.md"]
    assert files["summary.md"].count("Should SMT be on") == (len(arms) == 2 and "smt_off" in arms)


def texts(picture):
    return [one.text for one in markup.picture(picture.svg).iter("text")]


def test_many_workloads_are_drawn_in_several_charts_of_whole_groups():
    workloads = {f"w{number:02d}": {**EVEN, "title": f"work {number}"} for number in range(20)}
    found = arms_part.against_baseline(result_maker.summarised(measured(MANY, workloads=workloads, blocks=4)))
    pictures = arms_part.forests(found)

    def rows(drawn):
        return [len(list(markup.picture(one.svg).iter("title"))) for one in drawn]

    assert rows(pictures) == [28, 28, 24] and "and 1 more in the table" in pictures[0].label
    for shown in map(texts, pictures):
        assert shown[shown.index("SMT on (baseline)") - 1].startswith("work ")
    many = [{**one, "workload": f"{one['workload']}{n}"} for n in range(9) for one in found]
    assert sum(rows(arms_part.forests(many))) <= 180


def test_a_page_of_many_arms_says_what_each_does_and_leaves_open(tmp_path):
    files, words = written(tmp_path, measured(MANY), compare="all")
    assert f"<title>web01: {ISOLATED} is best" in files["index.html"]
    assert f"{result_maker.title_of('mitigations_off')} against {ISOLATED}" in words
    assert "each other (6 comparisons)" in words and "What each arm leaves open" in words
    assert "SMT part closed" in words and "no longer mitigated" in words
    (host,) = json.loads(files["results.json"])["hosts"]
    assert [one["states"]["mds"] for one in host["exposure"]] == ["smt_open", "smt_closed", "smt_open", "opened"]
    assert host["recommendation"]["best"] == "isolated" and len(host["recommendation"]["pairs"]) == 6
    assert re.search(r"\n- SMT off: closes the part .*, of mds.* \(inferred\)\n", files["summary.md"].replace("\\", ""))
    assert 'arm="mitigations_off",baseline="isolated"' in files["metrics.prom"]


def test_a_fleet_gives_each_arm_its_own_outcome(tmp_path):
    arms = {"smt_on": 1.0, "smt_off": 1.0, "overcommit_strict": 1.2, "panic_on_oom": 0.9}
    one = {"workloads": {"gzip": result_maker.GZIP}}
    files, words = written(tmp_path, *(measured(arms, host=f"web{seed}", seed=seed, **one) for seed in range(4)))
    page, panic = files["index.html"], result_maker.title_of("panic_on_oom")
    for said in ("Leave SMT on at all 4 hosts.", "Strict overcommit: better, ", f"{panic}: worse at all 4 hosts."):
        assert said in words
    assert f"Should SMT be on? What do {panic} and strict overcommit do? 4 hosts" in words
    labels = re.findall(r'aria-label="(Change with its interval[^"]*)"', page)
    assert [label.count("against SMT on") for label in labels] == [0, 8]
    assert page.count("better with SMT off") == 1 and page.count("better than the baseline") == 1
