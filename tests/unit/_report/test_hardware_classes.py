# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts: the class judged with hosts as units, outliers, two runs beside each other."""

from __future__ import annotations

import html
import json
import pathlib
import re

import jsonschema_rs
import markup
import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import wording
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build, hardware_classes, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import (
    comparison as comparison_page,
    fleet as fleet_page,
)

SETTINGS = build.Settings()


def row(host, hardware_class="class-a", boots=None, confounded=False, **options):
    result = result_maker.result(host=host, **{"blocks": 5, "shape": (1, 2, 2), **options})
    result["plan"].update(boots=boots, confounded=confounded)
    summary = {**result_maker.summarised(result, f"{host}.json"), "hardware_class": hardware_class}
    return hardware_classes.row(summary, f"{host}.html")


def scaled(one, host, factor):
    workloads = {
        name: {**it, "ratio": it["ratio"] * factor, "candidate_value": it["candidate_value"] * factor}
        for name, it in one["workloads"].items()
    }
    return {**one, "host": host, "workloads": workloads}


def page(rows):
    return markup.whole(fleet_page.render(rows, [], hardware_classes.by_class(rows, 0.01, 0.95)))


def read(path):
    return markup.whole(path.read_text(encoding="utf-8"))


def test_hosts_of_which_streams_decide_say_from_how_many_on():
    """They were "it depends on the work", of a class that was "not compared"."""
    rows = []
    for name in ("h1", "h2"):
        document = studies.hp(host=name, tests=["inner"])
        rows.append(hardware_classes.row(result_maker.summarised(document, f"{name}.json"), f"{name}.html"))
    said = page(rows)
    assert "It depends on how much runs at once at both hosts." in said
    assert "SMT helps array, inner from 8 streams on (h1 and h2)." in said
    (of_class,) = hardware_classes.by_class(rows, 0.01, 0.95)
    assert of_class["recommendation"] == "by_workload"


def test_the_host_is_the_unit():
    rows = [row(f"web{number}", seed=number) for number in range(4)]
    (single,) = hardware_classes.by_class(rows[:1], 0.01, 0.95)
    (enough,) = hardware_classes.by_class(rows, 0.01, 0.95)
    assert (
        single["workloads"][0]["n"] == 1
        and single["workloads"][0]["verdict"] == "inconclusive"
        and single["recommendation"] == "undecided"
    )
    assert (
        single["workloads"][0]["sentence"]
        == "One host, which speaks for itself only: how the hosts of its class differ is not known."
    )
    assert (
        enough["workloads"][0]["n"] == 4
        and enough["workloads"][0]["verdict"] == "loss"
        and enough["recommendation"] == "on"
    )
    assert enough["workloads"][0]["ratio"] == pytest.approx(0.8, rel=0.01) and enough["workloads"][0]["tau"] < 0.01
    assert enough["counts"] == {"SMT on": 4} and enough["vulnerable"] == 4


def test_three_hosts_that_agree_decide_for_their_class_and_where_they_do_not_the_page_says_who_goes_which_way():
    agreeing = [row(f"web{number}", seed=number, blocks=6) for number in range(3)]
    (one,) = hardware_classes.by_class(agreeing, 0.01, 0.95)
    assert (one["workloads"][0]["verdict"], one["recommendation"], one["workloads"][0]["blocks"]) == ("loss", "on", 18)
    faster = {"gzip": {**result_maker.GZIP, "share": 0.45}}
    rows = [
        *agreeing,
        row("web3", seed=3, blocks=6),
        *(row(f"odd{number}", seed=number, blocks=6, workloads=faster) for number in range(2)),
    ]
    (one,) = hardware_classes.by_class(rows, 0.01, 0.95)
    assert (one["recommendation"], one["title"], one["workloads"][0]["verdict"]) == (
        "hosts_disagree",
        "its hosts disagree",
        "hosts_disagree",
    )
    sentence = "Its hosts disagree: better on odd0 and odd1; worse on web0, web1, web2 and 1 more."
    assert one["workloads"][0]["sentence"] == sentence
    text = html.unescape(page(rows))
    assert (
        f"<li>class-a, gzip of a fixed stream: {sentence}</li>" in text.partition("By hardware class")[0]
        and "✚\u00a0hosts disagree" in text
    )


def test_how_much_hosts_differ_is_said_without_their_noise():
    def said(*shares, first=12):
        rows = [
            row(
                f"web{number}", seed=first + number, blocks=6, workloads={"gzip": {**result_maker.GZIP, "share": share}}
            )
            for number, share in enumerate(shares)
        ]
        (one,) = hardware_classes.by_class(rows, 0.01, 0.95)
        return one["workloads"][0]["sentence"]

    assert said(0.625, 0.625, 0.625, 0.625) == "Its hosts differ no more than their own noise explains."
    assert said(0.625, 0.625, 0.625, 0.625, first=4) == "Hosts differ by 0.1 %, which may be chance."
    assert re.fullmatch(r"Hosts differ by [34](\.[0-9])? %\.", said(0.6, 0.625, 0.6, 0.65))
    assert re.fullmatch(r"Hosts differ by .* %\. Each of the 2 says worse by itself; so few decide .*", said(0.6, 0.7))
    rows = [row(f"web{number}", seed=12 + number, blocks=6) for number in range(4)]
    (one,) = hardware_classes.by_class(rows, 0.01, 0.95)
    about = (
        "gzip of a fixed stream −19.9 % (−20.1 to −19.8 %), worse. Its hosts differ no more than their own noise"
        " explains."
    )
    assert hardware_classes.line(one) == f"class-a, 4 hosts combined: SMT on. {about}"
    several = {**one, "workloads": one["workloads"] * 5}
    assert (
        hardware_classes.line(several).endswith(" And 2 more comparisons.")
        and hardware_classes.line(several).count(", worse. ") == 3
    )
    assert wording.named(["a", "b", "c"]) == "a, b and c" and wording.named(list("abcde")) == "a, b, c and 2 more"


def test_hosts_that_were_all_booted_in_the_same_order_do_not_tell_the_change_from_the_reboot():
    rows = [row(f"web{number}", seed=number, boots=1, confounded=True) for number in range(4)]
    (one,) = hardware_classes.by_class(rows, 0.01, 0.95)
    assert (one["workloads"][0]["verdict"], one["recommendation"], one["title"]) == ("loss", "undecided", "not decided")
    assert 'worse</span> <span class="muted">confounded with the reboot</span>' in page(rows)


def test_the_largest_class_comes_first_and_the_unknown_last():
    rows = [row("a", None), row("b", "small"), row("c", "large"), row("d", "large"), row("e", None), row("f", None)]
    assert [(one["hardware_class"], one["hosts"]) for one in hardware_classes.by_class(rows, 0.01, 0.95)] == [
        ("large", 2),
        ("small", 1),
        (None, 3),
    ]


def test_a_host_that_was_not_compared_counts_without_a_ratio():
    (one,) = hardware_classes.by_class([row("a", compared=False, reason="no SMT"), row("b")], 0.01, 0.95)
    assert one["hosts"] == 2 and one["workloads"][0]["n"] == 1 and one["workloads"][0]["tau"] is None


def test_outliers_are_beyond_the_fences():
    usual = {f"web{number}": 0.8 + 0.001 * number for number in range(9)}
    assert hardware_classes.outliers({**usual, "odd": 0.7}, 0.01) == {"odd": 0.7}
    assert hardware_classes.outliers(usual, 0.01) == {}
    assert hardware_classes.outliers({"a": 1.0, "b": 1.0, "c": 1.0, "odd": 2.0}, 0.01) == {}


def test_a_host_that_differs_by_less_than_what_counts_is_none_of_them():
    usual = {f"web{number}": 1.0 + 0.0001 * number for number in range(9)}
    assert hardware_classes.outliers({**usual, "odd": 1.007}, 0.01) == {}
    assert hardware_classes.outliers({**usual, "odd": 1.007}, 0.005) == {"odd": 1.007}


def test_what_a_person_has_to_look_at_is_named_on_top():
    first = row("web0")
    rows = [scaled(first, f"web{number}", 1 + 0.001 * number) for number in range(8)]
    rows.append(scaled(first, "odd", 0.5))
    rows[1] = {**rows[1], "restored": False, "differences": ["CPU 3 is offline"]}
    rows[2] = {**rows[2], "reboot_required": True}
    rows[3] = {**rows[3], "disagreement": "CPUs 0 and 2 share a core by measuring; the kernel says otherwise."}
    top = html.unescape(page(rows).partition("By hardware class")[0])
    for words in (
        "1 host not as it was before: web1: CPU 3 is offline",
        "1 host would boot with other SMT arguments than now: web2",
        "web3: CPUs 0 and 2 share a core by measuring",
        "1 host unlike the other hosts of their class: odd (gzip",
    ):
        assert words in top


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (["by_workload"] * 12, "It depends on the work at all 12 hosts."),
        (["on"], "Leave SMT on at 1 host."),
        (
            ["on", "off", "off", "either", "by_workload", "undecided", "not_compared", "on"],
            (
                "Leave SMT on at 2 of 8 hosts; turn SMT off at 2; either will do at 1; it depends on the work at 1; not"
                " decided at 1; SMT on and off were not compared at 1."
            ),
        ),
    ],
)
def test_the_headline_of_a_fleet_says_at_how_many_hosts_to_do_what(choices, said):
    one = row("web")
    titles = text.RECOMMENDATION_TITLES
    text_of_page = page(
        [
            {**one, "host": f"web{number}", "recommendation": choice, "title": titles[choice]}
            for number, choice in enumerate(choices)
        ]
    )
    assert re.findall('<p class="sentence">(.*?)</p>', text_of_page) == [said]


def test_hosts_that_need_attention_come_first_and_links_choose_them():
    one = row("web")
    changes = {
        "a": {},
        "b": {"outcome": "interrupted"},
        "c": {"restored": False},
        "d": {"outcome": "failed"},
    }
    text_of_page = page([{**one, "host": host, **change} for host, change in changes.items()])
    assert re.findall('<th scope="row"><a href="web.html">([a-d])</a>', text_of_page) == ["c", "d", "b", "a"]
    links = re.findall('<a href="([^"]*)" data-chooses="hosts">([^<]*)</a>', text_of_page)
    assert links == [
        ("#put+back=NO", "NO 1"),
        ("#put+back=yes", "yes 3"),
        ("#run=failed", "failed 1"),
        ("#run=interrupted", "interrupted 1"),
        ("#run=completed", "completed 2"),
    ]


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
            result = result_maker.result(
                host=host, run=run, blocks=6, shape=(1, 2, 2), seed=ord(host), workloads=workloads
            )
            result["environment"]["kernel"] = {"before": "6.1.0-38", "after": "6.1.0-40"}[run]
            result_files.save(tmp_path / run, result)
    (tmp_path / "before" / "broken.json").write_text("{")
    settings = build.Settings(before=tuple(result_files.result_paths(tmp_path / "before")))
    made = build.build(result_files.result_paths(tmp_path / "after"), tmp_path / "after", settings)
    text = read(tmp_path / "after" / "compare.html")
    assert "3 hosts in both runs" in text and "changed in 3 of 3 comparisons" in text
    assert "1 host only in the run before: a." in text and "1 host only in the run after: e." in text
    assert "<td>6.1.0-38</td><td>6.1.0-40</td>" in text
    assert [one.reason.partition(":")[0] for one in made.refused] == ["of the earlier run"]


def test_what_holds_for_a_class_is_in_the_files_for_programs_and_tickets(tmp_path):
    for number, share in enumerate((0.625, 0.45, 0.625)):
        workloads = {"gzip": {**result_maker.GZIP, "share": share}}
        result = result_maker.result(host=f"<i>{number}", blocks=6, shape=(1, 2, 2), seed=number, workloads=workloads)
        result_files.save(tmp_path, result)
    build.build(result_files.result_paths(tmp_path), tmp_path)
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    (one,) = document["classes"]
    assert one["recommendation"] == one["workloads"][0]["verdict"] == "hosts_disagree"
    assert (
        one["workloads"][0]["said"] == {"gain": ["<i>1"], "loss": ["<i>0", "<i>2"]}
        and "ratios" not in one["workloads"][0]
    )
    schema = json.loads((pathlib.Path(__file__).parents[3] / "docs/results.schema.json").read_text(encoding="utf-8"))
    jsonschema_rs.Draft202012Validator(schema).validate(document)
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert (
        f"| `{one['hardware_class']}` | gzip of a fixed stream | 3 |" in summary
        and r"| hosts disagree | Its hosts disagree: better on \<i\>1; worse on \<i\>0 and \<i\>2. |" in summary
    )
    assert "<i>" not in read(tmp_path / "index.html").partition("<script")[0]


def test_hosts_that_switched_another_setting_are_shown_with_it_and_not_counted_for_smt(tmp_path):
    for number in range(4):
        for prefix, make in (("smt", result_maker.result), ("memory", result_maker.policy_result)):
            result_files.save(tmp_path, make(host=f"{prefix}{number}", blocks=6, shape=(1, 2, 2), seed=number))
    build.build(result_files.result_paths(tmp_path), tmp_path)
    text = re.sub(r"\s+", " ", read(tmp_path / "index.html"))
    assert "Should SMT be on? What does strict overcommit do? 8 hosts" in text
    assert '<p class="sentence">Leave SMT on at all 4 hosts.</p>' in text
    assert '<p class="sentence">Strict overcommit: worse at 4 of 8 hosts.</p>' in text
    assert (
        "gzip of a fixed stream, strict overcommit" in text
        and "better than the baseline" in text
        and "better with SMT off" in text
    )
    rows = [
        hardware_classes.row(one, "page")
        for one in json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["hosts"]
    ]
    classes = {one["subject"]: one for one in hardware_classes.by_class(rows, 0.01, 0.95)}
    assert {subject: (one["hosts"], one["recommendation"], one["title"]) for subject, one in classes.items()} == {
        None: (4, "on", "SMT on"),
        "strict overcommit": (4, "not_compared", "strict overcommit: worse"),
    }
    unknown = {**result_maker.policy_result(name="x" * 59, blocks=5, shape=(1, 2, 2)), "host": "odd"}
    assert (
        hardware_classes.row(result_maker.summarised(unknown, "odd.json"), "odd.html")["title"] == "another arm: worse"
    )
    booted = {**result_maker.policy_result(name="nosmt", blocks=5, shape=(1, 2, 2)), "host": "booted"}
    assert (
        hardware_classes.row(result_maker.summarised(booted, "booted.json"), "booted.html")["title"] == "nosmt: worse"
    )
    assert {workload["workload"] for workload in classes["strict overcommit"]["workloads"]} == {
        "gzip, all_threads, overcommit_strict"
    }


def declared(host, better="higher", share=0.53, run="now", **about):
    """The result of a host about a user's own workload, which is about 6 % slower with SMT off."""
    metrics = {"rate": {"unit": "1/s", "better": better, "aggregate": "sum", **about}}
    workloads = {"app": {**result_maker.GZIP, "share": share, "metrics": metrics, "title": "my app"}}
    return result_maker.result(
        host=host, run=run, blocks=6, shape=(1, 2, 2), seed=sum(map(ord, host)), workloads=workloads
    )


@pytest.mark.parametrize("liar", ["afirst", "middle", "zlast"])
def test_a_class_says_nothing_of_what_its_hosts_declare_differently(tmp_path, liar):
    for host in ("b", "c", "d", "n", "o", "p"):
        result_files.save(tmp_path, declared(host))
    result_files.save(tmp_path, declared(liar, "lower", aggregate="max"))
    made = build.build(result_files.result_paths(tmp_path), tmp_path)
    (one,) = made.classes
    assert (one["recommendation"], one["title"], one["workloads"]) == ("hosts_disagree", "its hosts disagree", [])
    sentence = (
        "Its hosts declare it differently, so nothing is said of it: rate in 1/s, higher is better, sum of its workers"
        f" on b, c, d and 3 more; rate in 1/s, lower is better, max of its workers on {liar}."
    )
    assert one["refused"][0]["sentence"] == sentence and f"my app: {sentence}" in hardware_classes.line(one)
    assert [of["hosts"] for of in one["refused"][0]["declared"]] == [["b", "c", "d", "n", "o", "p"], [liar]]
    text = html.unescape(read(tmp_path / "index.html"))
    assert f"my app: {sentence}</li>" in text.partition("By hardware class")[0] and "✚ hosts disagree" in text
    assert f"| my app | 7 |  |  | {sentence} |" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    schema = json.loads((pathlib.Path(__file__).parents[3] / "docs/results.schema.json").read_text(encoding="utf-8"))
    jsonschema_rs.Draft202012Validator(schema).validate(document)
    assert document["classes"][0]["refused"] == one["refused"]


def test_a_title_is_what_most_hosts_say_and_of_our_own_workloads_ours():
    rows = [row(f"web{number}", workloads={"gzip": {**result_maker.GZIP, "title": "owned"}}) for number in range(2)]
    (one,) = hardware_classes.by_class(rows, 0.01, 0.95)
    assert one["workloads"][0]["title"] == "gzip of a fixed stream"
    rows = [
        row(f"web{number}", workloads={"app": {**result_maker.GZIP, "title": "app" if number else "owned"}})
        for number in range(3)
    ]
    assert hardware_classes.by_class(rows, 0.01, 0.95)[0]["workloads"][0]["title"] == "app"


def test_a_workload_of_one_host_alone_does_not_decide_for_its_class():
    rows = [row(f"web{number}", seed=number) for number in range(4)]
    rows.append(row("own", workloads={"gzip": result_maker.GZIP, "own": {**result_maker.GZIP, "share": 0.4}}, seed=9))
    (one,) = hardware_classes.by_class(rows, 0.01, 0.95)
    assert one["recommendation"] == "on" and {of["workload"]: of["verdict"] for of in one["workloads"]} == {
        "gzip": "loss",
        "own": "inconclusive",
    }
    assert [of["family"] for of in one["workloads"]] == [1, 1] and rows[-1]["recommendation"] == "by_workload"


def test_the_page_names_the_host_that_alone_turns_its_class():
    first = row("web0", blocks=6)
    rows = [scaled(first, f"web{number}", factor) for number, factor in enumerate((1.242, 1.2435, 1.2445, 1.2455))]
    rows.append(scaled(first, "odd", 1.29))
    (one,) = hardware_classes.by_class(rows, 0.01, 0.95)
    workload = one["workloads"][0]
    if workload["turned_by"]:
        assert (
            "alone" in workload["sentence"]
            and workload["sentence"] in html.unescape(page(rows)).partition("By hardware class")[0]
        )
    two = [row(f"web{number}", seed=number, blocks=6) for number in range(2)]
    (pair,) = hardware_classes.by_class(two, 0.01, 0.95)
    assert set(pair["workloads"][0]["turned_by"]) == {
        "web0",
        "web1",
    } and "so each of web0 and web1 is needed for this" in html.unescape(page(two))


def test_two_runs_of_different_declarations_are_not_compared(tmp_path):
    for host in "abcd":
        result_files.save(tmp_path / "before", declared(host, run="before"))
        other = {"better": "lower", "aggregate": "max"} if host == "c" else {}
        result_files.save(tmp_path / "after", declared(host, run="after", **other))
    settings = build.Settings(before=tuple(result_files.result_paths(tmp_path / "before")))
    build.build(result_files.result_paths(tmp_path / "after"), tmp_path / "after", settings)
    text = html.unescape(read(tmp_path / "after" / "compare.html"))
    assert (
        "app is not compared: rate in 1/s, higher is better, sum of its workers on a before, a after, b before and 4"
        " more;" in text
    )
    assert (
        "lower is better, max of its workers on c after.</li>" in text
        and "No host compared the same in both runs." in text
    )


def test_a_host_that_alone_turns_what_two_runs_say_is_named(tmp_path):
    shares = {"a": 0.53, "b": 0.53, "c": 0.53, "d": 0.53}
    for run, factor in (("before", 1.0), ("after", 1.1)):
        for host, share in shares.items():
            result_files.save(tmp_path / run, declared(host, share=share * factor, run=run))
    settings = build.Settings(before=tuple(result_files.result_paths(tmp_path / "before")))
    build.build(result_files.result_paths(tmp_path / "after"), tmp_path / "after", settings)
    text = html.unescape(read(tmp_path / "after" / "compare.html"))
    assert (
        "One host alone turns this, each of a, b, c and 1 more: without it the other 3 say not decided; it takes about"
        in text
    )


def test_a_host_that_keeps_a_class_open_by_its_blocks_or_its_boots_is_named():
    def said(rows):
        (one,) = hardware_classes.by_class(rows, 0.01, 0.95)
        return one["workloads"][0]["sentence"]

    rows = [row(f"web{number}", seed=number, blocks=6) for number in range(2)]
    assert said([*rows, row("few", seed=3, blocks=2)]).endswith("Too few blocks on few: so few hosts need 4 each.")
    assert said([*rows, row("odd", seed=3, blocks=6, boots=1, confounded=True)]).endswith(
        "Confounded with the reboot on odd alone."
    )


def query(time):
    """A latency of 10 ms with SMT on, and of this many with SMT off."""
    return {
        "q": {
            "title": "query",
            "metrics": {"latency_mean": {"unit": "ms", "better": "lower", "aggregate": "max"}},
            "model": lambda arm, _spot, placed: [10.0 if arm == "smt_on" else time] * len(placed),
        }
    }


def test_between_two_runs_the_effect_on_a_time_changes_in_the_direction_of_the_time(tmp_path):
    for run, off in (("before", 8.0), ("after", 7.0)):
        for host in "abcd":
            workloads = {**query(off), "gzip": {**result_maker.GZIP, "share": 5 / off}}
            options = {"run": run, "blocks": 6, "shape": (1, 2, 2), "noise": 0.0001, "names": ["all_threads"]}
            result_files.save(tmp_path / run, result_maker.result(host=host, workloads=workloads, **options))
    settings = build.Settings(before=tuple(result_files.result_paths(tmp_path / "before")))
    build.build(result_files.result_paths(tmp_path / "after"), tmp_path / "after", settings)
    text = read(tmp_path / "after" / "compare.html")
    # SMT off took 0.8 of the time and takes 0.7 of it, and did 0.8 of the work and does 0.7 of it.
    found = re.findall(r'<th scope="row">(query|gzip).*?data-v="(.*?)".*?(better|worse)<', text.partition("By host")[0])
    assert [(name, word) for name, _change, word in found] == [("query", "better"), ("gzip", "worse")]
    assert [float(changed) for _name, changed, _word in found] == pytest.approx([-0.125, -0.125], abs=0.001)


def test_least_and_most_are_changes_of_the_metric_itself():
    rows = [row(f"h{number}", workloads=query(off), noise=0.0001) for number, off in enumerate((12.0, 8.0))]
    ends = re.search(r"</span></td>(.*?)</tr>", page(rows).partition("<td>query</td>")[2])[1]
    assert re.findall(r"<td[^>]*>([^<]*)%</td>", ends)[:2] == ["\u221220 ", "+20 "]


def test_a_most_load_of_a_class_is_of_smt_on_as_that_of_each_host(tmp_path):
    for host in "ab":
        result_files.save(tmp_path, {**studies.sap(), "host": host})
    build.build(result_files.result_paths(tmp_path), tmp_path)
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    schema = json.loads((pathlib.Path(__file__).parents[3] / "docs/results.schema.json").read_text(encoding="utf-8"))
    jsonschema_rs.validator_for(schema).validate(document)
    (of_class,) = document["classes"]
    (one,) = of_class["workloads"]
    title = "SAP SD, most users within 2 s"
    assert (one["name"], one["title"]) == (title, f"{title}, SMT on against SMT off")
    assert (one["effect"], one["change"], one["verdict"]) == ("smt_on", pytest.approx(100 / 550), "gain")
    # What is recommended is what each host says.
    assert of_class["recommendation"] == "on" and one["ci_low"] is one["ci_high"] is None
    assert one["sentence"].startswith(
        "How much its hosts differ beyond chance is not known: a and b have the same values in each block."
    )
    for name in ("index.html", "a.html", "summary.md", "comparisons.csv"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "\u221215" not in text and "-0.15" not in text
    page = html.unescape(read(tmp_path / "index.html"))
    assert (
        f"{title}, SMT on against SMT off" in page and "better with SMT off" in page.partition("better with SMT on")[0]
    )


def test_most_loads_of_different_sides_are_not_combined():
    alone = hardware_classes.row(result_maker.summarised({**studies.sap(), "host": "a"}), "a.html")
    three = studies.sap()
    three.update(host="b", arms=[*three["arms"], result_maker.arm("isolated", "isolated", False)])
    of_three = hardware_classes.row(result_maker.summarised(three), "b.html")
    (one,) = hardware_classes.by_class([alone, of_three], 0.01, 0.95)
    assert [(of["effect"], of["n"], round(of["change"], 3)) for of in one["workloads"]] == [
        ("smt_on", 1, 0.182),
        ("smt_off", 1, -0.154),
    ]
