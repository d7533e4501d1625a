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

import markup
import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text as border_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import markdown, registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import host as host_page

ATTACK = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}=cmd|' /C calc'!A0 @everyone"
    " [x](javascript:alert(1))"
)
EVEN = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
ARMS = ("smt_on", "smt_off", "isolated", "mitigations_off")
ISOLATED = result_maker.title_of("isolated")
FILES = {"index.html", *(one.name for one in registry.formats())}
HIDING = "\u200b\u061c\u202e\U000e0041\ufe0f\u3164\u2066" + 20 * "\u0301"


def built(directory, *documents, **settings):
    """Name -> text of the report on these results, and what was refused."""
    for document in documents:
        result_files.save(directory, document)
    results = result_files.result_paths(directory)
    made = build.build(results, directory, build.Settings(**settings))
    files = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path not in results}
    return {name: of if name.endswith(".parquet") else of.decode() for name, of in files.items()}, made.refused


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
    return host_page.render(result_maker.summary(document), True)


@pytest.fixture(scope="module", name="usual")
def usual_fixture(tmp_path_factory):
    workloads = {"gzip": result_maker.GZIP, "even": EVEN}
    return built(tmp_path_factory.mktemp("usual"), result_maker.result(workloads=workloads))


@pytest.fixture(scope="module", name="several")
def several_fixture(tmp_path_factory):
    hosts = (result_maker.result(host=host, blocks=4, shape=(1, 2, 2)) for host in ("a/b", "plain"))
    return built(tmp_path_factory.mktemp("several"), *hosts)


@pytest.fixture(scope="module", name="attacked", params=[None, dict.fromkeys(ARMS, 1.0)], ids=["two", "four"])
def attacked_fixture(request, tmp_path_factory):
    return built(tmp_path_factory.mktemp("attacked"), result_maker.hostile(ATTACK, arms=request.param), compare="all")


def test_the_page_says_how_to_measure_the_same_again():
    workloads = {"gzip": result_maker.GZIP, "mine": EVEN}
    booted = result_maker.result(workloads=workloads)
    left_out = [{"name": "isolated", "title": "isolated", "reason": "one core"}]
    opened = result_maker.policy_result(workloads=workloads, name="mitigations_off", arms_left_out=left_out)
    for document in (booted, opened):
        document["plan"]["boots"] = 4
    boots = "-e smt_eval_boots=4 -e smt_boot_reboot_ok=true "
    for document, actual in (
        (booted, f"smt_on,smt_off {boots}"),
        (result_maker.result(workloads=workloads, compared=False, arms_left_out=[]), "as_found "),
        (opened, f"as_found,mitigations_off,isolated {boots}-e smt_eval_allow_mitigations_off=true "),
    ):
        text = Page(html_of(document)).text
        start = "ansible-playbook threadwise.smt.smt_eval -i INVENTORY --limit web01 -e smt_eval_arms="
        assert f'{start}{actual}-e \'{{"smt_eval_workloads": ["gzip"]}}\' -e smt_eval_budget=' in text
        assert "smt_eval_placements" not in text and "own: mine." in text


def test_the_curves_of_streams_are_drawn_with_the_crossover():
    page = html_of(studies.hp((1, 4, 7, 8, 12), tests=["inner", "OUTER"]))
    assert len(re.findall(r'aria-label="[^"]* by number of streams: ', page)) == 2
    assert page.count(">from 8 streams<") == 1 and "SMT off, 7 streams: \u221212.9 % (" in page


def test_a_page_of_many_arms_says_what_each_does_and_leaves_open(tmp_path):
    arms = dict(zip(ARMS, (1.0, 1.0, 1.2, 1.1)))
    both = {"gzip": result_maker.GZIP, "even": EVEN}
    document = result_maker.result(workloads=both, arms=arms, blocks=6, shape=(1, 2, 2), names=("all_threads",))
    files, _refused = built(tmp_path, document, compare="all")
    text, question = Page(files["index.html"]).text, f"Which of SMT on, SMT off, {ISOLATED} and "
    assert f"<h1>{question}" in files["index.html"] and f"## `web01`: {question}" in files["summary.md"]
    assert f"web01: {ISOLATED} is best" in text and "each other (6 comparisons)" in text
    assert "What each arm leaves open" in text and "no longer mitigated" in text
    (host,) = json.loads(files["results.json"])["hosts"]
    assert [one["states"]["mds"] for one in host["exposure"]] == ["smt_open", "smt_closed", "smt_open", "opened"]
    assert host["recommendation"]["best"] == "isolated" and len(host["recommendation"]["pairs"]) == 6
    assert re.search(r"\n- SMT off: closes the part .*, of mds.* \(inferred\)\n", files["summary.md"].replace("\\", ""))
    assert 'arm="mitigations_off",baseline="isolated"' in files["metrics.prom"]


def test_one_host_is_one_page_in_which_a_screen_reader_finds_its_way(usual, attacked, several):
    """Headings leave out no level, each table has its caption, each heading cell its direction, each field its label,
    each picture its words.
    """
    files, refused = usual
    assert set(files) == FILES and refused == [] and len(Page(files["index.html"]).labels) >= 8
    assert "Read back afterwards: as it was before." in Page(files["index.html"]).text
    assert "<h1>Should SMT be on here? web01</h1>" in files["index.html"]
    for page in (usual[0]["index.html"], attacked[0]["index.html"], *map(several[0].get, ("index.html", "plain.html"))):
        read = Page(page)
        assert read.stack == [] and all(len(label) > 20 for label in read.labels)
        elements = Page(markup.whole(page)).elements
        levels = [int(tag[1]) for tag, _attributes in elements if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
        tags = [tag for tag, _attributes in elements]
        assert tags.count("table") == tags.count("caption") >= 3
        # A heading cell is that of its column in the head, and else that of its row, where it comes first.
        assert not re.search(r"<tbody>.*?</td>\s*<th\b", markup.whole(page).replace("<tr>", "\n<tr>"))


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
        metas = [attributes for tag, attributes in page.elements if tag == "meta"]
        (policy,) = [one["content"] for one in metas if one.get("http-equiv") == "Content-Security-Policy"]
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
    for page in (Page(files[name]) for name in files if name.endswith(".html")):
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
    hosts = (result_maker.result(host=f"web{HIDING}{number}", **changed) for number in range(2))
    files, refused = built(tmp_path, *hosts)
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
    assert [one.file for one in made.refused] == ["web01.json"] and [row.run for row in made.hosts] == ["one"]


def numbered(count):
    return [result_maker.result(host=f"web{n:02d}", blocks=2, shape=(1, 1, 2), seed=n) for n in range(count)]


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

    def deadly(summary, *rest):
        if summary.result.host in ("web03", "web11"):
            os.kill(os.getpid(), signal.SIGKILL)
        return render(summary, *rest)

    monkeypatch.setattr(build.host_page, "render", deadly)
    monkeypatch.setattr(build, "MIN_HOSTS_A_PROCESS", 2)
    monkeypatch.setattr(build, "AHEAD", 2)
    monkeypatch.setattr(build.os, "sched_getaffinity", lambda pid: {0, 1})
    # As after a plan that was ended: what is asked to end must end all the same, or the rest waits for it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    files, refused = built(tmp_path, *numbered(14))
    assert [one.file for one in refused] == ["web03.json", "web11.json"] and "killed" in refused[0].reason
    rest = [f"web{number:02d}" for number in range(14) if number not in (3, 11)]
    assert [row["host"] for row in json.loads(files["results.json"])["hosts"]] == rest


def test_every_metric_reaches_every_output(tmp_path):
    """What one metric gains another can lose, and both have to be said: the primary one alone decides."""
    metrics = {**studies.RATES, "latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}
    gzip = {**result_maker.GZIP, "metrics": metrics}
    gzip["further"] = lambda arm, _spot: {"latency_p99": 3.2 if arm == "smt_on" else 2.0}
    files, _refused = built(tmp_path, result_maker.result(blocks=6, shape=(1, 2, 2), workloads={"gzip": gzip}))
    assert json.loads(files["results.json"])["hosts"][0]["recommendation"]["choice"] == "on"
    rows = list(csv.DictReader(files["comparisons.csv"].splitlines()))
    whole = {row["metric"]: row for row in rows if (row["effect"], row["placement"]) == ("smt_off", "all_threads")}
    found = {name: (row["verdict"], row["primary"]) for name, row in whole.items() if name in metrics}
    assert found == {"throughput": ("loss", "True"), "latency_p99": ("gain", "False")}
    # What was made of samples is no sample.
    assert "cpu_by_work" in whole
    assert {row["metric"] for row in csv.DictReader(files["results.csv"].splitlines())} == set(metrics)
    assert "gzip of a fixed stream, latency_p99" in Page(files["index.html"]).text
    assert 'metric="latency_p99",primary="false"' in files["metrics.prom"]


def played(tmp_path, *calls):
    """Run the role once with each of these variables; return what each registered, or how it failed."""
    tasks = []
    for number, variables in enumerate(calls):
        checked = variables.pop("checked", False)
        role = {"name": "threadwise.smt.smt_report", "apply": {"check_mode": checked, "diff": checked}}
        task = {"block": [{"ansible.builtin.include_role": role, "vars": variables}], "rescue": []}
        for came, where in (("smt_report_result", "block"), ("ansible_failed_result", "rescue")):
            copy = {"content": f"{{{{ {came} | to_json }}}}", "dest": f"{tmp_path}/came{number}", "mode": "0600"}
            task[where].append({"ansible.builtin.copy": copy})
        tasks.append(task)
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    command = [os.path.join(os.path.dirname(sys.executable), "ansible-playbook"), "-i", "localhost,"]
    environment = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    play = [*command, str(tmp_path / "play.yml")]
    process = subprocess.run(play, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in process.stdout + process.stderr
    return process, [json.loads((tmp_path / f"came{number}").read_text()) for number in range(len(calls))]


def test_the_task_says_what_it_changes_changes_nothing_twice_and_names_what_it_cannot_use(tmp_path):
    run_dir = tmp_path / "run"
    several = {"as_found": 1.0, "overcommit_strict": 1.2, "panic_on_oom": 0.9}
    result_files.save(run_dir, result_maker.result(arms=several, blocks=6, shape=(1, 2, 2)))
    (run_dir / "broken.json").write_text("{")
    (tmp_path / "empty").mkdir()
    here = {"smt_report_run_dir": str(run_dir), "smt_report_compare": "all"}
    wrong = [{**here, "smt_report_run_dir": str(tmp_path / name)} for name in ("nowhere", "empty")]
    wrong.append({**here, "smt_report_compare": "some"})
    process, made = played(tmp_path, {**here, "checked": True}, dict(here), dict(here), *wrong)
    checked, first, second, *refused = made
    written = FILES | {"web01.html"}
    assert checked["changed"] and {os.path.basename(path) for path in checked["files"]} == written
    assert checked["diff"][0]["before"] == "" != checked["diff"][0]["after"]
    assert first["changed"] and set(os.listdir(run_dir)) == written | {"broken.json", "web01.json"}
    assert [one["file"] for one in first["refused"]] == ["broken.json"]
    assert "not in the report: broken.json" in process.stdout + process.stderr
    assert (second["changed"], second["files"]) == (False, [])
    for one, words in zip(refused, ("nowhere: cannot be listed", "no result of a host", "all, got: some"), strict=True):
        assert words in one["msg"]
    best = json.loads((run_dir / "results.json").read_text())["hosts"][0]["recommendation"]["best"]
    assert best == "overcommit_strict"


def of_machine(directory, host, **changes):
    """Save the result of a machine of four cores with two threads each."""
    document = {**result_maker.result(noise=0.001, shape=(1, 4, 2), blocks=4), "host": host, **changes}
    directory.mkdir(exist_ok=True)
    (directory / f"{host}.json").write_text(json.dumps(document), encoding="utf-8")
    return document


def beside(tmp_path, *others):
    """Build the report of the run a with other runs; return it and the page of all machines."""
    runs = tuple(tuple(sorted((tmp_path / name).glob("*.json"))) for name in others)
    made = build.build(result_files.result_paths(tmp_path / "a"), tmp_path / "a", build.Settings(other_runs=runs))
    page = tmp_path / "a" / "machines.html"
    return made, page.exists() and Page(page.read_text(encoding="utf-8")).text


def test_machines_are_set_beside_each_other_by_what_they_have_and_cost(tmp_path):
    of_machine(tmp_path / "a", "dear", run="a", costs={"price_per_hour": 2.0, "licence_per": "core"})
    assert not beside(tmp_path)[1], "one machine alone has no such page"
    of_machine(tmp_path / "b", "cheap", run="b", costs={"price_per_hour": 0.5, "licence_per": "host"})
    free = of_machine(tmp_path / "c", "free", run="c")
    made, text = beside(tmp_path, "b", "c")
    assert not made.refused and "each of 3 machines" in text and "runs: a, b, c" in text
    assert "per unit of money: cheap (b), SMT on:" in text and "per licence: cheap (b), SMT on:" in text
    on, off = json.loads((tmp_path / "a" / "results.json").read_text())["hosts"][0]["capacities"]
    assert (on["cores"], on["cpus"], off["cores"], off["cpus"]) == (4, 8, 4, 4)
    for one, cpus in ((on, 8), (off, 4)):
        shares = {"per_core": 1 / 4, "per_cpu": 1 / cpus, "per_licence": 1 / 4, "per_money": 1800, "per_ghz": 1 / 2.5}
        assert {name: one[name] / one["rate"] for name in shares} == pytest.approx(shares)
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
