# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's part of each combined text file: CSV, Markdown, JSON, OpenMetrics.

CSV cells cannot start a formula; Markdown and metric labels are escaped. Each part is separate, so that a fleet's files are assembled without the
whole fleet in memory.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons as host_comparisons, conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import text as report_text

SCHEMA_NAME = "threadwise.smt/report"
SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Refused:
    """A result file that is not used, with the reason."""

    file: str
    reason: str


# CSV

SAMPLE_COLUMNS = {
    "run": "VARCHAR",
    "host": "VARCHAR",
    "hardware_class": "VARCHAR",
    "workload": "VARCHAR",
    "placement": "VARCHAR",
    "condition": "VARCHAR",
    "block": "BIGINT",
    "index": "BIGINT",
    "ok": "BOOLEAN",
    "metric": "VARCHAR",
    "value": "DOUBLE",
    "unit": "VARCHAR",
    "better": "VARCHAR",
    "point": "DOUBLE",
    "point_name": "VARCHAR",
    "workers": "BIGINT",
    "wall_seconds": "DOUBLE",
    "steal": "DOUBLE",
    "started": "VARCHAR",
    "error": "VARCHAR",
}
COMPARISON_COLUMNS = (
    "run",
    "host",
    "hardware_class",
    "workload",
    "metric",
    "unit",
    "better",
    "kind",
    "effect",
    "placement",
    "point",
    "baseline_condition",
    "baseline_placement",
    "candidate_condition",
    "candidate_placement",
    "baseline_value",
    "candidate_value",
    "ratio",
    "ci_low",
    "ci_high",
    "confidence",
    "n",
    "dropped_blocks",
    "margin",
    "minimum_detectable",
    "verdict",
    "p_adjusted",
    "method",
)
# Characters that start a formula in a spreadsheet (OWASP, CSV injection), including full-width characters.
_FORMULA = re.compile(r"^[\s]*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")


def cell(value: t.Any) -> t.Any:
    """Return a value for a CSV cell: an apostrophe goes in front of a text that a spreadsheet would run as a formula."""
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return value


def csv_text(rows: t.Iterable[t.Iterable[t.Any]]) -> str:
    """Format rows as CSV with unescaped texts."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def safe_rows(rows: list[list[t.Any]]) -> list[list[t.Any]]:
    """Return rows that are safe for a spreadsheet; the same object where no cell starts a formula."""
    texts = {value for row in rows for value in row if isinstance(value, str)}
    return [[cell(value) for value in row] for row in rows] if any(map(_FORMULA.match, texts)) else rows


def sample_rows(result: dict[str, t.Any]) -> list[list[t.Any]]:
    """Return one row per sample, with the columns of :data:`SAMPLE_COLUMNS`."""
    about = (result["run"], result["host"], result["facts"].get("hardware_class"))
    rows = []
    for sample in result["samples"]:
        metric, point = sample["metric"] or {}, sample.get("point") or {}
        rows.append(
            [
                *about,
                sample["workload"],
                sample["placement"],
                sample["condition"],
                sample["block"],
                sample.get("index"),
                sample["ok"],
                metric.get("name"),
                metric.get("value"),
                metric.get("unit"),
                metric.get("better"),
                point.get("value"),
                point.get("name"),
                len(sample.get("workers") or []),
                sample.get("wall_seconds"),
                sample.get("steal"),
                sample.get("started"),
                sample.get("error"),
            ]
        )
    return rows


def comparison_rows(summary: dict[str, t.Any]) -> list[list[t.Any]]:
    """Return one row per comparison, with the columns of :data:`COMPARISON_COLUMNS`."""
    return [_comparison_row(summary, one) for one in summary["comparisons"]]


def _comparison_row(summary: dict[str, t.Any], one: dict[str, t.Any]) -> list[t.Any]:
    sides = {f"{side}_{key}": one[side][key] for side in ("baseline", "candidate") for key in ("condition", "placement")}
    values = {**{key: summary[key] for key in ("run", "host", "hardware_class")}, **one, **sides}
    return [values.get(column) for column in COMPARISON_COLUMNS]


# JSON


def json_text(summary: dict[str, t.Any]) -> str:
    """Format a host's summary as JSON; the samples stay in the host's file, named by ``file``."""
    return json.dumps(summary, sort_keys=True, allow_nan=False)


# Start of results.json, before the comma-separated hosts.
JSON_HEAD = '{"hosts": [\n'


def json_tail(refused: t.Sequence[Refused]) -> str:
    """Return the end of results.json, after the hosts."""
    entries = json.dumps([dataclasses.asdict(one) for one in refused], sort_keys=True)
    return f'\n],\n"refused": {entries},\n"schema": "{SCHEMA_NAME}",\n"schema_version": {SCHEMA_VERSION}}}\n'


# Markdown


def plain(text: str) -> str:
    """Escape text for Markdown: no markup, no HTML, no mention of users."""
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"([\\`*_{}\[\]<>()#+!|~&-])", r"\\\1", text)
    # GitHub turns @name into a notification and www. and http: into links even without markup; a zero-width space in between prevents both.
    return re.sub(r"(@|www|http|ftp)(?=\S)", "\\1\u200b", text, flags=re.IGNORECASE)


def code(text: str) -> str:
    """Format a name as code in Markdown, whatever it contains; safe within a table."""
    text = re.sub(r"\s+", " ", text).replace("|", "\uff5c")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else "` `"


def host_markdown(summary: dict[str, t.Any]) -> str:
    """Format the conclusion for a host with its numbers, for a pull request."""
    concluded = summary["conclusion"]
    lines = [f"## {code(summary['host'])}", "", f"**{plain(concluded['sentence'])}**", "", plain(concluded["basis"]), ""]
    sentences = [*filter(None, [concluded["next"]]), *concluded["cautions"], *concluded["costs"], report_text.restored(summary["restored"])]
    lines += [f"- {plain(one)}" for one in sentences]
    lines.append("")
    if summary["comparisons"]:
        lines += ["| workload | compared | change | verdict | blocks |", "|---|---|---|---|---|"]
        for one in summary["comparisons"]:
            cells = [one["title"], report_text.compared(one), report_text.change_and_interval(one)]
            lines.append(f"| {' | '.join(map(plain, cells))} | {one['verdict']} | {one['n']} |")
        lines.append("")
    missing = [*summary["not_measured"], *summary["failures"]]
    if missing:
        lines += ["Not measured:", ""]
        lines += [f"- {plain(', '.join(report_text.key_parts(one)))}: {plain(one['reason'])}" for one in missing]
        lines.append("")
    return "\n".join(lines) + "\n"


def refused_markdown(refused: t.Sequence[Refused]) -> str:
    """List the unused result files, for the end of the summary."""
    return "\n".join(["## Refused", "", *(f"- {code(one.file)}: {plain(one.reason)}" for one in refused), ""]) if refused else ""


# OpenMetrics

# Name -> help text. Gauges without time stamps: node_exporter's textfile collector accepts nothing else.
METRICS = {
    "threadwise_smt_ratio": "work with SMT off by work with SMT on, every online thread busy; above 1 SMT off does more",
    "threadwise_smt_ratio_low": "lower end of the interval of threadwise_smt_ratio",
    "threadwise_smt_ratio_high": "upper end of the interval of threadwise_smt_ratio",
    "threadwise_smt_verdict": "1 for the verdict that was reached: gain, loss, equivalent or inconclusive",
    "threadwise_smt_policy_ratio": "work with another setting than SMT by work as found, at the widest placement measured; above 1 the setting does more",
    "threadwise_smt_policy_ratio_low": "lower end of the interval of threadwise_smt_policy_ratio",
    "threadwise_smt_policy_ratio_high": "upper end of the interval of threadwise_smt_policy_ratio",
    "threadwise_smt_policy_verdict": "1 for the verdict that was reached: gain, loss, equivalent or inconclusive",
    "threadwise_smt_recommendation": "1 for the choice that is recommended",
    "threadwise_smt_restored": "1 when the host was read back as it was before the run, 0 when not",
    "threadwise_smt_vulnerable": "number of vulnerabilities that the kernel calls open because of SMT",
    "threadwise_smt_finished_timestamp_seconds": "when the run ended on the host, in seconds since 1970",
}


def metric_lines(summary: dict[str, t.Any]) -> dict[str, list[str]]:
    """Return a host's lines of each metric, by name; unknown values have no line."""
    host = {"host": summary["host"], "hardware_class": summary["hardware_class"] or ""}
    lines: dict[str, list[str]] = {}

    def add(name: str, value: float | None, **labels: str) -> None:
        if value is not None:
            pairs = ",".join(f'{key}="{_label(text)}"' for key, text in {**host, **labels}.items())
            lines.setdefault(name, []).append(f"{name}{{{pairs}}} {value!r}\n")

    def add_comparison(one: dict[str, t.Any], name: str, **labels: str) -> None:
        labels.update(workload=one["workload"], **({} if one.get("point") is None else {"point": f"{one['point']:.12g}"}))
        add(f"{name}_ratio", one["ratio"], **labels)
        add(f"{name}_ratio_low", one["ci_low"], **labels)
        add(f"{name}_ratio_high", one["ci_high"], **labels)
        add(f"{name}_verdict", 1, **labels, verdict=one["verdict"])

    for one in host_comparisons.primary(summary["comparisons"]):
        add_comparison(one, "threadwise_smt")
    for one in host_comparisons.of_policy(summary["comparisons"]):
        add_comparison(one, "threadwise_smt_policy", policy=one["candidate"]["condition"], placement=one["placement"])
    if summary["recommendation"]["policy"] is None:
        add("threadwise_smt_recommendation", 1, choice=summary["recommendation"]["choice"])
    add("threadwise_smt_restored", None if not summary["restored"] or summary["restored"].get("ok") is None else int(summary["restored"]["ok"]))
    add("threadwise_smt_vulnerable", len(summary["vulnerable"]) if summary["vulnerable"] is not None else None)
    add("threadwise_smt_finished_timestamp_seconds", conclusion.moment(summary["finished"]))
    return lines


def metrics_head(name: str) -> str:
    """Return the header lines of a metric."""
    return f"# HELP {name} {METRICS[name]}\n# TYPE {name} gauge\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
