# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of hosts -> the files that a person or another program reads: pages, CSV, Markdown, JSON.

Whatever comes from a host is data: the pages are made by Jinja with automatic escaping and carry a content security policy that allows
nothing from outside; cells of CSV cannot start a formula; Markdown is escaped. The same results give the same bytes.
"""

from __future__ import annotations

import base64
import csv
import dataclasses
import functools
import hashlib
import io
import json
import re
import shlex
import statistics as plain_statistics
import typing as t
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from ansible_collections.threadwise.smt.plugins.module_utils import cpulist
from ansible_collections.threadwise.smt.plugins.plugin_utils import analysis, answer, charts, derived, result_files, statistics

SCHEMA_NAME = "threadwise.smt/report"
SCHEMA_VERSION = 1

TEMPLATES = Path(__file__).with_name("templates")
# A page with more samples than this shows the first ones and points to the CSV, which has all.
MOST_SAMPLES_SHOWN = 3000
# Rows of pictures beyond which a picture no longer helps; the table has all.
MOST_ROWS_DRAWN = 60
MOST_CPUS_DRAWN = 256

PLACEMENT_TITLES = {
    "single": "one worker alone",
    "same_cpu": "two workers on one CPU",
    "siblings": "two workers on one core",
    "cores": "two workers on two cores",
    "one_per_core": "one worker per core",
    "all_threads": "every online thread busy",
    "unpinned": "as many workers, not pinned",
}
EFFECT_TITLES = {
    "smt_off": "SMT off against SMT on",
    "cost_of_sharing": "two workers on one core against two on two cores",
    "smt_yield": "all threads against one worker per core",
    "cost_of_one_cpu": "two workers on one CPU against two on two cores",
    "second_core": "two workers on two cores against one worker alone",
}
SIDES_OF_CHANGE = ("better with SMT on", "better with SMT off")
RECOMMENDATION_TITLES = {
    answer.ON: "SMT on", answer.OFF: "SMT off", answer.EITHER: "either", answer.BY_WORKLOAD: "by workload", answer.UNDECIDED: "not decided",
    answer.NOT_COMPARED: "not compared",
}


@dataclasses.dataclass(frozen=True)
class Refused:
    """A file that is not used, and why."""

    file: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Host:
    """What the overview keeps of one host, small enough for thousands."""

    summary: dict[str, t.Any]
    page: str
    csv_rows: list[list[t.Any]]


def pages(paths: t.Iterable[Path], margin: float = 0.01, confidence: float = 0.95) -> t.Iterator[tuple[str, str] | Refused]:
    """The report's files, one after the other, so that a large run need not be held in memory.

    :param paths: result files
    :param margin: effects within this share of 1 count as none
    :param confidence: of the verdicts of a family together
    :returns: ``(file name, text)`` of each file to write, and a :class:`Refused` for each result that cannot be used
    """
    hosts: list[Host] = []
    refused: list[Refused] = []
    paths = list(paths)
    alone = len(paths) == 1
    for path, result in result_files.load_all(paths):
        try:
            if isinstance(result, result_files.ResultError):
                raise result
            host = summarise(result, path.name, "index.html" if alone else f"{result_files.file_stem(result['host'])}.html", margin, confidence)
        except result_files.ResultError as error:
            refused.append(Refused(result_files.showable(path.name), str(error)))
        except statistics.SampleError as error:
            refused.append(Refused(result_files.showable(path.name), f"{result_files.showable(path.name)}: {error}"))
        else:
            hosts.append(host)
            yield host.page, host_page(result, host.summary, alone, margin)
            continue
        yield refused[-1]
    if not alone or refused:
        yield "index.html", run_page([host.summary for host in hosts], [host.page for host in hosts], refused)
    yield "results.csv", samples_csv(hosts)
    yield "comparisons.csv", comparisons_csv(hosts)
    yield "summary.md", summary_markdown([host.summary for host in hosts], refused)
    yield "results.json", results_json([host.summary for host in hosts], refused)


def summarise(result: dict[str, t.Any], file: str, page: str, margin: float, confidence: float) -> Host:
    """One host's part of results.json and of the overview."""
    comparisons = analysis.compare_host(result, margin, confidence)
    summary = {
        "host": result["host"], "run": result["run"], "file": result_files.showable(file), "outcome": result["outcome"], "message": result["message"],
        "started": result.get("started"), "finished": result["finished"], "collection_version": result.get("collection_version"),
        "hardware_class": result["facts"].get("hardware_class"), "environment": result["environment"], "change": result["change"],
        "answer": answer.answer(result, comparisons), "comparisons": comparisons, "levels": analysis.levels(result, confidence),
        "not_measured": analysis.not_measured(result), "failures": analysis.failures(result), "restored": result["restored"],
    }
    return Host(summary, page, list(_sample_rows(result)))


# Pages


@functools.cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        number=number, percent=answer.percent, change=lambda one: answer.signed(one["ratio"], one), interval=_interval, placement=placement_title,
        condition=charts.condition_title, effect=EFFECT_TITLES.get, recommendation=RECOMMENDATION_TITLES.get, address=quote, cpus=_cpu_list,
    )
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    environment.globals.update(style=Markup(_asset("page.css")), script=Markup(script), script_hash=digest)
    return environment


def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def host_page(result: dict[str, t.Any], summary: dict[str, t.Any], alone: bool, margin: float) -> str:
    """The page of one host."""
    comparisons = summary["comparisons"]
    changes = [one for one in comparisons if one["kind"] == "change"]
    return _templates().get_template("host.html.j2").render(
        result=result, summary=summary, answer=summary["answer"], alone=alone,
        main=analysis.primary(comparisons), main_chart=_change_chart(analysis.primary(comparisons)),
        others=[one for one in changes if one["placement"] != analysis.WHOLE_MACHINE],
        effects=_effects(comparisons), workloads=_workloads(result, summary, margin), machine=_machine(result), usage=_usage(result),
        sequence=_sequence(result), settings=_settings(result), command=_command(result), samples=result["samples"][:MOST_SAMPLES_SHOWN],
        facts=json.dumps(result["facts"], indent=1, sort_keys=True, ensure_ascii=False),
    )


def run_page(summaries: t.Sequence[dict[str, t.Any]], addresses: t.Sequence[str], refused: t.Sequence[Refused]) -> str:
    """The overview of a run with several hosts."""
    rows = [{"label": f"{summary['host']}: {one['title']}", **_chart_row(one)} for summary in summaries for one in analysis.primary(summary["comparisons"])]
    chart = _forest(rows, [one for summary in summaries for one in analysis.primary(summary["comparisons"])]) if len(rows) <= MOST_ROWS_DRAWN else ""
    counts = {name: sum(1 for summary in summaries if summary["answer"]["recommendation"] == name) for name in RECOMMENDATION_TITLES}
    workloads = {one["workload"]: one["title"] for summary in summaries for one in analysis.primary(summary["comparisons"])}
    by_host = [{one["workload"]: one for one in analysis.primary(summary["comparisons"])} for summary in summaries]
    return _templates().get_template("run.html.j2").render(
        summaries=summaries, addresses=addresses, refused=refused, chart=chart, counts={name: count for name, count in counts.items() if count},
        workloads=workloads, by_host=by_host, runs=sorted({summary["run"] for summary in summaries}),
    )


def placement_title(name: str) -> str:
    match = analysis.STREAMS.match(name)
    return f"{match.group(1)} streams" if match else PLACEMENT_TITLES.get(name, name)


def number(value: float | None, digits: int = 4) -> str:
    """A measured value with the digits that mean something, without an exponent for everyday sizes."""
    if value is None:
        return "unknown"
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits}g}"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:,.{max(0, digits - 1 - exponent)}f}".replace(",", "\u202f")


def interval_text(one: dict[str, t.Any]) -> str:
    """``−20 % (−22 to −18 %)`` of a comparison."""
    if one["ci_low"] is None:
        return f"{answer.signed(one['ratio'])} (no interval)"
    value, low, high = (answer.signed(one[name], one) for name in ("ratio", "ci_low", "ci_high"))
    return f"{value} ({low.removesuffix(' %')} to {high})"


def _interval(one: dict[str, t.Any]) -> str:
    return "none" if one["ci_low"] is None else f"{answer.signed(one['ci_low'], one)} to {answer.signed(one['ci_high'], one)}"


def _chart_row(one: dict[str, t.Any]) -> dict[str, t.Any]:
    ends = {"low": one["ci_low"] or one["ratio"], "high": one["ci_high"] or one["ratio"]}
    return {"ratio": one["ratio"], **ends, "verdict": one["verdict"], "text": interval_text(one)}


def _forest(rows: t.Sequence[dict[str, t.Any]], comparisons: t.Sequence[dict[str, t.Any]], sides: tuple[str, str] = SIDES_OF_CHANGE) -> Markup:
    if not rows:
        return Markup("")
    told = "; ".join(f"{row['label']} {row['text']}, {row['verdict']}" for row in rows[:20])
    return Markup(charts.forest(rows, comparisons[0]["margin"], sides, f"Change with its interval: {told}"))


def _change_chart(comparisons: t.Sequence[dict[str, t.Any]]) -> Markup:
    return _forest([{"label": one["title"], **_chart_row(one)} for one in comparisons[:MOST_ROWS_DRAWN]], comparisons)


def _effects(comparisons: t.Sequence[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The comparisons between placements, by effect, each with its picture."""
    found = []
    for effect in analysis.PLACEMENT_PAIRS.values():
        group = [one for one in comparisons if one["effect"] == effect]
        if group:
            rows = [{"label": one["title"], **_chart_row(one)} for one in group[:MOST_ROWS_DRAWN]]
            found.append({"effect": effect, "comparisons": group, "chart": _forest(rows, group, ("less work", "more work"))})
    return found


def _workloads(result: dict[str, t.Any], summary: dict[str, t.Any], margin: float) -> list[dict[str, t.Any]]:
    """Each workload with what was measured of it."""
    found = []
    for name in dict.fromkeys(level["workload"] for level in summary["levels"]):
        about = analysis.describe_workload(result, name)
        levels = [level for level in summary["levels"] if level["workload"] == name]
        unit = f"{about['metric']} [{about['unit']}], {'more' if about['better'] == 'higher' else 'less'} is better"
        drawn = [
            {"label": placement_title(level["placement"]), "condition": level["condition"], "value": level["value"], "low": level["low"],
             "high": level["high"], "text": number(level["value"])}
            for level in levels if level["value"] is not None and not analysis.STREAMS.match(level["placement"])
        ][:MOST_ROWS_DRAWN]
        chart = charts.bars(drawn, unit, f"{about['title']}: {unit}, by placement; the table has the numbers") if drawn else ""
        found.append({**about, "levels": levels, "chart": Markup(chart), "repeats": _repeats(result, about), "streams": _streams(levels, about, margin)})
    return found


def _repeats(result: dict[str, t.Any], about: dict[str, t.Any]) -> Markup:
    """Histogram of the repeated runs with every thread busy, or of one worker alone where there are none."""
    for placement in (analysis.WHOLE_MACHINE, "single"):
        rows = [
            {"condition": sample["condition"], "value": analysis.good_value(sample)}
            for sample in result["samples"]
            if sample["workload"] == about["workload"] and analysis.good_value(sample) is not None
            and sample["placement"] == analysis.sampled_as(result, placement, sample["condition"])
        ]
        if len(rows) > 3:
            label = f"{about['title']}, {placement_title(placement)}: how often which value came in {len(rows)} samples"
            return Markup(charts.histogram(rows, f"{about['metric']} [{about['unit']}], {placement_title(placement)}", label))
    return Markup("")


def _streams(levels: t.Sequence[dict[str, t.Any]], about: dict[str, t.Any], margin: float) -> Markup:
    """The rate by number of streams, with the number from which on SMT helps, which needs the same numbers with SMT off."""
    rows = [
        {"streams": int(match.group(1)), **{key: level[key] for key in ("condition", "value", "low", "high")}}
        for level in levels if level["value"] is not None and (match := analysis.STREAMS.match(level["placement"]))
    ]
    if not rows:
        return Markup("")
    with_smt, without = ({row["streams"]: row["value"] for row in rows if row["condition"] == one} for one in (analysis.SMT_ON, analysis.SMT_OFF))
    both = {count: with_smt[count] / without[count] for count in set(with_smt) & set(without)}
    if about["better"] == "lower":
        both = {count: 1 / ratio for count, ratio in both.items()}
    crossing = derived.crossover(both, margin) if both else None
    told = f"SMT helps from {crossing} streams on" if crossing else "no number of streams from which on SMT helps"
    return Markup(charts.streams(rows, f"{about['metric']} [{about['unit']}]", crossing, f"{about['title']} by number of streams: {told}"))


def _sequence(result: dict[str, t.Any]) -> Markup:
    """Every good sample as its distance from the median of its kind, in the order taken."""
    kinds: dict[tuple[str, str, str], list[float]] = {}
    good = [(place, sample, analysis.good_value(sample)) for place, sample in enumerate(result["samples"])]
    good = [one for one in good if one[2] is not None]
    for _place, sample, value in good:
        kinds.setdefault((sample["workload"], sample["placement"], sample["condition"]), []).append(value)
    medians = {kind: plain_statistics.median(values) for kind, values in kinds.items()}
    rows = [
        {"index": place, "condition": sample["condition"], "deviation": value / medians[sample["workload"], sample["placement"], sample["condition"]] - 1}
        for place, sample, value in good[:MOST_SAMPLES_SHOWN]
    ]
    if len(rows) < 4:
        return Markup("")
    widest = max(abs(row["deviation"]) for row in rows)
    return Markup(charts.sequence(rows, f"{len(rows)} samples in the order taken; the farthest from the median of its kind by {answer.percent(widest)}"))


def _cpus(text: t.Any) -> tuple[int, ...]:
    """The CPUs of a list as the kernel writes it, none when it is not one."""
    try:
        return cpulist.parse(text) if isinstance(text, str) else ()
    except cpulist.CpuListError:
        return ()


def _cpu_list(value: t.Any) -> str:
    """CPUs as a list the kernel's way, from such a text or from numbers."""
    if isinstance(value, list):
        return cpulist.render(one for one in value if isinstance(one, int) and 0 <= one <= cpulist.MAX_CPU) or "none"
    return value or "none" if isinstance(value, str) else "unknown"


def _cores_by_node(facts: dict[str, t.Any]) -> list[tuple[str, list[tuple[int, ...]]]]:
    """Cores with their CPUs, below the memory node they belong to where that is known."""
    cores = [core for core in map(_cpus, facts.get("sibling_groups") or []) if core]
    nodes = {name: set(_cpus(cpus)) for name, cpus in (facts.get("nodes") or {}).items()}
    found = [(f"node {name}", [core for core in cores if core[0] in cpus]) for name, cpus in nodes.items()]
    found = [(name, members) for name, members in found if members]
    placed = {core for _name, members in found for core in members}
    rest = [core for core in cores if core not in placed]
    return found + ([("cores", rest)] if rest else [])


def _machine(result: dict[str, t.Any]) -> dict[str, t.Any]:
    facts = result["facts"]
    groups = _cores_by_node(facts)
    count = sum(len(core) for _name, cores in groups for core in cores)
    cpus = facts.get("cpus") or {}
    chart = ""
    if 0 < count <= MOST_CPUS_DRAWN:
        told = f"{facts.get('sockets') or 'unknown'} packages, {sum(len(cores) for _name, cores in groups)} cores, {count} CPUs"
        chart = charts.topology(groups, set(_cpus(cpus.get("offline"))), f"The machine: {told}; the table has each core")
    return {"groups": groups, "chart": Markup(chart), "cpus": cpus}


def _usage(result: dict[str, t.Any]) -> dict[str, t.Any] | None:
    """Mean usage of each CPU by placement and condition, CPUs in the order of the machine."""
    sums: dict[tuple[str, str], dict[str, list[float]]] = {}
    for sample in result["samples"]:
        if sample["ok"]:
            by_cpu = sums.setdefault((sample["placement"], sample["condition"]), {})
            for cpu, share in (sample.get("cpu_usage") or {}).items():
                if share is not None:
                    by_cpu.setdefault(cpu, []).append(share)
    machine = [str(cpu) for _name, cores in _cores_by_node(result["facts"]) for core in cores for cpu in core]
    measured = {cpu for by_cpu in sums.values() for cpu in by_cpu}
    cpus = [cpu for cpu in machine if cpu in measured] + sorted(measured - set(machine))
    if not cpus:
        return None
    lines = [
        {"label": f"{placement_title(placement)}, {charts.condition_title(condition)}",
         "shares": [sum(by_cpu[cpu]) / len(by_cpu[cpu]) if cpu in by_cpu else None for cpu in cpus]}
        for (placement, condition), by_cpu in sums.items() if by_cpu
    ]
    rows = [{"label": line["label"], "cpu": cpu, "usage": share} for line in lines for cpu, share in zip(cpus, line["shares"]) if share is not None]
    chart = charts.usage_map(rows, cpus, "Mean usage of each CPU in each placement; the table has the numbers") if len(cpus) <= MOST_CPUS_DRAWN else ""
    return {"cpus": cpus, "lines": lines, "chart": Markup(chart)}


def _settings(result: dict[str, t.Any]) -> list[tuple[str, str]]:
    """What was set and what was found, as pairs of words."""
    plan = {name: value for name, value in result["plan"].items() if name not in ("workloads", "placements")}
    pairs = [*sorted(plan.items()), *sorted(result["environment"].items()), ("collection_version", result.get("collection_version"))]
    return [(name.replace("_", " "), "unknown" if value is None else value if isinstance(value, str) else json.dumps(value)) for name, value in pairs]


def _command(result: dict[str, t.Any]) -> str:
    """The command line that measures this again."""
    words = ["ansible-playbook", "threadwise.smt.smt_eval", "-i", "INVENTORY", "--limit", result["host"]]
    if result["change"].get("name") == "none":
        words += ["-e", "smt_eval_switch=false"]
    for variable, field in (("budget", "seconds_budget"), ("sample_seconds", "sample_seconds"), ("settle_seconds", "settle_seconds")):
        value = result["plan"].get(field)
        if isinstance(value, (int, float)):
            words += ["-e", f"smt_bench_{variable}={value}"]
    return shlex.join(words)


# CSV

SAMPLE_COLUMNS = (
    "run", "host", "hardware_class", "workload", "placement", "condition", "block", "index", "ok", "metric", "value", "unit", "better", "workers",
    "wall_seconds", "steal", "started", "error",
)
COMPARISON_COLUMNS = (
    "run", "host", "hardware_class", "workload", "metric", "unit", "better", "kind", "effect", "placement", "baseline_condition", "baseline_placement",
    "candidate_condition", "candidate_placement", "baseline_value", "candidate_value", "ratio", "ci_low", "ci_high", "confidence", "n", "dropped_blocks",
    "margin", "minimum_detectable", "verdict", "p_adjusted", "method",
)
# What a spreadsheet takes as the beginning of a formula (OWASP, CSV injection), full-width forms included.
_FORMULA = re.compile(r"^[\s]*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")


def cell(value: t.Any) -> t.Any:
    """A value for a CSV cell: a text that a spreadsheet would run as a formula gets an apostrophe in front."""
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return value


def _csv(columns: t.Sequence[str], rows: t.Iterable[t.Sequence[t.Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def _sample_rows(result: dict[str, t.Any]) -> t.Iterator[list[t.Any]]:
    for sample in result["samples"]:
        metric = sample["metric"] or {}
        yield [
            result["run"], result["host"], result["facts"].get("hardware_class"), sample["workload"], sample["placement"], sample["condition"], sample["block"],
            sample.get("index"), sample["ok"], metric.get("name"), metric.get("value"), metric.get("unit"), metric.get("better"),
            len(sample.get("workers") or []), sample.get("wall_seconds"), sample.get("steal"), sample.get("started"), sample.get("error"),
        ]


def samples_csv(hosts: t.Sequence[Host]) -> str:
    """One row a sample."""
    return _csv(SAMPLE_COLUMNS, (row for host in hosts for row in host.csv_rows))


def comparisons_csv(hosts: t.Sequence[Host]) -> str:
    """One row a comparison."""
    return _csv(COMPARISON_COLUMNS, (_comparison_row(host.summary, one) for host in hosts for one in host.summary["comparisons"]))


def _comparison_row(summary: dict[str, t.Any], one: dict[str, t.Any]) -> list[t.Any]:
    sides = {f"{side}_{key}": one[side][key] for side in ("baseline", "candidate") for key in ("condition", "placement")}
    values = {**{key: summary[key] for key in ("run", "host", "hardware_class")}, **one, **sides}
    return [values[column] for column in COMPARISON_COLUMNS]


# JSON and Markdown


def results_json(summaries: t.Sequence[dict[str, t.Any]], refused: t.Sequence[Refused]) -> str:
    """Everything that was made of the results; the samples themselves stay in each host's file, which ``file`` names."""
    document = {"schema": SCHEMA_NAME, "schema_version": SCHEMA_VERSION, "hosts": list(summaries), "refused": [dataclasses.asdict(one) for one in refused]}
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"


def plain(text: str) -> str:
    """Words as Markdown that shows them as they are: no markup, no HTML, no mention of anybody."""
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"([\\`*_{}\[\]<>()#+!|~&-])", r"\\\1", text)
    # GitHub turns @name into a notification and www. and http: into links even without markup; a zero-width space in between prevents both.
    return re.sub(r"(@|www|http|ftp)(?=\S)", "\\1\u200b", text, flags=re.IGNORECASE)


def code(text: str) -> str:
    """A name as code in Markdown, whatever it holds; safe within a table."""
    text = re.sub(r"\s+", " ", text).replace("|", "\uff5c")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else "` `"


def summary_markdown(summaries: t.Sequence[dict[str, t.Any]], refused: t.Sequence[Refused]) -> str:
    """The answer for each host with its numbers, for a pull request."""
    lines = ["# Should SMT be on here?", ""]
    for summary in summaries:
        lines += _host_markdown(summary)
    if refused:
        lines += ["## Refused", "", *(f"- {code(one.file)}: {plain(one.reason)}" for one in refused), ""]
    return "\n".join(lines)


def _host_markdown(summary: dict[str, t.Any]) -> list[str]:
    told = summary["answer"]
    lines = [f"## {code(summary['host'])}", "", f"**{plain(told['sentence'])}**", "", plain(told["evidence"]), ""]
    sentences = [*filter(None, [told["next"]]), *told["cautions"], *told["costs"], restored_text(summary["restored"])]
    lines += [f"- {plain(words)}" for words in sentences]
    lines.append("")
    if summary["comparisons"]:
        lines += ["| workload | compared | change | verdict | blocks |", "|---|---|---|---|---|"]
        for one in summary["comparisons"]:
            what = EFFECT_TITLES[one["effect"]] + (f", {placement_title(one['placement'])}" if one["kind"] == "change" else "")
            lines.append(f"| {plain(one['title'])} | {plain(what)} | {plain(interval_text(one))} | {one['verdict']} | {one['n']} |")
        lines.append("")
    missing = [*summary["not_measured"], *summary["failures"]]
    if missing:
        lines += ["Not measured:", ""]
        lines += [f"- {plain(', '.join(_key_words(one)))}: {plain(one['reason'])}" for one in missing]
        lines.append("")
    return lines


def _key_words(one: dict[str, t.Any]) -> list[str]:
    words = [one.get("workload"), placement_title(one["placement"]) if one.get("placement") else None,
             charts.condition_title(one["condition"]) if one.get("condition") else None]
    return [word for word in words if word] or ["everything"]


def restored_text(restored: dict[str, t.Any] | None) -> str:
    """The proof, in one sentence, that the host is as it was."""
    if restored is None or restored.get("ok") is None:
        return "Whether the host was put back as it was is not known: the result says nothing of it."
    if restored["ok"]:
        return "The host was read back afterwards and is as it was before."
    return f"The host is NOT as it was before: {'; '.join(restored.get('differences') or ['no details'])}."
