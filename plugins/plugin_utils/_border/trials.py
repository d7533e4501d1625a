# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schemas of a trial's files: they are kept for years, travel between controllers, and are checked whenever they are read."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results, schema

SCHEMA_NAME = "threadwise.smt/trial"
SCHEMA_VERSION = 1
MOST_BYTES = 64 * 1024 * 1024
MOST_HOSTS = 10_000
MOST_PERIODS = 10_000
MOST_POINTS = 600

_ARM = schema.text(arms.LONGEST_NAME, arms.NAME)
_METRIC = schema.text(60, r"^[a-z][a-z0-9_]*$")
_VALUE = schema.or_null({"type": "number", "minimum": -1e100, "maximum": 1e100})

TRIAL = schema.Checker(
    schema.whole(
        schema={"const": SCHEMA_NAME},
        schema_version={"const": SCHEMA_VERSION},
        run=schema.text(100, results.RUN_NAME),
        created=schema.MOMENT,
        design=schema.one_of("switchback", "parallel"),
        seed=schema.INTEGER,
        arms={**schema.items(schema.whole(name=_ARM, title=schema.text(300)), 8), "minItems": 2},
        metrics={
            **schema.items(
                schema.whole(
                    name=_METRIC,
                    unit=schema.text(40),
                    better=schema.one_of("higher", "lower"),
                    primary=schema.BOOL,
                    per=schema.or_null(_METRIC),
                ),
                50,
            ),
            "minItems": 1,
        },
        traffic=schema.or_null(_METRIC),
        guardrails=schema.items(schema.text(500), 50),
        margin={"type": "number", "minimum": 0, "maximum": 0.5},
        period_seconds=schema.SECONDS,
        settle_seconds=schema.SECONDS,
        groups=schema.items({**schema.items(schema.NAME, 8), "minItems": 1}, MOST_HOSTS),
        waves=schema.items(schema.items(schema.count(MOST_HOSTS), MOST_HOSTS), MOST_HOSTS),
        hosts=schema.mapping(
            schema.whole(first_period=schema.count(), arms={**schema.items(_ARM, MOST_PERIODS), "minItems": 1}),
            MOST_HOSTS,
        ),
        left_out=schema.mapping(schema.TEXT, MOST_HOSTS),
    )
)
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
            schema.whole(value=_VALUE, points=schema.count(), expected=schema.count(), reason=schema.or_null(schema.TEXT)),
            50,
            r"^[a-z][a-z0-9_]{0,59}$",
        ),
        series=schema.mapping(
            schema.items({"type": "array", "items": _VALUE, "minItems": 2, "maxItems": 2}, MOST_POINTS),
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
        before=schema.CPU_LIST,
        after=schema.or_null(schema.CPU_LIST),
    )
)
LOOK = schema.Checker(
    schema.whole(
        at=schema.MOMENT,
        units=schema.count(),
        share={"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        decided=schema.mapping(schema.one_of("gain", "loss", "equivalent", "futile"), 8, arms.NAME),
    )
)
