# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""metrics.prom: the conclusions as metrics, for the textfile collector of node_exporter."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    limits,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import advice
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import Format, HostReport

# Bytes of a metric's lines that stay in memory before they go to disk.
MAX_HELD = 1024 * 1024
# Name -> help text. Gauges without time stamps: node_exporter's textfile collector accepts nothing else.
METRICS = {
    "threadwise_smt_ratio": "SMT off by SMT on, every online thread busy; above 1 SMT off is better in this metric",
    "threadwise_smt_ratio_low": "lower end of the interval of threadwise_smt_ratio",
    "threadwise_smt_ratio_high": "upper end of the interval of threadwise_smt_ratio",
    "threadwise_smt_change": "the metric's own change with SMT off, as a share: -0.1 is 10 % less, better or worse",
    "threadwise_smt_change_low": "lower end of the interval of threadwise_smt_change",
    "threadwise_smt_change_high": "upper end of the interval of threadwise_smt_change",
    "threadwise_smt_verdict": "1 for the verdict that was reached: gain, loss, equivalent or inconclusive",
    "threadwise_smt_arm_ratio": (
        "another arm than SMT on and off by its baseline, at the widest placement measured; above 1 the arm is better"
        " in this metric"
    ),
    "threadwise_smt_arm_ratio_low": "lower end of the interval of threadwise_smt_arm_ratio",
    "threadwise_smt_arm_ratio_high": "upper end of the interval of threadwise_smt_arm_ratio",
    "threadwise_smt_arm_change": "the metric's own change with the arm, as a share, as threadwise_smt_change",
    "threadwise_smt_arm_change_low": "lower end of the interval of threadwise_smt_arm_change",
    "threadwise_smt_arm_change_high": "upper end of the interval of threadwise_smt_arm_change",
    "threadwise_smt_arm_verdict": "1 for the verdict that was reached: gain, loss, equivalent or inconclusive",
    "threadwise_smt_most_load": "the most load of a workload within its limit of response times, of those measured",
    "threadwise_smt_recommendation": "1 for the choice that is recommended",
    "threadwise_smt_restored": "1 when the host was read back as it was before the run, 0 when not",
    "threadwise_smt_vulnerable": "number of vulnerabilities that the kernel calls open because of SMT",
    "threadwise_smt_finished_timestamp_seconds": "when the run ended on the host, in seconds since 1970",
}
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places


def _host(report: HostReport) -> str:
    """Return a host's lines; unknown values have no line."""
    summary, restored = report.summary, report.summary.result.restored
    host = {"host": summary.result.host, "hardware_class": summary.hardware_class or ""}
    lines: list[str] = []

    def add(name: str, value: float | None, **labels: str) -> None:
        if value is not None:
            pairs = ",".join(f'{key}="{label(text)}"' for key, text in {**host, **labels}.items())
            lines.append(f"{name}{{{pairs}}} {value!r}\n")

    def add_comparison(comparison: Comparison, name: str, **labels: str) -> None:
        labels.update(
            workload=comparison.workload,
            metric=comparison.metric,
            primary=str(comparison.primary).lower(),
            **({} if comparison.parameter is None else {"parameter": f"{comparison.parameter:.12g}"}),
        )
        add(f"{name}_ratio", comparison.ratio, **labels)
        add(f"{name}_ratio_low", comparison.ci_low, **labels)
        add(f"{name}_ratio_high", comparison.ci_high, **labels)
        # A most load is compared the other way round: of it there are both values.
        for part, value in comparison.change.described().items() if comparison.metric != limits.MOST_LOAD else ():
            add(f"{name}_{part}", value, **labels)
        add(f"{name}_verdict", 1, **labels, verdict=comparison.verdict)

    for comparison in host_comparisons.of_smt(summary.analysis.comparisons, every_metric=True):
        add_comparison(comparison, "threadwise_smt")
    for comparison in host_comparisons.of_other_arms(summary.analysis.comparisons, every_metric=True):
        add_comparison(
            comparison,
            "threadwise_smt_arm",
            arm=comparison.effect,
            baseline=comparison.baseline.arm,
            placement=comparison.placement,
        )
    for level in summary.analysis.levels:
        if level.metric == limits.MOST_LOAD:
            labels = {name: getattr(level, name) for name in ("workload", "arm", "placement")}
            add("threadwise_smt_most_load", level.value, **labels)
    if summary.concerns_smt:
        add("threadwise_smt_recommendation", 1, choice=summary.recommendation.choice)
    add(
        "threadwise_smt_restored",
        None if restored is None or restored.ok is None else int(restored.ok),
    )
    add("threadwise_smt_vulnerable", len(summary.vulnerable) if summary.vulnerable is not None else None)
    add("threadwise_smt_finished_timestamp_seconds", advice.moment(summary.result.finished))
    return "".join(lines)


@contextlib.contextmanager
def _by_metric(lines: t.IO[bytes]) -> t.Iterator[t.IO[bytes]]:
    """Put the lines of each metric together, as the format demands, below its help text."""
    with contextlib.ExitStack() as stack:
        streams = {name: stack.enter_context(tempfile.SpooledTemporaryFile(MAX_HELD)) for name in METRICS}
        lines.seek(0)
        for line in lines:
            streams[line.partition(b"{")[0].decode("ascii")].write(line)
        whole = stack.enter_context(tempfile.SpooledTemporaryFile(MAX_HELD))
        for name, stream in streams.items():
            if stream.tell():
                whole.write(f"# HELP {name} {METRICS[name]}\n# TYPE {name} gauge\n".encode())
                stream.seek(0)
                shutil.copyfileobj(stream, whole)
        whole.write(b"# EOF\n")
        yield whole


def label(text: str) -> str:
    """Return a text as the value of a label."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


FORMAT = Format(
    name="metrics.prom",
    about="monitoring: OpenMetrics text, for node_exporter's textfile collector",
    sign=places.METRICS_SIGN,
    host=_host,
    finish=_by_metric,
)
