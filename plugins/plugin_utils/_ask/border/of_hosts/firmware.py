# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts ``smt_firmware`` of a host, which nothing on the controller reads: they are checked, and stay data."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema

_INTEGER = schema.or_null(schema.INTEGER)
_SENTENCE = schema.text(4000)
_SENTENCES = schema.items(_SENTENCE, 1000)
_NAME = schema.or_null(schema.text(200, schema.ONE_LINE))
_VALUE = schema.or_null(schema.text(100, schema.ONE_LINE))
_STATE = schema.one_of("enabled", "disabled", "auto", "unknown")
FIRMWARE = schema.whole(
    vendor=_NAME,
    redfish_version=_NAME,
    systems=schema.items(
        schema.whole(
            id=schema.text(100, schema.ONE_LINE),
            manufacturer=_NAME,
            model=_NAME,
            bios_version=_NAME,
            power=_NAME,
            attribute=_VALUE,
            value=_VALUE,
            state=_STATE,
            staged_value=_VALUE,
            staged=schema.or_null(_STATE),
            allowed=schema.items(schema.text(100, schema.ONE_LINE), 100),
            core_limits=schema.items(
                schema.whole(attribute=schema.text(100, schema.ONE_LINE), value=schema.text(100, schema.ONE_LINE)),
                20,
            ),
            processors=schema.whole(sockets=_INTEGER, cores=_INTEGER, threads=_INTEGER),
            tasks=schema.whole(enabled=schema.or_null(_SENTENCE), disabled=schema.or_null(_SENTENCE)),
            problems=_SENTENCES,
        ),
        100,
    ),
    agrees=schema.or_null(schema.BOOL),
    findings=schema.items(
        schema.whole(
            system=_VALUE,
            about=schema.one_of("staged", "kernel", "cores", "inventory", "power", "system"),
            sentence=_SENTENCE,
        ),
        1000,
    ),
    problems=_SENTENCES,
)
