# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report's files: what they say, that no host can get anything but text into them, and the task that makes them."""

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
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text as border_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import markdown, registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import host as host_page
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

ATTACK = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}=cmd|' /C calc'!A0 @everyone"
    " [x](javascript:alert(1))"
)
EVEN = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
FILES = {"index.html", *(one.name for one in registry.formats())}
HIDING = "\u200b\u061c\u202e\U000e0041\ufe0f\u3164\u2066" + 20 * "\u0301"


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
        self.text = re.sub(r"\s+", " ", " ".join(self.words))
        self.labels = [attributes["aria-label"] for tag, attributes in self.elements if tag == "svg"]

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


def html_of(document):
    """The page of a host, without files."""
    analysis = result_maker.analysed(document)
    return host_page.render(analysis, build.summarise(analysis, "web01.json", None), True)


@pytest.fixture(scope="module", name="usual")
def usual_fixture(tmp_path_factory):
    workloads = {"gzip": result_maker.GZIP, "even": EVEN}
    return built(tmp_path_factory.mktemp("usual"), result_maker.result(workloads=workloads))


@pytest.fixture(scope="module", name="several")
def several_fixture(tmp_path_factory):
    hosts = (result_maker.result(host=host, blocks=4, shape=(1, 2, 2)) for host in ("a/b", "plain"))
    return built(tmp_path_factory.mktemp("several"), *hosts)


@pytest.fixture(
    scope="module",
    name="attacked",
    params=[None, dict.fromkeys(("smt_on", "smt_off", "isolated", "mitigations_off"), 1.0)],
    ids=["two", "four"],
)
def attacked_fixture(request, tmp_path_factory):
    return built(tmp_path_factory.mktemp("attacked"), result_maker.hostile(ATTACK, arms=request.param), compare="all")


def test_what_a_page_says_of_its_host_and_its_run():
    document = result_maker.result(blocks=4, shape=(1, 2, 2), fetched=["before-the-crash"])
    document["environment"]["cpu_quota"] = 2.5
    measured = {"agrees_with_kernel": False, "cpus": "0-3", "pairs": ["0,2", "1,3"], "singles": "", "unclear": ""}
    measured.update(ratios=[], rounds=200, seconds=9.5, confidence=0.999, measured_at="2026-01-02T03:04:05Z")
    document["facts"]["measured"] = measured
    text = Page(html_of(document)).text
    assert "could use 2.5 at once" in text and "CPUs online 0-3 0-3" in text
    assert "collected: before-the-crash." in text
    disagreement = result_maker.summarised(document)["disagreement"]
    assert "CPUs 0,2 and 1,3 share a core" in disagreement and disagreement in text
    small = html_of(result_maker.result(shape=(1, 1, 1), compared=False, blocks=4))
    assert "1 package, 1 core, 1 CPU;" in small and "could use" not in small


def test_the_page_says_how_to_measure_the_same_again():
    workloads = {"gzip": result_maker.GZIP, "mine": EVEN}
    booted = result_maker.result(workloads=workloads)
    left_out = [{"name": "isolated", "title": "isolated", "reason": "one core"}]
    opened = result_maker.policy_result(workloads=workloads, name="mitigations_off", arms_left_out=left_out)
    for document in (booted, opened):
        document["plan"]["boots"] = 4
    boots = "-e smt_eval_boots=4 -e smt_boot_reboot_ok=true "
    alone = result_maker.result(workloads=workloads, compared=False, arms_left_out=[])
    for document, actual in (
        (booted, f"smt_on,smt_off {boots}"),
        (result_maker.policy_result(workloads=workloads), "as_found,overcommit_strict "),
        (result_maker.result(workloads=workloads, compared=False, shape=(1, 2, 1)), "smt_on,smt_off "),
        (alone, "as_found "),
        (opened, f"as_found,mitigations_off,isolated {boots}-e smt_eval_allow_mitigations_off=true "),
    ):
        text = Page(html_of(document)).text
        start, own = "ansible-playbook threadwise.smt.smt_eval -i INVENTORY --limit web01 -e smt_eval_arms=", "mine."
        assert f'{start}{actual}-e \'{{"smt_eval_workloads": ["gzip"]}}\' -e smt_eval_budget=' in text
        assert "smt_eval_placements" not in text and f"commands of your own: {own}" in text


def test_the_curves_of_streams_are_drawn_with_the_crossover():
    page = html_of(studies.hp((1, 4, 7, 8, 12), tests=["inner", "OUTER"]))
    assert re.findall(r'aria-label="([^"]*by number of streams: [^"]*)"', page) == [
        "array, inner, stream_time [ms] by number of streams: SMT helps from 8 streams on",
        "array, OUTER, stream_time [ms] by number of streams: SMT helps with 1 stream, and no longer with 4 to 12",
    ]
    assert page.count(">from 8 streams<") == 1 and "less is better" in page
    # Both in absolute numbers and against the baseline: at 7 streams SMT off takes 14,568 ms instead of 16,741.
    assert page.count(">change against SMT on<") == 2 and "SMT off, 7 streams: \u221212.9 % (" in page
    # One number of streams is no curve.
    assert "by number of streams" not in html_of(studies.pythian_free())


def test_one_host_is_one_page_in_which_a_screen_reader_finds_its_way(usual, attacked, several):
    """Headings leave out no level, each table has its caption, each heading cell its direction, each field its label,
    each picture its words.
    """
    files, refused = usual
    assert set(files) == FILES and refused == []
    text, labels = Page(files["index.html"]).text, Page(files["index.html"]).labels
    assert "Leave SMT on: with every online thread busy" in text and "Read back afterwards: as it was before." in text
    assert len(labels) >= 8 and any("samples in the order taken" in label for label in labels), labels
    for page in (usual[0]["index.html"], attacked[0]["index.html"], *map(several[0].get, ("index.html", "plain.html"))):
        read = Page(page)
        assert read.stack == [] and all(len(label) > 20 for label in read.labels)
        ids = [attributes["id"] for _tag, attributes in read.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        elements = Page(markup.whole(page)).elements
        levels = [int(tag[1]) for tag, _attributes in elements if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
        tags = [tag for tag, _attributes in elements]
        assert tags.count("table") == tags.count("caption") >= 3
        # A heading cell is that of its column in the head, and else that of its row, where it comes first.
        assert not re.search(r"<tbody>.*?</td>\s*<th\b", markup.whole(page).replace("<tr>", "\n<tr>"))
        labelled = {attributes.get("for") for tag, attributes in elements if tag == "label"}
        assert all(attributes.get("id") in labelled for tag, attributes in elements if tag == "input")


def test_several_hosts_get_a_page_each_and_an_overview(several):
    files, _refused = several
    assert set(files) == FILES | {"a%2Fb.html", "plain.html", "machines.html"}
    page = Page(files["index.html"])
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert "a%252Fb.html" in links and "plain.html" in links and "Leave SMT on at both hosts." in page.text


def test_a_page_loads_nothing_and_runs_only_its_own_script(usual, attacked):
    for files, _refused in (usual, attacked):
        page = Page(files["index.html"])
        assert len(page.scripts) == 1 and "alert" not in page.scripts[0]
        for tag, attributes in page.elements:
            assert tag not in ("img", "iframe", "object", "embed", "base", "form"), tag
            assert not any(key.startswith("on") or key == "src" for key in attributes), attributes
            address = attributes.get("href", "#")
            assert re.match(r"(#|data:,$|[^:/]+\.html$)", address), address
        (policy,) = [
            attributes["content"]
            for tag, attributes in page.elements
            if attributes.get("http-equiv") == "Content-Security-Policy"
        ]
        assert policy.startswith("default-src 'none';") and "unsafe-eval" not in policy, policy
        assert "script-src 'sha256-" in policy


def test_a_hostile_host_is_shown_as_text(attacked):
    files, refused = attacked
    assert refused == []
    text = Page(files["index.html"]).text
    assert text.count("<script>alert(1)</script>") > 10
    assert "{{ 7*7 }}" in text and "49=cmd" not in text and "is not as it was before" in text
    # Outside of code spans of Markdown nothing is left that starts markup, HTML, a link or a mention.
    prose = re.sub(r"(`+).*?\1", "", files["summary.md"])
    assert not re.search(r"(?<!\\)[<>\[\]]", prose) and "@everyone" not in prose
    table = [line for line in files["summary.md"].splitlines() if line.startswith("|")]
    assert table and all(len(re.findall(r"(?<!\\)\|", line)) == 6 for line in table)


def test_a_hostile_host_among_many_stays_data(tmp_path):
    """Where rows are data in the page, nothing ends the data early, and every other host has its page."""
    hosts = [result_maker.result(host=f"web{number:02d}", blocks=1, shape=(1, 1, 2)) for number in range(11)]
    evil = {**result_maker.hostile(ATTACK), "host": "</script><script>alert(1)</script>"}
    files, refused = built(tmp_path, evil, *hosts)
    assert refused == [] and sum(name.endswith(".html") for name in files) == 14
    for name in (name for name in files if name.endswith(".html")):
        page = Page(files[name])
        assert page.stack == [] and len(page.scripts) == 1 and "alert" not in page.scripts[0]
        for data in page.data:
            json.loads(data)
        assert not any("src" in attributes for _tag, attributes in page.elements)


def test_no_cell_of_the_csv_starts_a_formula(tmp_path):
    own = {"own": {**result_maker.GZIP, "unit": "@SUM(A1)", "title": "-2+3"}}
    document = result_maker.result(host="=cmd|' /C calc'!A0", blocks=5, workloads=own)
    document["samples"][0].update(error="\t=1", ok=False)
    document["samples"][1].update(error=" =1", ok=False)
    files, _refused = built(tmp_path, document)
    for name in ("results.csv", "workers.csv", "comparisons.csv"):
        rows = list(csv.DictReader(io.StringIO(files[name])))
        for column, text in (cell for row in rows for cell in row.items()):
            assert not re.match(r"\s*[=+@-]", text) or re.fullmatch(r"-?[0-9.e+-]+", text), (column, text)
        assert rows[0]["host"] == "'=cmd|' /C calc'!A0"


def test_no_character_of_a_host_hides_in_any_file(tmp_path):
    workload = {**result_maker.GZIP, "unit": f"MiB{HIDING}/s", "title": f"gzip{HIDING}"}
    changed = {"blocks": 4, "workloads": {"own": workload}, "message": f"no{HIDING}n"}
    files, refused = built(
        tmp_path, *(result_maker.result(host=f"web{HIDING}{number}", **changed) for number in range(2))
    )
    assert not refused and len(files) == len(FILES) + 3
    for name, content in files.items():
        if isinstance(content, str):
            assert "\\u202e" in content and host_text.visible(content, "\t\n") == content, name


@pytest.mark.parametrize("text", ["a`b", "``", "`a", "a|b", "a\nb", "", "<b>"])
def test_code_in_markdown(text):
    made = markdown.code(text)
    fence = re.match(r"`+", made).group()
    assert made.endswith(fence) and "\n" not in made and "|" not in made
    assert fence not in made[len(fence) : -len(fence)]


def test_hosts_that_are_called_like_the_reports_files_keep_theirs(tmp_path):
    called = {host for name in build.own_names() for host in (name, name.partition(".")[0])}
    hosts = sorted(called | {host.title() for host in called})
    files, refused = built(tmp_path, *(result_maker.result(host=host, blocks=1, shape=(1, 1, 2)) for host in hosts))
    assert not refused and len(hosts) > 30
    pages = {host: f"{result_files.file_stem(host)}.html" for host in hosts}
    assert set(files) <= {*build.own_names(), *pages.values()}
    assert sorted(one["host"] for one in json.loads(files["results.json"])["hosts"]) == hosts
    for host, page in pages.items():
        assert Page(files[page]).text.startswith(f" SMT on {host}: ")
        assert f'href="{quote(page)}"' in files["index.html"]
    # Also where a file system ignores case.
    assert not {name.casefold() for name in build.own_names()}.intersection(map(str.casefold, pages.values()))


def test_a_report_replaces_no_file_of_somebody_else(tmp_path):
    documents = [result_maker.result(host=host, blocks=1) for host in ("web01", "web02")]
    built(tmp_path, *documents)
    files, _refused = built(tmp_path, *documents, confidence=0.9)
    for name in files:
        own = (tmp_path / name).read_bytes()
        (tmp_path / name).write_text("mine")
        with pytest.raises(border_text.BorderError, match=f"{name} is there"):
            built(tmp_path, *documents)
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).write_bytes(own)


def test_results_that_cannot_be_used_are_refused_by_name_and_the_rest_is_built(tmp_path, monkeypatch):
    (tmp_path / "half.json").write_text(json.dumps(result_maker.result(host="half"))[:5000])
    (tmp_path / "old.json").write_text(json.dumps(result_maker.result(host="old", schema_version=99)))
    monkeypatch.setattr(paired, "MAX_VALUES", 5)
    long = result_maker.result(host="long", blocks=6, shape=(1, 1, 2))
    files, refused = built(tmp_path, long, result_maker.result(host="good", blocks=5))
    assert set(files) == FILES | {"good.html"}
    assert [one.file for one in refused] == ["half.json", "long.json", "old.json"]
    for text in (Page(files["index.html"]).text, files["summary.md"], files["results.json"]):
        assert all(one.file.removesuffix(".json") in text for one in refused)


def test_the_second_of_two_files_of_one_host_is_refused(tmp_path):
    for run in ("one", "two"):
        result_files.save(tmp_path / run, result_maker.result(host="web01", run=run, blocks=4))
    made = build.build([tmp_path / run / "web01.json" for run in ("one", "two")], tmp_path)
    assert [one.file for one in made.refused] == ["web01.json"] and [row["run"] for row in made.hosts] == ["one"]


def numbered(count):
    return [
        result_maker.result(host=f"web{number:02d}", blocks=2, shape=(1, 1, 2), seed=number) for number in range(count)
    ]


def test_the_same_results_give_the_same_bytes_however_many_processes_make_them(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "MIN_HOSTS_A_PROCESS", 1000)
    alone = built(tmp_path, *numbered(8))
    monkeypatch.setattr(build, "MIN_HOSTS_A_PROCESS", 2)
    monkeypatch.setattr(build.os, "sched_getaffinity", lambda pid: {0, 1, 2})
    assert built(tmp_path) == alone
    made = build.build(result_files.result_paths(tmp_path), tmp_path)
    assert made.written == [] and len(made.hosts) == 8


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
    # As after a plan that was ended: what is asked to end must end all the same, or the rest waits for it.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        files, refused = built(tmp_path, *numbered(14))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [one.file for one in refused] == ["web03.json", "web11.json"] and "killed" in refused[0].reason
    rest = [f"web{number:02d}" for number in range(14) if number not in (3, 11)]
    assert [row["host"] for row in json.loads(files["results.json"])["hosts"]] == rest


def test_every_metric_reaches_every_output(tmp_path):
    """What one metric gains another can lose, and both have to be said: the primary one alone decides."""
    metrics = {**studies.RATES, "latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}
    gzip = {**result_maker.GZIP, "metrics": metrics}
    gzip["further"] = lambda arm, _spot: {"latency_p99": 3.2 if arm == "smt_on" else 2.0}
    document = result_maker.result(blocks=6, shape=(1, 2, 2), workloads={"gzip": gzip})
    files, _refused = built(tmp_path, document)
    (host,) = json.loads(files["results.json"])["hosts"]
    assert host["recommendation"]["choice"] == "on"
    rows = list(csv.DictReader(files["comparisons.csv"].splitlines()))
    whole = {row["metric"]: row for row in rows if (row["effect"], row["placement"]) == ("smt_off", "all_threads")}
    found = {name: (row["verdict"], row["primary"]) for name, row in whole.items() if name in metrics}
    assert found == {"throughput": ("loss", "True"), "latency_p99": ("gain", "False")}
    # A latency does not add up over workers, so sides with different numbers of workers are not compared by it.
    assert ("latency_p99", "smt_yield") not in {(row["metric"], row["effect"]) for row in rows}
    # What was made of samples is no sample.
    assert "cpu_by_work" in whole and {row["metric"] for row in csv.DictReader(files["results.csv"].splitlines())} == {
        *metrics
    }
    assert "gzip of a fixed stream, latency_p99" in Page(files["index.html"]).text
    assert "latency_p99 [ms]" in files["summary.md"].replace("\\", "")
    assert 'metric="latency_p99",primary="false"' in files["metrics.prom"]


def test_a_run_without_a_comparison_says_in_its_summary_what_was_measured_and_what_it_cost(tmp_path):
    alone = result_maker.result(shape=(1, 1, 1), compared=False, blocks=4, names=["all_threads"])
    summary = built(tmp_path, alone)[0]["summary.md"].replace("\\", "")
    assert re.search(r"\n\| gzip .* \| throughput \| .* \| [0-9.]+ MB/s \([0-9.]+ to [0-9.]+\) \| 4 \|\n", summary), (
        summary
    )
    assert "CPU s/MB" in summary


def test_whatever_was_measured_makes_a_page():
    for shape, blocks in (((1, 1, 2), 2), ((2, 9, 2), 4), ((1, 2, 4), 4), ((1, 1, 1), 1)):
        assert Page(html_of(result_maker.result(shape=shape, blocks=blocks))).stack == []
    unknown = {"facts": result_maker.nothing_known(), "environment": {}, "plan": {}, "restored": None}
    for changes in ({}, {**unknown, "outcome": "failed", "message": "no such host"}):
        assert Page(html_of(result_maker.result(samples=[], **changes))).stack == []


def test_numbers():
    values = (None, 0, 123.456, 1234567.0, 0.01234, 1e-9, 5e12, 99.996)
    texts = ["unknown", "0", "123.5", "1\u202f234\u202f567", "0.01234", "1e-09", "5e+12", "100.0"]
    assert [wording.number(value) for value in values] == texts


def played(tmp_path, *calls):
    """Run the role once with each of these variables, check mode where they say so, and return what each registered,
    or how it failed.
    """
    tasks = []
    for number, variables in enumerate(calls):
        checked = variables.pop("checked", False)
        copy = {"content": "{{ came | to_json }}", "dest": f"{tmp_path}/came{number}", "mode": "0600"}
        role = {"name": "threadwise.smt.smt_report", "apply": {"check_mode": checked, "diff": checked}}
        for came, where in (("smt_report_result", "block"), ("ansible_failed_result", "rescue")):
            kept = {"ansible.builtin.copy": copy, "vars": {"came": f"{{{{ {came} }}}}"}}
            if where == "block":
                tasks.append({where: [{"ansible.builtin.include_role": role, "vars": variables}, kept]})
            else:
                tasks[-1][where] = [kept]
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(json.loads(json.dumps(play))))
    command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,"]
    environment = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    process = subprocess.run(
        [*command, str(tmp_path / "play.yml")], env=environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in process.stdout + process.stderr
    return process, [json.loads((tmp_path / f"came{number}").read_text()) for number in range(len(calls))]


def test_the_task_says_what_it_changes_changes_nothing_twice_and_names_what_it_cannot_use(tmp_path):
    run_dir = tmp_path / "run"
    result_files.save(run_dir, result_maker.result(blocks=5))
    (run_dir / "broken.json").write_text("{")
    (tmp_path / "empty").mkdir()
    several = {"as_found": 1.0, "overcommit_strict": 1.2, "panic_on_oom": 0.9}
    result_files.save(tmp_path / "arms", result_maker.result(arms=several, blocks=6, shape=(1, 2, 2)))
    here, arms = {"smt_report_run_dir": str(run_dir)}, {"smt_report_run_dir": str(tmp_path / "arms")}
    process, (checked, first, second, nowhere, empty, wrong, compared) = played(
        tmp_path,
        {**here, "checked": True},
        dict(here),
        dict(here),
        {"smt_report_run_dir": str(tmp_path / "nowhere")},
        {"smt_report_run_dir": str(tmp_path / "empty")},
        {**arms, "smt_report_compare": "some"},
        {**arms, "smt_report_compare": "all"},
    )
    written = FILES | {"web01.html"}
    assert checked["changed"] and {os.path.basename(path) for path in checked["files"]} == written
    assert checked["diff"][0]["before"] == "" and "Leave SMT on" in checked["diff"][0]["after"]
    assert first["changed"] and set(os.listdir(run_dir)) == written | {"broken.json", "web01.json"}
    assert [one["file"] for one in first["refused"]] == ["broken.json"] and first["hosts"][0]["recommendation"] == "on"
    assert "not in the report: broken.json" in process.stdout + process.stderr
    assert (second["changed"], second["files"]) == (False, [])
    assert "nowhere: cannot be listed" in nowhere["msg"] and "no result of a host" in empty["msg"]
    assert "baseline, all, got: some" in wrong["msg"] and compared["changed"]
    best = json.loads((tmp_path / "arms" / "results.json").read_text())["hosts"][0]["recommendation"]["best"]
    assert best == "overcommit_strict"


# ---- machines beside each other --------------------------------------------------------------------------------------


def of_machine(directory, host, **changes):
    """Save the result of a machine of four cores with two threads each."""
    document = {**result_maker.result(noise=0.001, shape=(1, 4, 2), blocks=4), "host": host, **changes}
    directory.mkdir(exist_ok=True)
    (directory / f"{host}.json").write_text(json.dumps(document), encoding="utf-8")
    return document


def beside(tmp_path, *others):
    """Build the report of the run a with other runs; return it and the page of all machines."""
    runs = tuple(tuple(sorted((tmp_path / name).glob("*.json"))) for name in others)
    paths = result_files.result_paths(tmp_path / "a")
    made = build.build(paths, tmp_path / "a", build.Settings(other_runs=runs))
    page = tmp_path / "a" / "machines.html"
    return made, Page(page.read_text(encoding="utf-8")).text if page.exists() else None


def test_machines_are_set_beside_each_other_by_what_they_have_and_cost(tmp_path):
    of_machine(tmp_path / "a", "dear", run="a", costs={"price_per_hour": 2.0, "licence_per": "core"})
    assert beside(tmp_path)[1] is None, "one machine alone has no such page"
    of_machine(tmp_path / "b", "cheap", run="b", costs={"price_per_hour": 0.5, "licence_per": "host"})
    free = of_machine(tmp_path / "c", "free", run="c")
    made, text = beside(tmp_path, "b", "c")
    assert not made.refused and "each of 3 machines" in text and "runs: a, b, c" in text
    assert "per unit of money: cheap (b), SMT on:" in text and "per licence: cheap (b), SMT on:" in text
    on, off = json.loads((tmp_path / "a" / "results.json").read_text())["hosts"][0]["capacities"]
    assert (on["cores"], on["cpus"], off["cores"], off["cpus"]) == (4, 8, 4, 4)
    ghz = free["environment"]["nominal_mhz"] / 1000
    for one, cpus in ((on, 8), (off, 4)):
        shares = [one["rate"] / 4, one["rate"] / cpus, one["rate"] / 4, one["rate"] * 1800, one["rate"] / ghz]
        named = ("per_core", "per_cpu", "per_licence", "per_money", "per_ghz")
        assert [one[name] for name in named] == pytest.approx(shares)
    (unpriced,) = {(one["per_money"], one["per_licence"]) for one in result_maker.summarised(free)["capacities"]}
    assert unpriced == (None, None)


def test_a_mean_of_workers_has_no_share_for_each_core():
    points = {**result_maker.GZIP, "metrics": {"score": {"unit": "points", "better": "higher", "aggregate": "mean"}}}
    found = result_maker.summarised(result_maker.result(workloads={"points": points}, blocks=4))
    assert found["capacities"] == []
    assert {(one["rate"], one["achieved"], one["by_usage"], one["real"]) for one in found["usage"]} == {(None,) * 4}


def test_the_same_host_in_two_runs_is_two_machines_and_a_damaged_result_is_named(tmp_path):
    of_machine(tmp_path / "a", "h", run="a")
    of_machine(tmp_path / "b", "h", run="b")
    (tmp_path / "b" / "broken.json").write_text("{", encoding="utf-8")
    made, text = beside(tmp_path, "b")
    assert [one.reason.partition(":")[0] for one in made.refused] == ["of another run"] and "of 2 machines" in text
