# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""results.json: everything that was made of each result; docs/results.schema.json says what that is."""

from __future__ import annotations

import dataclasses
import json

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import (
    SCHEMA_NAME,
    SCHEMA_VERSION,
    Ending,
    Format,
    HostReport,
)


def _host(host: HostReport) -> str:
    """Format a host's summary as JSON; the samples stay in the host's file, named by ``file``."""
    return json.dumps(host.summary.described(), sort_keys=True, allow_nan=False)


def _tail(ending: Ending) -> str:
    """Return the end of results.json, after the hosts."""
    classes = json.dumps([group.described() for group in ending.classes], sort_keys=True, allow_nan=False)
    entries = json.dumps([dataclasses.asdict(entry) for entry in ending.refused], sort_keys=True)
    return (
        f'\n],\n"classes": {classes},\n"refused": {entries},\n"schema": "{SCHEMA_NAME}",\n"schema_version":'
        f" {SCHEMA_VERSION}}}\n"
    )


FORMAT = Format(
    name="results.json",
    about=(
        "a program: conclusion, recommendation, comparisons, means, what is missing, proof of restoring, for each host."
        f" [Its schema](results.schema.json) is `{SCHEMA_NAME}`, version {SCHEMA_VERSION} ([files.md](files.md))"
    ),
    sign=places.DOCUMENT_SIGN,
    head='{"hosts": [\n',
    between=",\n",
    host=_host,
    tail=_tail,
)
