# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""results.json: everything that was made of each result; docs/results.schema.json says what that is."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats.base import SCHEMA_NAME, SCHEMA_VERSION, Format, Host, Refused


def _host(host: Host) -> str:
    """Format a host's summary as JSON; the samples stay in the host's file, named by ``file``."""
    return json.dumps(host.summary, sort_keys=True, allow_nan=False)


def _tail(refused: t.Sequence[Refused]) -> str:
    """Return the end of results.json, after the hosts."""
    entries = json.dumps([dataclasses.asdict(one) for one in refused], sort_keys=True)
    return f'\n],\n"refused": {entries},\n"schema": "{SCHEMA_NAME}",\n"schema_version": {SCHEMA_VERSION}}}\n'


FORMAT = Format(name="results.json", head='{"hosts": [\n', between=",\n", host=_host, tail=_tail)
