# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts: the class judged with hosts as units, outliers, two runs beside each other."""

import html
import json
import pathlib
import re

import jsonschema_rs
import markup
import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build, hardware_classes, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import (
    comparison as comparison_page,
    fleet as fleet_page,
)

SCHEMA = json.loads((pathlib.Path(__file__).parents[4] / "docs/results.schema.json").read_text(encoding="utf-8"))
SMALL = {"blocks": 6, "shape": (1, 2, 2)}


def gzip(share):
    return {"gzip": {**result_maker.GZIP, "share": share}}


def row(host, hardware_class="class-a", boots=None, confounded=False, **options):
    result = result_maker.result(host=host, **{**SMALL, **options})
    result["plan"].update(boots=boots, confounded=confounded)
    summary = {**result_maker.summarised(result, f"{host}.json"), "hardware_class": hardware_class}
    return hardware_classes.row(summary, f"{host}.html")


def rows_of(*shares, first=0, **options):
    """A row for each host, which does this share of its work where it shares a core."""
    return [row(f"web{n}", seed=first + n, workloads=gzip(share), **options) for n, share in enumerate(shares)]


def scaled(one, host, factor):
    workloads = {
        name: {**it, "ratio": it["ratio"] * factor, "candidate_value": it["candidate_value"] * factor}
        for name, it in one["workloads"].items()
    }
    return {**one, "host": host, "workloads": workloads}


def classes(rows):
    return hardware_classes.by_class(rows, 0.01, 0.95)


def of_class(rows):
    """The one class of these hosts, and what is said of its first workload."""
    (one,) = classes(rows)
    return one, one["workloads"][0]


def page(rows):
    """What a page of many hosts says first, and the rest of it."""
    shown = markup.whole(fleet_page.render(rows, [], classes(rows)))
    first, _heading, rest = html.unescape(shown).partition("By hardware class")
    return first, rest


def reported(directory, *documents, before=()):
    """The report of a run, after another one: what was built, its results.json, which fits its schema, its files."""
    for document in documents:
        result_files.save(directory, document)
    for document in before:
        result_files.save(directory / "before", document)
    settings = build.Settings(before=tuple(result_files.result_paths(directory / "before")) if before else ())
    made = build.build(result_files.result_paths(directory), directory, settings)
    files = {one.name: one.read_text(encoding="utf-8") for one in directory.iterdir() if one.suffix in (".html", ".md")}
    document = json.loads((directory / "results.json").read_text(encoding="utf-8"))
    jsonschema_rs.validator_for(SCHEMA).validate(document)
    return made, document, {name: html.unescape(markup.whole(shown)) for name, shown in files.items()}


def test_the_host_is_the_unit():
    rows = rows_of(*[0.625] * 4, first=12)
    single, enough = of_class(rows[:1])[0], of_class(rows)[0]
    for one, n, verdict, choice in ((single, 1, "inconclusive", "undecided"), (enough, 4, "loss", "on")):
        (found,) = one["workloads"]
        assert (found["n"], found["verdict"], one["recommendation"]) == (n, verdict, choice)
    assert found["ratio"] == pytest.approx(0.8, rel=0.01) and found["tau"] < 0.01
    assert enough["counts"] == {"SMT on": 4} and enough["vulnerable"] == 4
    assert hardware_classes.line(enough).startswith("class-a, 4 hosts combined: SMT on. gzip of a fixed stream −19.9 %")
    several = hardware_classes.line({**enough, "workloads": enough["workloads"] * 5})
    assert several.endswith(" And 2 more comparisons.") and several.count(", worse. ") == 3
    one, _workload = of_class([row("a", compared=False, reason="no SMT"), row("b")])
    assert one["hosts"] == 2 and (one["workloads"][0]["n"], one["workloads"][0]["tau"]) == (1, None)


CONFOUNDED = {"boots": 1, "confounded": True}


@pytest.mark.parametrize(
    ("rows", "verdict", "choice", "sentence"),
    [
        (rows_of(0.625), "inconclusive", "undecided", r"One host, which speaks for itself only: how the hosts .*"),
        (rows_of(*[0.625] * 4, first=12), "loss", "on", r"Its hosts differ no more than their own noise explains\."),
        (rows_of(*[0.625] * 3), "loss", "on", r"Hosts differ by 0\.2 %, which may be chance\."),
        (rows_of(0.6, 0.625, 0.6, 0.65), "loss", "on", r"Hosts differ by [34](\.[0-9])? %\."),
        (rows_of(0.6, 0.7), None, None, r".* Each of the 2 says worse by itself; so few decide .*"),
        (rows_of(0.625, 0.625), "loss", "on", r".*so each of web0 and web1 is needed for this.*"),
        (
            rows_of(*[0.625] * 4, 0.45, 0.45),
            "hosts_disagree",
            "hosts_disagree",
            r"Its hosts disagree: better on web4 and web5; worse on web0, web1, web2 and 1 more\.",
        ),
        ([*rows_of(0.625, 0.625), row("few", blocks=2)], None, None, r".*Too few blocks on few: so few hosts need 4.*"),
        ([*rows_of(0.625, 0.625), row("odd", **CONFOUNDED)], None, None, r".*Confounded .* on odd alone\."),
        # Booted in the same order at each of them, nobody tells the change from the reboot.
        (rows_of(*[0.625] * 4, **CONFOUNDED), "loss", "undecided", r".*"),
    ],
)
def test_what_the_hosts_of_a_class_say_together(rows, verdict, choice, sentence):
    one, workload = of_class(rows)
    assert re.fullmatch(sentence, workload["sentence"]), workload["sentence"]
    if verdict:
        assert (workload["verdict"], one["recommendation"]) == (verdict, choice)
    first, rest = page(rows)
    if verdict == "hosts_disagree":
        assert f"<li>class-a, gzip of a fixed stream: {sentence.replace(chr(92), '')}</li>" in first
        assert one["title"] == "its hosts disagree" and "✚\u00a0hosts disagree" in rest
    if choice == "undecided" and len(rows) > 1:
        assert 'worse</span> <span class="muted">confounded with the reboot</span>' in rest


@pytest.mark.parametrize(
    ("step", "odd", "margin", "is_one"),
    # A host that differs by less than what counts is none.
    [(0.001, 0.7, 0.01, True), (0.0001, 1.007, 0.01, False), (0.0001, 1.007, 0.005, True), (0.0, 2.0, 0.01, False)],
)
def test_outliers_are_beyond_the_fences(step, odd, margin, is_one):
    usual = {f"web{number}": 1.0 + step * number for number in range(9 if step else 3)}
    assert hardware_classes.outliers(usual, margin) == {}
    assert hardware_classes.outliers({**usual, "odd": odd}, margin) == ({"odd": odd} if is_one else {})


def test_what_a_person_has_to_look_at_is_named_on_top():
    first = row("web0")
    rows = [scaled(first, f"web{number}", 1 + 0.001 * number) for number in range(8)]
    rows.append(scaled(first, "odd", 0.5))
    rows[1] = {**rows[1], "restored": False, "differences": ["CPU 3 is offline"]}
    rows[2] = {**rows[2], "reboot_required": True}
    rows[3] = {**rows[3], "disagreement": "CPUs 0 and 2 share a core by measuring; the kernel says otherwise."}
    top, _rest = page(rows)
    for words in ("not as it was before: web1: CPU 3 is offline", "than now: web2", "web3: CPUs 0 and 2 share a core"):
        assert words in top
    assert "unlike the other hosts of their class: odd (gzip" in top


SEVERAL = (
    "Leave SMT on at 2 of 8 hosts; turn SMT off at 2; either will do at 1; it depends on the work at 1; not decided at"
    " 1; SMT on and off were not compared at 1."
)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ("by_workload " * 12, "It depends on the work at all 12 hosts."),
        ("on off off either by_workload undecided not_compared on", SEVERAL),
    ],
)
def test_the_headline_of_a_fleet_says_at_how_many_hosts_to_do_what(choices, said):
    one, titles = row("web"), text.RECOMMENDATION_TITLES
    rows = [
        {**one, "host": f"web{n}", "recommendation": of, "title": titles[of]} for n, of in enumerate(choices.split())
    ]
    assert re.findall('<p class="sentence">(.*?)</p>', page(rows)[0]) == [said]


def test_hosts_that_need_attention_come_first_and_links_choose_them():
    one = row("web")
    changes = {"a": {}, "b": {"outcome": "interrupted"}, "c": {"restored": False}, "d": {"outcome": "failed"}}
    shown = "".join(page([{**one, "host": host, **change} for host, change in changes.items()]))
    assert re.findall('<th scope="row"><a href="web.html">([a-d])</a>', shown) == ["c", "d", "b", "a"]
    links = re.findall('<a href="#([^"]*)" data-chooses="hosts">([^<]*)</a>', shown)
    assert links[:2] == [("put+back=NO", "NO 1"), ("put+back=yes", "yes 3")]
    assert [said for _link, said in links[2:]] == ["failed 1", "interrupted 1", "completed 2"]


def test_hosts_that_switched_another_setting_are_shown_with_it_and_not_counted_for_smt(tmp_path):
    _made, document, files = reported(
        tmp_path,
        *(
            make(host=f"{prefix}{number}", seed=number, **SMALL)
            for number in range(4)
            for prefix, make in (("smt", result_maker.result), ("memory", result_maker.policy_result))
        ),
    )
    shown = re.sub(r"\s+", " ", files["index.html"])
    assert "Should SMT be on? What does strict overcommit do? 8 hosts" in shown
    said = ["Leave SMT on at all 4 hosts.", "Strict overcommit: worse at 4 of 8 hosts."]
    assert re.findall('<p class="sentence">(.*?)</p>', shown) == said
    assert "better than the baseline" in shown and "better with SMT off" in shown
    found = classes([hardware_classes.row(one, "page") for one in document["hosts"]])
    assert {one["subject"]: (one["hosts"], one["recommendation"], one["title"]) for one in found} == {
        None: (4, "on", "SMT on"),
        "strict overcommit": (4, "not_compared", "strict overcommit: worse"),
    }


@pytest.mark.parametrize(("name", "title"), [("x" * 59, "another arm"), ("nosmt", "nosmt")])
def test_the_title_of_an_arm_is_ours_and_never_that_of_a_host(name, title):
    summary = result_maker.summarised(result_maker.policy_result(name=name, title="owned", **SMALL))
    assert hardware_classes.row(summary, "odd.html")["title"] == f"{title}: worse"


@pytest.mark.parametrize(
    ("name", "titles", "shown"),
    [("gzip", ("owned", "owned"), "gzip of a fixed stream"), ("app", ("owned", "app", "app"), "app")],
)
def test_a_title_is_what_most_hosts_say_and_of_our_own_workloads_ours(name, titles, shown):
    rows = [row(f"web{n}", workloads={name: {**result_maker.GZIP, "title": one}}) for n, one in enumerate(titles)]
    assert of_class(rows)[1]["title"] == shown


def test_a_workload_of_one_host_alone_does_not_decide_for_its_class():
    own = {"gzip": result_maker.GZIP, "own": {**result_maker.GZIP, "share": 0.4}}
    (one,) = classes([*rows_of(*[0.625] * 4), alone := row("own", workloads=own, seed=9)])
    assert (one["recommendation"], alone["recommendation"]) == ("on", "by_workload")
    found = {of["workload"]: (of["verdict"], of["family"]) for of in one["workloads"]}
    assert found == {"gzip": ("loss", 1), "own": ("inconclusive", 1)}


def declared(host, better="higher", share=0.53, run="now", kernel=None, **about):
    """The result of a host about a user's own workload, which is about 6 % slower with SMT off."""
    metrics = {"rate": {"unit": "1/s", "better": better, "aggregate": "sum", **about}}
    workloads = {"app": {**result_maker.GZIP, "share": share, "metrics": metrics, "title": "my app"}}
    document = result_maker.result(host=host, run=run, seed=sum(map(ord, host)), workloads=workloads, **SMALL)
    document["environment"]["kernel"] = kernel or document["environment"]["kernel"]
    return document


@pytest.mark.parametrize("liar", ["afirst", "zlast"])
def test_a_class_says_nothing_of_what_its_hosts_declare_differently(tmp_path, liar):
    documents = [*(declared(host) for host in "bcdnop"), declared(liar, "lower", aggregate="max")]
    made, document, files = reported(tmp_path, *documents)
    (one,) = made.classes
    assert (one["recommendation"], one["title"], one["workloads"]) == ("hosts_disagree", "its hosts disagree", [])
    (refused,) = one["refused"]
    assert [of["hosts"] for of in refused["declared"]] == [["b", "c", "d", "n", "o", "p"], [liar]]
    assert all(words in refused["sentence"] for words in ("lower is better", "b, c, d and 3 more", f"on {liar}."))
    assert f"my app: {refused['sentence']}" in hardware_classes.line(one)
    assert f"my app: {refused['sentence']}</li>" in files["index.html"].partition("By hardware class")[0]
    assert f"| my app | 7 |  |  | {refused['sentence']} |" in files["summary.md"]
    assert document["classes"][0]["refused"] == one["refused"]


def test_what_holds_for_a_class_is_in_the_files_for_programs_and_tickets(tmp_path):
    shares = enumerate((0.625, 0.45, 0.625))
    documents = [result_maker.result(host=f"<i>{n}", seed=n, workloads=gzip(share), **SMALL) for n, share in shares]
    _made, document, _files = reported(tmp_path, *documents)
    (one,) = document["classes"]
    assert one["recommendation"] == one["workloads"][0]["verdict"] == "hosts_disagree"
    assert one["workloads"][0]["said"] == {"gain": ["<i>1"], "loss": ["<i>0", "<i>2"]}
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert f"| `{one['hardware_class']}` | gzip of a fixed stream | 3 |" in summary
    assert r"better on \<i\>1; worse on \<i\>0 and \<i\>2. |" in summary
    assert "<i>" not in (tmp_path / "index.html").read_text(encoding="utf-8").partition("<script")[0]


def test_a_most_load_of_a_class_is_of_smt_on_as_that_of_each_host(tmp_path):
    _made, document, files = reported(tmp_path, *({**studies.sap(), "host": host} for host in "ab"))
    (of_all,) = document["classes"]
    (one,) = of_all["workloads"]
    title = "SAP SD, most users within 2 s"
    assert (one["name"], one["title"]) == (title, f"{title}, SMT on against SMT off")
    assert (one["effect"], one["change"], one["verdict"]) == ("smt_on", pytest.approx(100 / 550), "gain")
    # What is recommended is what each host says.
    assert of_all["recommendation"] == "on" and one["ci_low"] is one["ci_high"] is None
    assert "a and b have the same values in each block" in one["sentence"]
    for shown in (
        files["index.html"],
        files["a.html"],
        files["summary.md"],
        (tmp_path / "comparisons.csv").read_text(),
    ):
        assert "\u221215" not in shown and "-0.15" not in shown


def test_hosts_on_which_one_side_serves_no_load_agree_or_not_and_one_alone_decides_nothing():
    def served(host, sides):
        document = {**studies.sap(), "host": host}
        for sample in document["samples"]:
            if sample["arm"] == "smt_off" and sample["ok"]:
                sample["metrics"]["latency_mean"]["value"] = 2.5
            sample["arm"] = sides[sample["arm"]]
        return hardware_classes.row(result_maker.summarised(document), f"{host}.html")

    same, turned = {"smt_on": "smt_on", "smt_off": "smt_off"}, {"smt_on": "smt_off", "smt_off": "smt_on"}
    first, agreeing, other = served("a", same), served("b", same), served("c", turned)
    found = [classes(rows)[0]["recommendation"] for rows in ([first], [first, agreeing], [first, other])]
    assert found == ["undecided", "on", "hosts_disagree"]


def test_an_effect_has_changed_where_the_intervals_have_nothing_in_common():
    before, after = ({"ci_low": low, "ci_high": low + 0.02} for low in (0.79, 0.82))
    assert comparison_page.distinguish(before, after) == comparison_page.CHANGED
    assert comparison_page.distinguish(*reversed((before, after))) == comparison_page.CHANGED
    assert comparison_page.distinguish(before, {"ci_low": 0.80, "ci_high": 0.84}) == comparison_page.SAME
    assert comparison_page.distinguish(before, {"ci_low": None, "ci_high": None}) == comparison_page.UNKNOWN


def test_two_runs_beside_each_other(tmp_path):
    before = [declared(host, share=0.6, run="before", kernel="6.1.0-38") for host in "abcd"]
    after = [declared(host, share=0.66, run="after", kernel="6.1.0-40") for host in "bcde"]
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "broken.json").write_text("{")
    made, _document, files = reported(tmp_path, *after, before=before)
    shown = files["compare.html"]
    assert "3 hosts in both runs" in shown and "changed in 3 of 3 comparisons" in shown
    assert "only in the run before: a." in shown and "only in the run after: e." in shown
    assert "<td>6.1.0-38</td><td>6.1.0-40</td>" in shown
    assert [one.reason.partition(":")[0] for one in made.refused] == ["of the earlier run"]


def query(time):
    """A latency of 10 ms with SMT on, and of this many with SMT off."""
    metrics = {"latency_mean": {"unit": "ms", "better": "lower", "aggregate": "max"}}
    times = {"smt_on": 10.0, "smt_off": time}
    return {"q": {"title": "query", "metrics": metrics, "model": lambda arm, _spot, placed: [times[arm]] * len(placed)}}


def test_between_two_runs_the_effect_on_a_time_changes_in_the_direction_of_the_time(tmp_path):
    def run(name, off):
        options = {**SMALL, "run": name, "noise": 0.0001, "names": ["all_threads"]}
        workloads = {**query(off), **gzip(5 / off)}
        return [result_maker.result(host=host, workloads=workloads, **options) for host in "abcd"]

    shown = reported(tmp_path, *run("after", 7.0), before=run("before", 8.0))[2]["compare.html"]
    # SMT off took 0.8 of the time and takes 0.7 of it, and did 0.8 of the work and does 0.7 of it.
    pattern = r'<th scope="row">(query|gzip).*?data-v="(.*?)".*?(better|worse)<'
    found = re.findall(pattern, shown.partition("By host")[0])
    assert [(name, word) for name, _change, word in found] == [("query", "better"), ("gzip", "worse")]
    assert [float(changed) for _name, changed, _word in found] == pytest.approx([-0.125, -0.125], abs=0.001)
