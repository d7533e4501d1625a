# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The published schema of what a trial's report says, for programs.

This collection writes such files and reads none.
"""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import records
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

SCHEMA_NAME, SCHEMA_VERSION = "threadwise.smt/trial-report", 1

_RATIO = schema.or_null({"type": "number", "minimum": 0})
_CHANGE = schema.or_null({"type": "number", "minimum": -1})
_VERDICTS = (verdicts.GAIN, verdicts.LOSS, verdicts.EQUIVALENT, verdicts.INCONCLUSIVE)
_VERDICT = schema.one_of(*_VERDICTS)
_SENTENCES = {"type": "array", "items": {"type": "string"}}
_COUNT = {"type": "integer", "minimum": 0}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
# As paired.compare_family returns it.
_INTERVAL = {
    "ratio": schema.about(
        _RATIO,
        "The candidate's value / the baseline's, turned so that above 1 is better whichever way the metric points.",
    ),
    "ci_low": schema.about(_RATIO, "Lower end of its interval; null where there is none."),
    "ci_high": schema.about(_RATIO, "Upper end of its interval; null where there is none."),
    "confidence": schema.about(_SHARE, "Confidence of the whole family."),
    "interval_confidence": schema.about(_SHARE, "Confidence of this interval."),
    "change": schema.about(
        {"type": "number", "minimum": -1}, "The metric's own change, as a share of the baseline's value: 0.2 is +20 %."
    ),
    "change_low": schema.about(_CHANGE, "Lower end of its interval; null where there is none."),
    "change_high": schema.about(_CHANGE, "Upper end of its interval; null where there is none."),
    "effect": schema.about(
        schema.one_of(*map(wording.VERDICT_TITLES.get, _VERDICTS)),
        "What the verdict means for the service, the word beside the change.",
    ),
    "n": schema.about(_COUNT, "Number of observations."),
    "margin": schema.about(_SHARE, "Effects within this share count as none."),
    "minimum_detectable": schema.about(
        schema.or_null({"type": "number", "minimum": 0}),
        "Effect that would have been called in 90 % of such trials, as a share.",
    ),
    "verdict": schema.about(_VERDICT, "What that says; docs/verdicts.md explains it."),
    "method": schema.about({"type": "string"}, "How the interval was computed."),
    "p_value": schema.about(_SHARE, "Of no effect, by itself."),
    "p_adjusted": schema.about(_SHARE, "Of no effect, for the family and all looks."),
    "family": schema.about(_COUNT, "Number of comparisons in the family."),
    "looks": schema.about(_COUNT, "Number of planned looks so far."),
}
_COMPARISON = schema.whole(
    metric=schema.about({"type": "string"}, "Name of the metric."),
    unit=schema.about({"type": "string"}, "Unit of its values; empty without one."),
    better=schema.about(schema.one_of("higher", "lower"), "Whether a higher or a lower value is better."),
    primary=schema.about(schema.BOOL, "Whether the trial is decided by it."),
    per=schema.about(schema.or_null({"type": "string"}), "Metric that it is divided by in each period; null for none."),
    baseline=schema.about({"type": "string"}, "Name of the arm that it is compared with."),
    candidate=schema.about({"type": "string"}, "Name of the arm."),
    points=schema.about(
        {"type": "array", "items": {"type": "number", "minimum": 0}},
        "The ratio of each observation, turned as the ratio.",
    ),
    hosts=schema.about(_COUNT, "Number of hosts that have a value of it in both arms."),
    turned_by=schema.about(
        {"type": "object", "additionalProperties": _VERDICT},
        "Each host that alone turns the verdict: name -> what the others say without it; empty where no host does, or"
        " nothing is decided.",
    ),
    more_hosts=schema.about(
        schema.or_null({"type": "integer", "minimum": 1}),
        "How many more hosts it takes until none turns it alone, if they are like the others; null where none does, or"
        " where no number is known.",
    ),
    adjusted=schema.about(
        {**schema.whole(**_INTERVAL), "type": ["object", "null"]},
        "The same without what goes along with the traffic; null where no traffic is named.",
    ),
    **_INTERVAL,
)
SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "What a trial of arms on live hosts says",
    "smt_trial_results/RUN/results.json on the controller; also while the trial runs, of what is known by then.",
    schema.whole(
        trial=schema.about(records.SCHEMA, "The trial, as in trial.json."),
        answer=schema.about(_SENTENCES, "The answer, a sentence for each candidate."),
        others=schema.about(
            _SENTENCES,
            "Sentences about metrics that point different ways, about each other metric, and about periods without a"
            " value.",
        ),
        comparisons=schema.about(
            {"type": "array", "items": _COMPARISON}, "Each metric of each candidate with the baseline."
        ),
    ),
)
