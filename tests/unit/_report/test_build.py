# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report's files: what they say, that no host can get anything but text into them, and the task that makes them."""

from __future__ import annotations

import collections
import csv
import html.parser
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from urllib.parse import quote

import markup
import pytest
import result_maker
import studies
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import (
    comparisons as host_comparisons,
    measures,
    paired,
    streams,
    usage,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text as border_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build, charts, text as report_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats import markdown, registry

ATTACK = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}=cmd|' /C calc'!A0 @everyone"
    " [x](javascript:alert(1))"
)
EVEN = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
FILES = {"index.html", *(one.name for one in registry.formats())}


def built(directory, *documents, **settings):
    """Name -> text of the report on these results, and what was refused."""
    for document in documents:
        result_files.save(directory, document)
    results = result_files.result_paths(directory)
    made = build.build(results, directory, build.Settings(**settings))
    files = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path not in results}
    return {
        name: content.decode() if not name.endswith(".parquet") else content for name, content in files.items()
    }, made.refused


class Page(html.parser.HTMLParser):
    """What a browser would make of a page, as far as these tests ask."""

    VOID = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self, text):
        super().__init__()
        self.elements, self.stack, self.words, self.scripts, self.data = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self._end(tag)
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        self._end(f"/{tag}")
        assert self.stack.pop() == tag

    def _end(self, what):
        """End what ends with this begin or end of another element."""
        while self.stack and self.stack[-1] in markup.ENDED.get(what, ()) and f"/{self.stack[-1]}" != what:
            self.stack.pop()

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "script":
            about = next(attributes for tag, attributes in reversed(self.elements) if tag == "script")
            (self.data if about.get("type") == "application/json" else self.scripts).append(data)
        else:
            self.words.append(data)

    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module", name="usual")
def usual_fixture(tmp_path_factory):
    return built(
        tmp_path_factory.mktemp("usual"), result_maker.result(workloads={"gzip": result_maker.GZIP, "even": EVEN})
    )


@pytest.fixture(
    scope="module",
    name="attacked",
    params=[None, dict.fromkeys(("smt_on", "smt_off", "isolated", "mitigations_off"), 1.0)],
    ids=["two", "four"],
)
def attacked_fixture(request, tmp_path_factory):
    return built(tmp_path_factory.mktemp("attacked"), result_maker.hostile(ATTACK, arms=request.param), compare="all")


def test_what_a_container_may_use_is_beside_the_cpus_online(tmp_path):
    document = result_maker.result(blocks=4)
    said = "of which this run could use 2.5 at once by a CPU quota"
    assert said not in built(tmp_path / "none", document)[0]["index.html"]
    document["environment"]["cpu_quota"] = 2.5
    assert said in built(tmp_path / "quota", document)[0]["index.html"]


def test_the_page_says_how_to_measure_the_same_again(tmp_path):
    workloads = {"gzip": result_maker.GZIP, "mine": EVEN}
    booted = result_maker.result(workloads=workloads)
    booted["plan"]["boots"] = 4
    left_out = [{"name": "isolated", "title": "isolated", "reason": "one core"}]
    opened = result_maker.policy_result(workloads=workloads, name="mitigations_off", arms_left_out=left_out)
    opened["plan"]["boots"] = 4
    opened_again = (
        "smt_eval_arms=as_found,mitigations_off,isolated -e smt_eval_boots=4 -e smt_boot_reboot_ok=true -e"
        " smt_eval_allow_mitigations_off=true "
    )
    alone = result_maker.result(workloads=workloads, compared=False, arms_left_out=[])
    for document, actual in (
        (result_maker.result(workloads=workloads), "-e smt_eval_arms=smt_on,smt_off "),
        (booted, "-e smt_eval_arms=smt_on,smt_off -e smt_eval_boots=4 -e smt_boot_reboot_ok=true "),
        (result_maker.policy_result(workloads=workloads), "-e smt_eval_arms=as_found,overcommit_strict "),
        (result_maker.result(workloads=workloads, compared=False, shape=(1, 2, 1)), "-e smt_eval_arms=smt_on,smt_off "),
        (alone, "-e smt_eval_arms=as_found "),
        (opened, f"-e {opened_again}"),
    ):
        page = Page(built(tmp_path, document)[0]["index.html"]).text()
        command = f'--limit web01 {actual}-e \'{{"smt_eval_workloads": ["gzip"]}}\' -e smt_eval_budget='
        assert (
            command in page
            and "smt_eval_placements" not in page
            and "which declares commands of your own: mine." in page
        )


def page_of(directory, document):
    return built(directory, document)[0]["index.html"]


def test_the_curves_of_streams_are_drawn_with_the_crossover(tmp_path):
    page = page_of(tmp_path, studies.hp((1, 4, 7, 8, 12), tests=["inner", "OUTER"]))
    labels = re.findall(r'aria-label="([^"]*by number of streams: [^"]*)"', page)
    assert labels == [
        "array, inner, stream_time [ms] by number of streams: SMT helps from 8 streams on",
        "array, OUTER, stream_time [ms] by number of streams: SMT helps with 1 stream, and no longer with 4 to 12",
    ]
    assert page.count(">from 8 streams<") == 1
    assert "mean of all workers, less is better" in page
    # Both in absolute numbers and against the baseline: at 7 streams SMT off takes 14,568 ms instead of 16,741.
    assert page.count(">change against SMT on<") == 2 and "SMT off, 7 streams: \u221212.9 % (" in page
    assert "SMT off against SMT on by number of streams" in page and ", other placements" not in page


def test_of_a_rate_the_time_of_a_stream_is_drawn_too(tmp_path):
    document = studies.hp((4, 8), tests=["inner"])
    for workload in document["plan"]["workloads"]:
        workload["metrics"]["stream_time"]["better"] = "higher"
    for sample in document["samples"]:
        sample["metrics"]["stream_time"]["better"] = "higher"
    page = page_of(tmp_path, document)
    assert "time of a stream [s] by number of streams" in page and "stream_time [ms] by number of streams" in page


@pytest.mark.parametrize(("unit", "own"), [("ms", 1000), ("jobs", 7)])
def test_the_time_of_a_stream_is_in_seconds_whatever_the_unit_of_its_own(tmp_path, unit, own):
    rated = {
        "title": "gzip",
        "metrics": {**studies.RATES, "wall_time": {"unit": unit, "better": "lower", "aggregate": "mean"}},
        "model": lambda _arm, _spot, placed: [100.0] * len(placed),
        "further": lambda _arm, spot: {"wall_time": own * 2 * int(spot.removeprefix("free_"))},
    }
    names = ["free_2", "free_4"]
    page = page_of(
        tmp_path, result_maker.result(workloads={"gzip": rated}, shape=(1, 2, 2), blocks=4, noise=0, names=names)
    )
    # What is no time says nothing; a worker took 0.8 s then.
    first, last = ("4.000", "8.000") if unit == "ms" else ("0.8000", "0.8000")
    chart = page.partition("time of a stream [s]")[2].partition("</svg>")[0]
    assert f"2 streams: {first} (" in chart and f"4 streams: {last} (" in chart


def test_what_is_counted_is_not_said_twice(tmp_path):
    document = studies.sap()
    document["plan"]["workloads"][0]["title"] = "SAP SD, users"
    files, _refused = built(tmp_path, document)
    text = files["summary.md"]
    assert (
        "| SAP SD, 550 users, throughput" in text
        and "within 2 s SAP SD serves 650 users" in text
        and "users 550" not in text + files["index.html"]
    )


def test_a_machine_of_one_package_is_said_in_the_singular(tmp_path):
    page = page_of(tmp_path, result_maker.result(shape=(1, 1, 1), compared=False, blocks=4))
    assert "The machine: 1 package, 1 core, 1 CPU;" in page


def test_a_run_that_compared_no_arms_says_in_its_summary_what_was_measured(tmp_path):
    alone = result_maker.result(shape=(1, 1, 1), compared=False, blocks=4, names=["all_threads"])
    files, _refused = built(tmp_path, alone)
    assert re.search(
        r"\n\| gzip of a fixed stream \| throughput \| every online thread busy \| [0-9.]+ MB/s \\\([0-9.]+ to"
        r" [0-9.]+\\\) \| 4 \|\n",
        files["summary.md"],
    ), files["summary.md"]
    assert "| metric |" not in built(tmp_path / "two", result_maker.result(blocks=4))[0]["summary.md"]


def test_the_users_within_the_response_time_that_was_allowed(tmp_path):
    page = Page(page_of(tmp_path, studies.sap())).text()
    assert (
        "most users, every online thread busy SMT on 650, SMT off 550 users before mean response times are over 2.000"
        " s, the limit that was set" in page
    )


def test_the_response_time_is_drawn_by_users_with_the_limit_and_what_failed(tmp_path):
    page = page_of(tmp_path, studies.sap())
    assert "SAP SD, every online thread busy: response time by users; the table has the numbers" in page
    assert ">limit 2 s<" in page and "SMT on, 650 users: 1.99" in page
    assert page.count("SMT off, 650 users: failed") == 2 and "A cross: it failed there." in page


def test_instructions_per_cycle_are_drawn_by_load(tmp_path):
    document = studies.arm()
    for sample in document["samples"]:
        cycles = 1e9 if sample["parameter"] == 0.3 else 2e9
        counts = {"0": {"cycles": cycles, "instructions": 1.41e9}, "1": {"cycles": cycles, "instructions": 1.41e9}}
        sample["telemetry"]["perf"] = {"cpus": counts, "cores": {}}
    page = page_of(tmp_path, document)
    assert "instructions per cycle of a thread by load [of each CPU]" in page
    assert "as found, 0.3 load [of each CPU]: 1.410" in page and "as found, 1 load [of each CPU]: 0.7050" in page


def test_the_histogram_has_the_workers_of_twenty_runs(tmp_path):
    page = page_of(tmp_path, studies.pythian_free())
    assert "how often which value of a worker came in 40" in page
    # The counts below it are the study's: MB/s -> how often.
    table = markup.whole(page[page.index("<caption>Workers by their value [MB/s]") :].partition("</div>")[0])
    assert re.findall(r"<td>([0-9.]+)</td>", table)[2::3] == [str(one) for one in studies.PYTHIAN_FREE.values()]
    assert '{"smt_eval_placements": ["free_2"]}' in Page(page).text()
    # One number of streams is no curve.
    assert "by number of streams" not in page


@pytest.mark.parametrize(
    ("made", "placement", "label"),
    [
        (studies.overhead, "Every online thread busy", "compute-bound tasks −20.0 %"),
        # One worker alone: the whole machine was not compared.
        (studies.busy_2014, "One worker alone", "busy loop beside others −34.2 %"),
    ],
)
def test_the_first_picture_is_of_what_the_conclusion_says(tmp_path, made, placement, label):
    page = Page(page_of(tmp_path, made()))
    first = next(attributes["aria-label"] for tag, attributes in page.elements if tag == "svg")
    assert first.startswith(f"Change with its interval: {label}") and placement in page.text()


def test_two_explicit_placements_are_named_where_they_are_compared(tmp_path):
    files = built(tmp_path, studies.pythian_pinned())[0]
    named = "2 workers on CPUs 0, 1 against 2 workers on CPUs 0, 2"
    assert f"<h3>{named}</h3>" in files["index.html"]
    for name in ("index.html", "summary.md"):
        assert named in files[name] and "on the first ones" not in files[name]


def test_the_cpus_that_were_online_before_and_after_are_said(tmp_path):
    page = Page(page_of(tmp_path, result_maker.result(blocks=4, shape=(1, 2, 2), names=("all_threads",))))
    assert "CPUs online 0-3 0-3" in " ".join(page.text().split())


def test_one_host_is_one_page(usual):
    files, refused = usual
    assert set(files) == FILES and refused == []
    page = Page(files["index.html"])
    assert page.stack == []
    assert (
        "Leave SMT on: with every online thread busy, turning it off changes gzip of a fixed stream by −20"
        in page.text()
    )
    assert "Read back afterwards: as it was before." in page.text()
    assert "ansible-playbook threadwise.smt.smt_eval" in page.text() and "--limit web01" in page.text()


def test_every_picture_tells_who_cannot_see_it(usual):
    files, _refused = usual
    pictures = [attributes for tag, attributes in Page(files["index.html"]).elements if tag == "svg"]
    assert len(pictures) >= 8
    for attributes in pictures:
        assert attributes["role"] == "img" and len(attributes["aria-label"]) > 20
    assert "gzip of a fixed stream −20" in pictures[0]["aria-label"]


def test_a_screen_reader_finds_its_way(usual, attacked, tmp_path):
    """Headings leave out no level, each table has its caption, each heading cell its direction,
    each field its label.
    """
    several, _refused = built(
        tmp_path, result_maker.result(host="a", blocks=4), result_maker.result(host="b", blocks=4)
    )
    for text in (usual[0]["index.html"], attacked[0]["index.html"], several["index.html"], several["a.html"]):
        elements = Page(markup.whole(text)).elements
        levels = [int(tag[1]) for tag, _attributes in elements if re.fullmatch("h[1-6]", tag)]
        assert (
            levels[0] == 1
            and levels.count(1) == 1
            and all(after <= before + 1 for before, after in itertools.pairwise(levels))
        )
        tags = [tag for tag, _attributes in elements]
        assert tags.count("table") == tags.count("caption") >= 3
        # A heading cell is that of its column in the head, and else that of its row, where it comes first.
        assert not re.search(r"<tbody>.*?</td>\s*<th\b", markup.whole(text).replace("<tr>", "\n<tr>"))
        labelled = {attributes.get("for") for tag, attributes in elements if tag == "label"}
        assert all(attributes.get("id") in labelled for tag, attributes in elements if tag == "input")


def test_pictures_take_their_colours_from_the_page(usual):
    files, _refused = usual
    page = files["index.html"]
    painted = [markup.picture(svg) for svg in re.findall("<svg.*?</svg>", page)]
    colours = {one.get("colour") for svg in painted for one in svg.iter()} - {None}
    assert len(colours) > 5 and colours <= set(re.findall(r"--([a-z]+):", page))
    assert not re.search(r"<(?:path|text|g)[^>]*(?:fill|stroke)=", page)
    # Each class has its rule.
    assert markup.classes(page) <= set(re.findall(r"svg \.(\w+)\{", page))


def test_ids_of_a_page_are_unique(usual):
    files, _refused = usual
    ids = [attributes["id"] for _tag, attributes in Page(files["index.html"]).elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_several_hosts_get_a_page_each_and_an_overview(tmp_path):
    files, _refused = built(
        tmp_path,
        result_maker.result(host="a/b", blocks=4, shape=(1, 2, 2)),
        result_maker.result(host="plain", blocks=4, shape=(1, 2, 2)),
    )
    assert set(files) == FILES | {"a%2Fb.html", "plain.html", "machines.html"}
    links = [attributes["href"] for tag, attributes in Page(files["index.html"]).elements if tag == "a"]
    assert "a%252Fb.html" in links and "plain.html" in links
    assert "Leave SMT on at both hosts." in Page(files["index.html"]).text()


def test_a_page_loads_nothing_and_runs_only_its_own_script(usual, attacked):
    for files, _refused in (usual, attacked):
        page = Page(files["index.html"])
        assert len(page.scripts) == 1 and "alert" not in page.scripts[0]
        for tag, attributes in page.elements:
            assert tag not in ("img", "iframe", "object", "embed", "base", "form"), tag
            assert not any(key.startswith("on") or key == "src" for key in attributes), attributes
            address = attributes.get("href", "#")
            assert re.match(r"(#|data:,$|[^:/]+\.html$)", address), address
        policy = next(
            attributes["content"]
            for tag, attributes in page.elements
            if attributes.get("http-equiv") == "Content-Security-Policy"
        )
        assert (
            policy.startswith("default-src 'none';") and "unsafe-eval" not in policy and "script-src 'sha256-" in policy
        )


def test_a_hostile_host_is_shown_as_text(attacked):
    files, refused = attacked
    assert refused == []
    page = Page(files["index.html"])
    assert page.text().count("<script>alert(1)</script>") > 10
    assert "{{ 7*7 }}" in page.text() and "49=cmd" not in page.text()
    assert "is not as it was before" in page.text()


def test_no_cell_of_the_csv_starts_a_formula(tmp_path):
    document = result_maker.result(
        host="=cmd|' /C calc'!A0",
        blocks=5,
        workloads={"own": {**result_maker.GZIP, "unit": "@SUM(A1)", "title": "-2+3"}},
    )
    document["samples"][0].update(error="\t=1", ok=False)
    document["samples"][1].update(error=" =1", ok=False)
    files, _refused = built(tmp_path, document)
    for name in ("results.csv", "workers.csv", "comparisons.csv"):
        rows = list(csv.DictReader(io.StringIO(files[name])))
        assert rows
        for row in rows:
            for column, text in row.items():
                assert not re.match(r"\s*[=+@-]", text) or re.fullmatch(r"-?[0-9.e+-]+", text), (column, text)
        assert rows[0]["host"] == "'=cmd|' /C calc'!A0"


def test_the_csv_has_a_row_a_sample_a_worker_and_a_comparison(tmp_path):
    document = result_maker.result(blocks=5)
    files, _refused = built(tmp_path, document)
    rows = list(csv.DictReader(io.StringIO(files["results.csv"])))
    assert [float(row["value"]) for row in rows] == [
        sample["metrics"]["throughput"]["value"] for sample in document["samples"]
    ]
    assert {row["arm"] for row in rows} == {"smt_on", "smt_off"} and rows[0]["workers"] == "1"
    workers = list(csv.DictReader(io.StringIO(files["workers.csv"])))
    assert [float(row["value"]) for row in workers] == [
        worker["value"] for sample in document["samples"] for worker in sample["workers"]
    ]
    comparisons = list(csv.DictReader(io.StringIO(files["comparisons.csv"])))
    assert [row["verdict"] for row in comparisons] == [
        one["verdict"] for one in json.loads(files["results.json"])["hosts"][0]["comparisons"]
    ]


HIDING = "\u200b\u061c\u202e\U000e0041\ufe0f\u3164\u2066" + 20 * "\u0301"


def test_no_character_of_a_host_hides_in_any_file(tmp_path):
    workload = {**result_maker.GZIP, "unit": f"MiB{HIDING}/s", "title": f"gzip{HIDING}"}
    hosts = [f"web{HIDING}{number}" for number in range(2)]
    documents = [
        result_maker.result(host=host, blocks=4, workloads={"own": workload}, message=f"no{HIDING}n") for host in hosts
    ]
    files, refused = built(tmp_path, *documents)
    assert not refused and len(files) == len(FILES) + 3
    for name, content in files.items():
        if isinstance(content, str):
            assert "\\u202e" in content, name
            assert host_text.visible(content, "\t\n") == content, name


def test_hosts_that_are_called_like_the_reports_files_keep_theirs(tmp_path):
    hosts = sorted(
        {
            called
            for name in build.own_names()
            for host in (name, name.partition(".")[0])
            for called in (host, host.title())
        }
    )
    files, refused = built(tmp_path, *(result_maker.result(host=host, blocks=1) for host in hosts))
    assert not refused and len(hosts) > 30
    assert set(files) <= {*build.own_names(), *(f"{result_files.file_stem(host)}.html" for host in hosts)}
    assert [one["host"] for one in json.loads(files["results.json"])["hosts"]] == sorted(
        hosts, key=lambda host: f"{result_files.file_stem(host)}.json"
    )
    pages = {host: Page(files[f"{result_files.file_stem(host)}.html"]).text() for host in hosts}
    assert all(pages[host].startswith(f" SMT on {host}: ") for host in hosts)
    own_pages = [f"{result_files.file_stem(host)}.html".casefold() for host in hosts]
    assert not {name.casefold() for name in build.own_names()}.intersection(own_pages), (
        "also where a file system ignores case"
    )
    assert all(f'href="{quote(result_files.file_stem(host))}.html"' in files["index.html"] for host in hosts)


@pytest.mark.parametrize("name", [*sorted(FILES), "web01.html"])
def test_a_report_replaces_no_file_of_somebody_else(tmp_path, name):
    documents = [result_maker.result(host=host, blocks=1) for host in ("web01", "web02")]
    built(tmp_path, *documents)
    built(tmp_path, *documents, confidence=0.9)
    (tmp_path / name).write_text("mine")
    with pytest.raises(border_text.BorderError, match=f"{name} is there, and this collection did not write it"):
        built(tmp_path, *documents)
    assert (tmp_path / name).read_text() == "mine"


def test_markdown_shows_words_as_they_are(attacked):
    files, _refused = attacked
    # Outside of code spans nothing is left that starts markup, HTML, a link or a mention.
    prose = re.sub(r"(`+).*?\1", "", files["summary.md"])
    assert not re.search(r"(?<!\\)[<>\[\]]", prose)
    assert "@everyone" not in prose
    table = [line for line in files["summary.md"].splitlines() if line.startswith("|")]
    assert table and all(len(re.findall(r"(?<!\\)\|", line)) == 6 for line in table)


@pytest.mark.parametrize("text", ["a`b", "``", "`a", "a|b", "a\nb", "", "<b>"])
def test_code_in_markdown(text):
    made = markdown.code(text)
    fence = re.match(r"`+", made).group()
    assert made.endswith(fence) and "\n" not in made and "|" not in made
    assert fence not in made[len(fence) : -len(fence)]


def test_broken_files_are_refused_by_name_and_the_rest_is_built(tmp_path):
    (tmp_path / "half.json").write_text(json.dumps(result_maker.result(host="half"))[:5000])
    (tmp_path / "nan.json").write_text(
        json.dumps(result_maker.result(host="nan")).replace('"steal": 0.0', '"steal": NaN')
    )
    (tmp_path / "old.json").write_text(json.dumps(result_maker.result(host="old", schema_version=99)))
    (tmp_path / "huge.json").write_text(json.dumps(result_maker.result(host="huge", message="<script>" * 6_250_000)))
    files, refused = built(tmp_path, result_maker.result(host="good", blocks=5))
    assert set(files) == FILES | {"good.html"}
    assert {one.file for one in refused} == {"half.json", "nan.json", "old.json", "huge.json"}
    for text in (Page(files["index.html"]).text(), files["summary.md"], files["results.json"]):
        for one in refused:
            assert one.file.removesuffix(".json") in text
    assert len(files["index.html"]) < 100_000


def test_the_second_of_two_files_of_one_host_is_refused(tmp_path):
    for run in ("one", "two"):
        result_files.save(tmp_path / run, result_maker.result(host="web01", run=run, blocks=4))
    made = build.build([tmp_path / run / "web01.json" for run in ("one", "two")], tmp_path)
    assert [one.reason for one in made.refused] == [
        "web01.json: has the same host web01 as web01.json: remove one of the two"
    ]
    assert [row["run"] for row in made.hosts] == ["one"]


def test_a_hostile_host_among_many_stays_data(tmp_path):
    """Where rows are data in the page, nothing ends the data early, and every other host has its page."""
    hosts = [
        result_maker.result(host=f"web{number:02d}", blocks=4, shape=(1, 1, 2), seed=number) for number in range(11)
    ]
    evil = result_maker.hostile(ATTACK)
    evil["host"] = "</script><script>alert(1)</script>"
    files, refused = built(tmp_path, evil, *hosts)
    assert refused == [] and sum(name.endswith(".html") for name in files) == 14
    for name in (name for name in files if name.endswith(".html")):
        page = Page(files[name])
        assert page.stack == [] and len(page.scripts) == 1 and "alert" not in page.scripts[0]
        for data in page.data:
            json.loads(data)
        assert not any("src" in attributes for _tag, attributes in page.elements)


def test_each_figure_of_a_host_is_made_once(tmp_path, monkeypatch):
    """What many parts of a report read is made for the first of them."""
    made = collections.Counter()

    def counted(module, name):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: made.update([name]) or real(*given))

    for module, name in (
        (host_comparisons, "compare_host"),
        (measures, "levels"),
        (streams, "curves"),
        (usage, "of_workload"),
        (charts, "bins"),
    ):
        counted(module, name)
    built(tmp_path, studies.hp((1, 4, 8), blocks=4, tests=["inner"]))
    assert made == {"compare_host": 1, "levels": 1, "curves": 1, "of_workload": 1, "bins": 2}, made


def test_processes_make_the_same_bytes(tmp_path, monkeypatch):
    hosts = [
        result_maker.result(host=f"web{number:02d}", blocks=2, shape=(1, 1, 2), seed=number) for number in range(25)
    ]
    monkeypatch.setattr(build, "MIN_HOSTS_A_PROCESS", 1000)
    alone = built(tmp_path, *hosts)
    monkeypatch.setattr(build, "MIN_HOSTS_A_PROCESS", 2)
    monkeypatch.setattr(build.os, "sched_getaffinity", lambda pid: {0, 1, 2})
    assert built(tmp_path) == alone
    made = build.build(result_files.result_paths(tmp_path), tmp_path)
    assert made.written == [] and len(made.hosts) == 25


def test_a_host_whose_process_is_killed_is_named_and_the_rest_is_built(tmp_path, monkeypatch):
    render = build.host_page.render

    def deadly(analysis, *rest):
        if analysis.result.host in ("web03", "web11"):
            os.kill(os.getpid(), signal.SIGKILL)
        return render(analysis, *rest)

    monkeypatch.setattr(build.host_page, "render", deadly)
    monkeypatch.setattr(build, "MIN_HOSTS_A_PROCESS", 2)
    monkeypatch.setattr(build, "AHEAD", 2)
    monkeypatch.setattr(build.os, "sched_getaffinity", lambda pid: {0, 1})
    hosts = [
        result_maker.result(host=f"web{number:02d}", blocks=2, shape=(1, 1, 2), seed=number) for number in range(14)
    ]
    # As after a plan that was ended: what is asked to end must end all the same, or the rest waits for it.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        files, refused = built(tmp_path, *hosts)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [one.file for one in refused] == [
        "web03.json",
        "web11.json",
    ] and "web03.json: the process that read it was killed" in refused[0].reason
    assert [row["host"] for row in json.loads(files["results.json"])["hosts"]] == [
        one["host"] for one in hosts if one["host"] not in ("web03", "web11")
    ]


def test_the_kernel_and_measuring_disagree(tmp_path):
    document = result_maker.result(blocks=4, shape=(1, 2, 2))
    document["facts"]["measured"] = {
        "agrees_with_kernel": False,
        "cpus": "0-3",
        "pairs": ["0,2", "1,3"],
        "singles": "",
        "unclear": "",
        "ratios": [],
        "rounds": 200,
        "seconds": 9.5,
        "confidence": 0.999,
        "measured_at": "2026-01-02T03:04:05Z",
    }
    files, _refused = built(tmp_path, document)
    assert "By measuring, CPUs 0,2 and 1,3 share a core; the kernel says otherwise." in Page(files["index.html"]).text()
    assert json.loads(files["results.json"])["hosts"][0]["disagreement"].startswith("By measuring")


def test_another_setting_than_smt_is_compared_and_decides_nothing_about_smt(tmp_path):
    document = result_maker.policy_result(blocks=6, shape=(1, 2, 2))
    for when, value in (("before", 0), ("after", 0)):
        document["restored"][when] = {
            **document["restored"][when],
            "sysctls": {"vm.overcommit_memory": value, "<script>": None},
        }
        document["restored"][when]["settings"] = {"transparent_hugepage/enabled": "madvise"}
    files, _refused = built(tmp_path, document)
    text = Page(files["index.html"]).text()
    assert (
        "Strict overcommit against as found, with every online thread busy: it changes gzip of a fixed stream by −20"
        in text
    )
    assert "Leave SMT on" not in text and "better with SMT off" not in text and "better than the baseline" in text
    assert (
        "vm.overcommit_memory 0 0" in text
        and "transparent_hugepage/enabled madvise madvise" in text
        and "switched between as found and strict overcommit, " in text
    )
    host = json.loads(files["results.json"])["hosts"][0]
    assert host["recommendation"]["choice"] == "not_compared" and {one["effect"] for one in host["comparisons"]} >= {
        "overcommit_strict",
        "cost_of_sharing",
    }
    (arm,) = host["recommendation"]["arms"]
    assert arm["name"] == "overcommit_strict" and arm["outcome"] == "worse" and arm["reasons"][0]["points_to"] is None
    assert "with strict overcommit, worse" in arm["reasons"][0]["text"]
    assert "What does strict overcommit do here?" in text and "Should SMT be on here?" not in text
    assert "strict overcommit against as found, every online thread busy" in files["summary.md"]
    assert (
        'threadwise_smt_arm_verdict{host="web01",' in files["metrics.prom"]
        and "threadwise_smt_recommendation{" not in files["metrics.prom"]
    )
    assert "threadwise_smt_ratio{" not in files["metrics.prom"]


def test_three_arms_are_each_compared_with_the_baseline(tmp_path):
    document = result_maker.result(blocks=6, shape=(1, 2, 2))
    document["arms"].append(result_maker.arm("overcommit_strict", "strict overcommit", False))
    document["plan"]["placements"]["overcommit_strict"] = document["plan"]["placements"]["smt_on"]
    document["samples"] += [
        {**sample, "arm": "overcommit_strict"} for sample in document["samples"] if sample["arm"] == "smt_on"
    ]
    files, _refused = built(tmp_path, document)
    text = Page(files["index.html"]).text()
    assert "Leave SMT on: with every online thread busy, turning it off changes gzip of a fixed stream by −20" in text
    assert (
        "Strict overcommit against SMT on, with every online thread busy: gzip of a fixed stream stays within 1 %"
        " either way." in text
    )
    assert "switched between SMT on, SMT off and strict overcommit, " in text and "better than the baseline" in text
    host = json.loads(files["results.json"])["hosts"][0]
    assert host["recommendation"]["choice"] == "on" and [arm["outcome"] for arm in host["recommendation"]["arms"]] == [
        "equal"
    ]
    whole = {
        one["effect"]: one["verdict"]
        for one in host["comparisons"]
        if one["kind"] == "arm" and one["placement"] == "all_threads" and one["primary"]
    }
    assert whole == {"smt_off": "loss", "overcommit_strict": "equivalent"}
    labels = [attributes["aria-label"] for tag, attributes in Page(files["index.html"]).elements if tag == "svg"]
    assert any("gzip of a fixed stream, strict overcommit" in label for label in labels)
    assert (
        'arm="overcommit_strict",baseline="smt_on"' in files["metrics.prom"] and 'choice="on"' in files["metrics.prom"]
    )


def test_every_metric_reaches_every_output(tmp_path):
    """What one metric gains another can lose, and both have to be said: the primary one alone decides."""
    document = result_maker.result(blocks=6, shape=(1, 2, 2))
    document["plan"]["workloads"][0]["metrics"]["latency_p99"] = {"unit": "ms", "better": "lower", "aggregate": "max"}
    for sample in document["samples"]:
        factor = 1.6 if sample["arm"] == "smt_on" else 1.0
        sample["metrics"]["latency_p99"] = {
            "value": factor * (2 + 0.001 * sample["block"]),
            "unit": "ms",
            "better": "lower",
        }
    files, _refused = built(tmp_path, document)
    host = json.loads(files["results.json"])["hosts"][0]
    whole = {
        one["metric"]: one
        for one in host["comparisons"]
        if one["effect"] == "smt_off" and one["placement"] == "all_threads"
    }
    assert whole["throughput"]["verdict"] == "loss" and whole["throughput"]["primary"]
    assert (
        whole["latency_p99"]["verdict"] == "gain"
        and whole["latency_p99"]["ratio"] == pytest.approx(1.6)
        and not whole["latency_p99"]["primary"]
    )
    assert host["recommendation"]["choice"] == "on"
    # A latency does not add up over workers, so sides with different numbers of workers are not compared by it.
    assert not [one for one in host["comparisons"] if one["metric"] == "latency_p99" and one["effect"] == "smt_yield"]
    text = Page(files["index.html"]).text()
    assert "gzip of a fixed stream, latency_p99" in text and "Further metrics of gzip of a fixed stream" in text
    assert "latency_p99 [ms]" in files["summary.md"].replace("\\", "")
    rows = list(csv.DictReader(files["results.csv"].splitlines()))
    assert {row["metric"] for row in rows} == {"throughput", "latency_p99"} and len(rows) == 2 * len(
        document["samples"]
    )
    # What was made of samples is no sample.
    assert {row["metric"]: row["primary"] for row in csv.DictReader(files["comparisons.csv"].splitlines())} == {
        "throughput": "True",
        "latency_p99": "False",
        "cpu_by_work": "False",
    }
    assert 'metric="latency_p99",primary="false"' in files["metrics.prom"]
    assert {level["metric"] for level in host["levels"]} == {"throughput", "latency_p99", "cpu_by_work"}


def test_a_run_without_a_comparison_says_what_its_work_cost(tmp_path):
    files, refused = built(tmp_path, result_maker.result(blocks=4, shape=(1, 2, 1), compared=False))
    assert (
        refused == [] and "CPU s/MB" in files["summary.md"].replace("\\", "") and "cpu_by_work" in files["index.html"]
    )
    assert "cpu_by_work" not in files["results.csv"]


def test_a_setting_is_judged_where_the_most_of_the_machine_was_measured(tmp_path):
    document = result_maker.policy_result(without=("all_threads",), blocks=6, shape=(1, 3, 2))
    files, _refused = built(tmp_path, document)
    text = Page(files["index.html"]).text()
    assert (
        "Strict overcommit against as found, with one worker per core: gzip of a fixed stream stays within 1 %"
        " either way" in text
    )
    assert json.loads(files["results.json"])["hosts"][0]["recommendation"]["arms"][0]["outcome"] == "equal"


def test_a_workload_with_a_parameter_is_compared_at_each_and_drawn_against_them(tmp_path):
    document = result_maker.result(
        blocks=6, shape=(1, 2, 2), workloads={"own": {**result_maker.GZIP, "title": "own command"}}
    )
    samples = []
    for sample in document["samples"]:
        for load in (0.25, 1.0):
            value = (
                sample["metrics"]["throughput"]["value"] * load * (1 if sample["arm"] == "smt_on" or load < 1 else 0.9)
            )
            samples.append(
                {
                    **sample,
                    "metrics": {"throughput": {**sample["metrics"]["throughput"], "value": value}},
                    "parameter": load,
                    "telemetry": {"core_usage": {"0,1": load, "2,3": None}},
                }
            )
    document["samples"] = samples
    document["plan"]["workloads"][0].update(
        parameter={"name": "load", "unit": "CPUs", "values": [0.25, 1.0], "per_worker": False}
    )
    files, _refused = built(tmp_path, document)
    actual = json.loads(files["results.json"])["hosts"][0]
    whole = [one for one in actual["comparisons"] if one["effect"] == "smt_off" and one["placement"] == "all_threads"]
    main = [one for one in whole if one["primary"]]
    assert [one["parameter"] for one in main] == [0.25, 1.0] and main[1]["ratio"] == pytest.approx(
        0.9 * main[0]["ratio"], rel=0.01
    )
    assert main[0]["title"] == "own command, load 0.25 CPUs"
    pictures = [attributes["aria-label"] for tag, attributes in Page(files["index.html"]).elements if tag == "svg"]
    assert any("every online thread busy: usage of its busiest core by load [CPUs]" in label for label in pictures)
    assert any("throughput [MB/s] by load [CPUs]" in label for label in pictures)


def test_samples_that_the_statistics_refuse_cost_no_other_host_its_page(tmp_path, monkeypatch):
    monkeypatch.setattr(paired, "MAX_VALUES", 4)
    files, refused = built(
        tmp_path,
        result_maker.result(host="long", blocks=5, shape=(1, 1, 2)),
        result_maker.result(host="good", blocks=4, shape=(1, 1, 2)),
    )
    assert [one.file for one in refused] == ["long.json"] and "has more than 4 values" in refused[0].reason
    assert "good.html" in files and "long.html" not in files


def test_the_same_results_give_the_same_bytes(tmp_path):
    document = result_maker.result(blocks=5, shape=(1, 2, 2))
    assert built(tmp_path, document) == built(tmp_path)


@pytest.mark.parametrize(
    "document",
    [
        result_maker.result(samples=[]),
        result_maker.result(
            samples=[],
            facts=result_maker.nothing_known(),
            environment={},
            plan={},
            outcome="failed",
            message="no such host",
            restored=None,
        ),
        result_maker.result(compared=False, reason="this host has no SMT to switch", shape=(1, 1, 1), blocks=1),
        result_maker.result(blocks=1),
        result_maker.result(blocks=2, shape=(1, 1, 2)),
        result_maker.result(blocks=4, shape=(2, 9, 2)),
        result_maker.result(blocks=4, shape=(1, 2, 4)),
    ],
    ids=["no samples", "nothing known", "one CPU", "one block", "one core", "2x9x2", "four threads a core"],
)
def test_whatever_was_measured_makes_a_page(tmp_path, document):
    files, refused = built(tmp_path, document)
    assert refused == [] and Page(files["index.html"]).stack == []
    assert json.loads(files["results.json"])["schema"] == "threadwise.smt/report"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (0, "0"),
        (123.456, "123.5"),
        (1234567.0, "1\u202f234\u202f567"),
        (0.01234, "0.01234"),
        (1e-9, "1e-09"),
        (5e12, "5e+12"),
        (99.996, "100.0"),
    ],
)
def test_numbers(value, text):
    assert report_text.number(value) == text


# The task


def played(tmp_path, *arguments, **variables):
    """Run the role by ansible-playbook; returns the process and the registered result."""
    play = [
        {
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [
                {"ansible.builtin.include_role": {"name": "threadwise.smt.smt_report"}},
                {
                    "ansible.builtin.copy": {
                        "content": "{{ smt_report_result | to_json }}",
                        "dest": str(tmp_path / "registered"),
                        "mode": "0600",
                    },
                    "check_mode": False,
                    "diff": False,
                },
            ],
        }
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    environment = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_NOCOLOR": "true"}
    command = [
        os.path.join(os.path.dirname(sys.executable), "ansible-playbook"),
        "-i",
        "localhost,",
        "-c",
        "local",
        str(tmp_path / "play.yml"),
        "-e",
        json.dumps({"ansible_python_interpreter": sys.executable, **variables}),
        *arguments,
    ]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    registered = tmp_path / "registered"
    return process, json.loads(registered.read_text()) if registered.exists() else None


def test_the_task_says_what_it_changes_and_changes_nothing_twice(tmp_path):
    run_dir = tmp_path / "run"
    result_files.save(run_dir, result_maker.result(blocks=5))
    (run_dir / "broken.json").write_text("{")
    _process, checked = played(tmp_path, "--check", "--diff", smt_report_run_dir=str(run_dir))
    assert checked["changed"] and {os.path.basename(path) for path in checked["files"]} == FILES | {"web01.html"}
    assert "Leave SMT on" in checked["diff"][0]["after"]
    assert sorted(os.listdir(run_dir)) == ["broken.json", "web01.json"]
    process, first = played(tmp_path, smt_report_run_dir=str(run_dir))
    assert first["changed"] and set(os.listdir(run_dir)) == FILES | {"web01.html", "broken.json", "web01.json"}
    assert (
        first["refused"][0]["file"] == "broken.json"
        and "not in the report: broken.json" in process.stdout + process.stderr
    )
    assert first["hosts"][0]["recommendation"] == "on"
    _process, second = played(tmp_path, smt_report_run_dir=str(run_dir))
    assert second["changed"] is False and second["files"] == []


@pytest.mark.night
def test_the_task_compares_every_two_arms_where_that_is_asked_for(tmp_path):
    run_dir = tmp_path / "run"
    result_files.save(
        run_dir,
        result_maker.result(
            arms={"as_found": 1.0, "overcommit_strict": 1.2, "panic_on_oom": 0.9}, blocks=6, shape=(1, 2, 2)
        ),
    )
    best = {}
    for asked in ({}, {"smt_report_compare": "all"}):
        process, _registered = played(tmp_path, smt_report_run_dir=str(run_dir), **asked)
        assert process.returncode == 0, process.stdout + process.stderr
        best[asked.get("smt_report_compare")] = json.loads((run_dir / "results.json").read_text())["hosts"][0][
            "recommendation"
        ]["best"]
    assert best == {None: None, "all": "overcommit_strict"}
    process, _registered = played(tmp_path, smt_report_run_dir=str(run_dir), smt_report_compare="some")
    assert process.returncode != 0 and "must be one of: baseline, all, got: some" in process.stdout


def test_the_task_names_what_it_cannot_use(tmp_path):
    process, _registered = played(tmp_path, smt_report_run_dir=str(tmp_path / "nowhere"))
    assert process.returncode and "nowhere: cannot be listed: No such file or directory" in process.stdout
    (tmp_path / "empty").mkdir()
    process, _registered = played(tmp_path, smt_report_run_dir=str(tmp_path / "empty"))
    assert process.returncode and "has no result of a host" in process.stdout
    assert "Traceback" not in process.stdout + process.stderr


def test_a_page_names_the_earlier_runs_that_were_fetched(tmp_path):
    files, _refused = built(tmp_path, {**result_maker.result(blocks=4), "fetched": ["before-the-crash"]})
    assert "samples of earlier runs that no controller had collected: before-the-crash." in files["index.html"]


# ---- machines beside each other --------------------------------------------------------------------------------------


def of_machine(directory, host, **changes):
    """Save the result of a machine of four cores with two threads each."""
    document = {**result_maker.result(noise=0.001, shape=(1, 4, 2), blocks=4), "host": host, **changes}
    directory.mkdir(exist_ok=True)
    (directory / f"{host}.json").write_text(json.dumps(document), encoding="utf-8")
    return document


def test_machines_are_set_beside_each_other_by_what_they_have_and_cost(tmp_path):
    of_machine(tmp_path / "a", "dear", run="a", costs={"price_per_hour": 2.0, "licence_per": "core"})
    of_machine(tmp_path / "b", "cheap", run="b", costs={"price_per_hour": 0.5, "licence_per": "host"})
    free = of_machine(tmp_path / "c", "free", run="c")
    others = tuple(tuple((tmp_path / name).glob("*.json")) for name in "bc")
    built = build.build((tmp_path / "a").glob("*.json"), tmp_path / "a", build.Settings(other_runs=others))
    assert not built.refused and str(tmp_path / "a" / "machines.html") in built.written
    page = Page((tmp_path / "a" / "machines.html").read_text(encoding="utf-8")).text()
    assert "What does each of 3 machines do" in page and "runs: a, b, c" in page
    assert (
        "per unit of money: cheap (b), SMT on:" in page
        and "per licence: cheap (b), SMT on:" in page
        and "per core:" in page
    )
    results = json.loads((tmp_path / "a" / "results.json").read_text(encoding="utf-8"))
    on, off = results["hosts"][0]["capacities"]
    assert (on["cores"], on["cpus"], off["cores"], off["cpus"]) == (4, 8, 4, 4)
    assert (
        on["per_core"] == pytest.approx(on["rate"] / 4)
        and on["per_cpu"] == pytest.approx(on["rate"] / 8)
        and off["per_cpu"] == off["per_core"]
    )
    assert on["per_licence"] == on["per_core"] and on["per_money"] == pytest.approx(on["rate"] * 1800)
    assert on["per_ghz"] == pytest.approx(on["rate"] / (free["environment"]["nominal_mhz"] / 1000))
    (unpriced,) = {(one["per_money"], one["per_licence"]) for one in result_maker.summarised(free)["capacities"]}
    assert unpriced == (None, None)


@pytest.mark.parametrize(
    ("unit", "aggregate", "for_two", "amount"),
    [("orders/min", "sum", 30, "orders"), ("orders per hour", "sum", 0.5, "orders"), ("points", "sum", None, "")],
)
def test_money_buys_work_in_the_unit_of_its_rate(tmp_path, unit, aggregate, for_two, amount):
    orders = {**result_maker.GZIP, "metrics": {"rate": {"unit": unit, "better": "higher", "aggregate": aggregate}}}
    for host in ("a", "b"):
        document = result_maker.result(
            workloads={"orders": orders}, host=host, blocks=4, costs={"price_per_hour": 2.0, "licence_per": None}
        )
        result_files.save(tmp_path, document)
    one = result_maker.summarised(document)["capacities"][0]
    assert one["per_core"] == pytest.approx(one["rate"] / 4)
    assert one["per_money"] == (for_two and pytest.approx(one["rate"] * for_two))
    build.build(tmp_path.glob("*.json"), tmp_path)
    page = Page((tmp_path / "machines.html").read_text(encoding="utf-8")).text()
    amounts = re.findall(r"per unit of money: [ab], SMT on: .*? ([a-z]+)", page)
    assert amounts == ([amount] if for_two else [])


def test_a_mean_of_workers_has_no_share_for_each_core():
    points = {**result_maker.GZIP, "metrics": {"score": {"unit": "points", "better": "higher", "aggregate": "mean"}}}
    found = result_maker.summarised(result_maker.result(workloads={"points": points}, blocks=4))
    assert found["capacities"] == []
    assert {(one["rate"], one["achieved"], one["by_usage"], one["real"]) for one in found["usage"]} == {(None,) * 4}


def test_one_machine_alone_has_no_such_page(tmp_path):
    of_machine(tmp_path / "a", "alone")
    built = build.build((tmp_path / "a").glob("*.json"), tmp_path / "a")
    assert not any(path.endswith("machines.html") for path in built.written)


def test_the_same_host_in_two_runs_is_two_machines_and_a_damaged_result_is_named(tmp_path):
    of_machine(tmp_path / "a", "h", run="a")
    of_machine(tmp_path / "b", "h", run="b")
    (tmp_path / "b" / "broken.json").write_text("{", encoding="utf-8")
    others = (tuple(sorted((tmp_path / "b").glob("*.json"))),)
    built = build.build((tmp_path / "a").glob("*.json"), tmp_path / "a", build.Settings(other_runs=others))
    assert [one.reason.startswith("of another run: ") for one in built.refused] == [True]
    assert (
        "What does each of 2 machines do" in Page((tmp_path / "a" / "machines.html").read_text(encoding="utf-8")).text()
    )
