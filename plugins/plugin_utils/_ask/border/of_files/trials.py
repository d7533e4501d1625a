# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schemas of a trial's files: they are kept for years, travel between controllers,
and are checked whenever they are read.
"""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema

SCHEMA_NAME = "threadwise.smt/trial"
SCHEMA_VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
MAX_HOSTS = 10_000
MAX_PERIODS = 10_000
MAX_POINTS = 600

_ARM = schema.text(arms.LONGEST_NAME, arms.NAME)
_METRIC = schema.text(60, r"^[a-z][a-z0-9_]*$")
_VALUE = schema.or_null({"type": "number", "minimum": -1e100, "maximum": 1e100})

# What a trial has had from the beginning.
_REQUIRED = (
    *("run", "created", "design", "seed", "arms", "metrics", "traffic", "guardrails", "margin"),
    *("period_seconds", "settle_seconds", "groups", "waves", "hosts", "left_out"),
)
SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "A trial of arms on live hosts",
    "smt_trial_results/RUN/trial.json on the controller: what was drawn by lot, written before the first switch and"
    " never changed.",
    schema.strict(
        _REQUIRED,
        run=schema.about(schema.text(100, schema.RUN_NAME), "Name of the trial, that of its directory."),
        created=schema.about(schema.MOMENT, "When this file was written, UTC."),
        design=schema.about(
            schema.one_of("switchback", "parallel"),
            "switchback: each host changes its arm; parallel: each host gets one arm.",
        ),
        seed=schema.about(schema.INTEGER, "What was drawn by lot follows from this number."),
        arms=schema.about(
            {
                **schema.items(
                    schema.whole(
                        name=schema.about(_ARM, "Name of the arm."),
                        title=schema.about(schema.text(300), "What it is, for people."),
                    ),
                    8,
                ),
                "minItems": 2,
            },
            "What is compared, the baseline first.",
        ),
        metrics=schema.about(
            {
                **schema.items(
                    schema.whole(
                        name=schema.about(_METRIC, "Name of the metric."),
                        unit=schema.about(schema.text(40), "Unit of its values; empty without one."),
                        better=schema.about(
                            schema.one_of("higher", "lower"), "Whether a higher or a lower value is better."
                        ),
                        primary=schema.about(schema.BOOL, "Whether the trial is decided by it; true for one metric."),
                        per=schema.about(
                            schema.or_null(_METRIC), "Metric that it is divided by in each period; null for none."
                        ),
                    ),
                    50,
                ),
                "minItems": 1,
            },
            "What the service is judged by.",
        ),
        traffic=schema.about(
            schema.or_null(_METRIC), "Metric that says how much the service is asked to do; null where none does."
        ),
        guardrails=schema.about(schema.items(schema.text(500), 50), "What sends a host back at once, a sentence each."),
        margin=schema.about(
            {"type": "number", "minimum": 0, "maximum": 0.5}, "Effects within this share count as none, 0.01 is 1 %."
        ),
        period_seconds=schema.about(schema.SECONDS, "Length of a period, in seconds."),
        settle_seconds=schema.about(schema.SECONDS, "What is not counted at the beginning of each period, in seconds."),
        looks_back_seconds=schema.about(
            schema.SECONDS,
            "How far back a value of a metric counts samples, at most, in seconds. Missing in trials of 1.0.0, which"
            " did not know it.",
        ),
        groups=schema.about(
            schema.items({**schema.items(schema.NAME, 8), "minItems": 1}, MAX_HOSTS),
            "Hosts that are compared with each other.",
        ),
        waves=schema.about(
            schema.items(schema.items(schema.count(MAX_HOSTS), MAX_HOSTS), MAX_HOSTS),
            "Groups, by their place in groups from 0, that are measured at the same time; one wave follows the other.",
        ),
        hosts=schema.about(
            schema.mapping(
                schema.whole(
                    first_period=schema.about(schema.count(), "Number of its first period, from 0."),
                    arms=schema.about({**schema.items(_ARM, MAX_PERIODS), "minItems": 1}, "Its arm in each period."),
                ),
                MAX_HOSTS,
            ),
            "Name of a host -> its schedule.",
        ),
        left_out=schema.about(schema.mapping(schema.TEXT, MAX_HOSTS), "Name of a host that has no part -> the reason."),
    ),
)
TRIAL = schema.Checker(SCHEMA)
PERIOD = schema.Checker(
    schema.whole(
        period=schema.count(),
        block=schema.count(),
        arm=_ARM,
        started=schema.MOMENT,
        counted_from=schema.MOMENT,
        ended=schema.MOMENT,
        complete=schema.BOOL,
        reason=schema.or_null(schema.TEXT),
        metrics=schema.mapping(
            schema.whole(
                value=_VALUE, points=schema.count(), expected=schema.count(), reason=schema.or_null(schema.TEXT)
            ),
            50,
            r"^[a-z][a-z0-9_]{0,59}$",
        ),
        series=schema.mapping(
            schema.items({"type": "array", "items": _VALUE, "minItems": 2, "maxItems": 2}, MAX_POINTS),
            50,
            r"^[a-z][a-z0-9_]{0,59}$",
        ),
        events=schema.items(schema.whole(at=schema.MOMENT, event=schema.text(60), detail=schema.TEXT), 1000),
    )
)
ENDED = schema.Checker(
    schema.whole(
        host=schema.NAME,
        ended=schema.MOMENT,
        reason=schema.or_null(schema.TEXT),
        restored=schema.BOOL,
        before=schema.or_null(schema.CPU_LIST),
        after=schema.or_null(schema.CPU_LIST),
    )
)
STOPPED = schema.Checker(schema.whole(reason=schema.TEXT))
LOOK = schema.Checker(
    schema.whole(
        at=schema.MOMENT,
        units=schema.count(),
        share={"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        decided=schema.mapping(schema.one_of("gain", "loss", "equivalent", "futile"), 8, arms.NAME),
    )
)
