# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many hosts: the class judged with hosts as units, outliers, two runs beside each other."""

import dataclasses
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
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import fleet as fleet_page

SCHEMA = json.loads((pathlib.Path(__file__).parents[4] / "docs/results.schema.json").read_text(encoding="utf-8"))
SMALL = {"blocks": 6, "shape": (1, 2, 2)}


def gzip(share):
    return {"gzip": {**result_maker.GZIP, "share": share}}


def row(host, hardware_class="class-a", boots=None, confounded=False, **options):
    result = result_maker.result(host=host, **{**SMALL, **options})
    result["plan"].update(boots=boots, confounded=confounded)
    made = hardware_classes.row(result_maker.summary(result, f"{host}.json"), f"{host}.html")
    return dataclasses.replace(made, hardware_class=hardware_class)


def rows_of(*shares, first=0, **options):
    """A row for each host, which does this share of its work where it shares a core."""
    return [row(f"web{n}", seed=first + n, workloads=gzip(share), **options) for n, share in enumerate(shares)]


def classes(rows):
    return hardware_classes.by_class(rows, 0.01, 0.95)


def of_class(rows):
    """The one class of these hosts, and what is said of its first workload."""
    (one,) = classes(rows)
    return one, one.workloads[0]


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
    enough, found = of_class(rows_of(*[0.625] * 4, first=12))
    assert found.n == 4 and found.ratio == pytest.approx(0.8, rel=0.01) and found.tau < 0.01
    assert enough.counts == {"SMT on": 4} and enough.vulnerable == 4
    several = dataclasses.replace(enough, workloads=enough.workloads * 5).line
    assert several.startswith("class-a, 4 hosts combined: SMT on. gzip of a fixed stream −19.9 %")
    assert several.endswith(" And 2 more comparisons.") and several.count(", worse. ") == 3
    one, workload = of_class([row("a", compared=False, reason="no SMT"), row("b")])
    assert (one.hosts, workload.n, workload.tau) == (2, 1, None)


DISAGREE = rows_of(*[0.625] * 4, 0.45, 0.45)
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
        (DISAGREE, *["hosts_disagree"] * 2, r".*: better on web4 and web5; worse on web0, web1, web2 and 1 more\."),
        ([*rows_of(0.625, 0.625), row("few", blocks=2)], None, None, r".*Too few blocks on few: so few hosts need 4.*"),
        ([*rows_of(0.625, 0.625), row("odd", **CONFOUNDED)], None, None, r".*Confounded .* on odd alone\."),
        # Booted in the same order at each of them, nobody tells the change from the reboot.
        (rows_of(*[0.625] * 4, **CONFOUNDED), "loss", "undecided", r".*"),
    ],
)
def test_what_the_hosts_of_a_class_say_together(rows, verdict, choice, sentence):
    one, workload = of_class(rows)
    assert re.fullmatch(sentence, workload.sentence), workload.sentence
    if verdict:
        assert (workload.verdict, one.recommendation) == (verdict, choice)
    first, rest = page(rows)
    if verdict == "hosts_disagree":
        assert f"<li>class-a, gzip of a fixed stream: {workload.sentence}</li>" in first
        assert one.title == "its hosts disagree" and "✚\u00a0hosts disagree" in rest
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
    rows = [*rows_of(*[0.625] * 8), row("odd", workloads=gzip(1.0))]
    rows[1] = dataclasses.replace(rows[1], restored=False, differences=["CPU 3 is offline"])
    rows[2] = dataclasses.replace(rows[2], reboot_required=True)
    rows[3] = dataclasses.replace(
        rows[3], disagreement="CPUs 0 and 2 share a core by measuring; the kernel says otherwise."
    )
    top, _rest = page(rows)
    for words in ("not as it was before: web1: CPU 3 is offline", "than now: web2", "web3: CPUs 0 and 2 share a core"):
        assert words in top
    assert "unlike the other hosts of their class: odd (gzip" in top


def test_the_headline_of_a_fleet_says_at_how_many_hosts_to_do_what():
    one, choices = row("web"), ["on", "off", "off", "either", "by_workload", "undecided", "not_compared", "on"]
    titles = text.RECOMMENDATION_TITLES
    rows = [
        dataclasses.replace(one, host=f"web{n}", recommendation=of, title=titles[of]) for n, of in enumerate(choices)
    ]
    (said,) = re.findall('<p class="sentence">(.*?)</p>', page(rows)[0])
    assert said.startswith("Leave SMT on at 2 of 8 hosts; turn SMT off at 2; either will do at 1; it depends on the ")
    assert said.endswith("not decided at 1; SMT on and off were not compared at 1.")


def test_hosts_that_switched_another_setting_are_shown_with_it_and_not_counted_for_smt(tmp_path):
    both = [result_maker.result(host=f"smt{n}", seed=n, **SMALL) for n in range(4)]
    both += [result_maker.policy_result(host=f"memory{n}", seed=n, **SMALL) for n in range(4)]
    _made, document, files = reported(tmp_path, *both)
    shown = re.sub(r"\s+", " ", files["index.html"])
    assert "Should SMT be on? What does strict overcommit do? 8 hosts" in shown
    said = ["Leave SMT on at all 4 hosts.", "Strict overcommit: worse at 4 of 8 hosts."]
    assert re.findall('<p class="sentence">(.*?)</p>', shown) == said
    assert "better than the baseline" in shown and "better with SMT off" in shown
    assert {one["subject"]: (one["hosts"], one["recommendation"], one["title"]) for one in document["classes"]} == {
        None: (4, "on", "SMT on"),
        "strict overcommit": (4, "not_compared", "strict overcommit: worse"),
    }


@pytest.mark.parametrize(("name", "title"), [("x" * 59, "another arm"), ("nosmt", "nosmt")])
def test_the_title_of_an_arm_is_ours_and_never_that_of_a_host(name, title):
    summary = result_maker.summary(result_maker.policy_result(name=name, title="owned", **SMALL))
    assert hardware_classes.row(summary, "odd.html").title == f"{title}: worse"


def test_a_workload_of_one_host_alone_does_not_decide_for_its_class():
    own = {"gzip": result_maker.GZIP, "own": {**result_maker.GZIP, "share": 0.4}}
    (one,) = classes([*rows_of(*[0.625] * 4), alone := row("own", workloads=own, seed=9)])
    assert (one.recommendation, alone.recommendation) == ("on", "by_workload")
    found = {of.workload: (of.verdict, of.family) for of in one.workloads}
    assert found == {"gzip": ("loss", 1), "own": ("inconclusive", 1)}


def declared(host, better="higher", share=0.53, run="now", **about):
    """The result of a host about a user's own workload, which is about 6 % slower with SMT off."""
    metrics = {"rate": {"unit": "1/s", "better": better, "aggregate": "sum", **about}}
    workloads = {"app": {**gzip(share)["gzip"], "metrics": metrics, "title": "my app"}}
    return result_maker.result(host=host, run=run, seed=sum(map(ord, host)), workloads=workloads, **SMALL)


@pytest.mark.parametrize("liar", ["afirst", "zlast"])
def test_a_class_says_nothing_of_what_its_hosts_declare_differently(tmp_path, liar):
    documents = [*(declared(host) for host in "bcdnop"), declared(liar, "lower", aggregate="max")]
    made, document, files = reported(tmp_path, *documents)
    (one,) = made.classes
    assert (one.recommendation, one.title, one.workloads) == ("hosts_disagree", "its hosts disagree", [])
    (refused,) = one.refused
    assert list(refused.declared.values()) == [["b", "c", "d", "n", "o", "p"], [liar]]
    sentence = refused.sentence
    assert all(words in sentence for words in ("lower is better", "b, c, d and 3 more", f"on {liar}."))
    assert f"my app: {sentence}" in one.line and f"| {sentence} |" in files["summary.md"]
    assert f"my app: {sentence}</li>" in files["index.html"].partition("By hardware class")[0]
    assert document["classes"][0]["refused"] == [refused.described()]


def test_a_most_load_of_a_class_is_of_smt_on_as_that_of_each_host(tmp_path):
    _made, document, files = reported(tmp_path, *({**studies.sap(), "host": host} for host in "ab"))
    (of_all,) = document["classes"]
    (one,) = of_all["workloads"]
    assert one["title"] == "SAP SD, most users within 2 s, SMT on against SMT off"
    assert (one["effect"], one["change"], one["verdict"]) == ("smt_on", pytest.approx(100 / 550), "gain")
    assert of_all["recommendation"] == "on" and one["ci_low"] is one["ci_high"] is None
    assert all("\u221215" not in files[name] for name in ("index.html", "a.html", "summary.md"))


BESIDE = (("abcd", 0.6, "before"), ("bcde", 0.66, "after"))


def test_two_runs_beside_each_other(tmp_path):
    before, after = ([declared(host, share=share, run=run) for host in hosts] for hosts, share, run in BESIDE)
    before[1]["environment"]["kernel"] = "5.10.0"
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "broken.json").write_text("{")
    made, _document, files = reported(tmp_path, *after, before=before)
    shown = files["compare.html"]
    assert "3 hosts in both runs" in shown and "changed in 3 of 3 comparisons" in shown
    assert "only in the run before: a." in shown and "only in the run after: e." in shown
    assert "<td>5.10.0</td><td>6.1.0-38-cloud-amd64</td>" in shown
    assert [one.reason.partition(":")[0] for one in made.refused] == ["of the earlier run"]


def test_between_two_runs_the_effect_on_a_time_changes_in_the_direction_of_the_time(tmp_path):
    def run(name, off):
        times = {"smt_on": 10.0, "smt_off": off}
        latency = {"latency_mean": {"unit": "ms", "better": "lower", "aggregate": "max"}}
        query = {"title": "query", "metrics": latency, "model": lambda arm, _spot, placed: [times[arm]] * len(placed)}
        options = {**SMALL, "run": name, "noise": 0.0001, "names": ["all_threads"]}
        return [result_maker.result(host=host, workloads={"q": query, **gzip(5 / off)}, **options) for host in "abcd"]

    shown = reported(tmp_path, *run("after", 7.0), before=run("before", 8.0))[2]["compare.html"]
    # SMT off took 0.8 of the time and takes 0.7 of it, and did 0.8 of the work and does 0.7 of it.
    pattern = r'<th scope="row">(query|gzip).*?data-v="(.*?)".*?(better|worse)<'
    found = re.findall(pattern, shown.partition("By host")[0])
    assert [(name, word) for name, _change, word in found] == [("query", "better"), ("gzip", "worse")]
    assert [float(changed) for _name, changed, _word in found] == pytest.approx([-0.125, -0.125], abs=0.001)
