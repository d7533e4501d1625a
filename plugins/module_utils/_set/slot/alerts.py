# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Alerts that forbid a reboot: what a query finds at a server of Prometheus (``POST /api/v1/query`` of its HTTP API).

Whoever cannot be asked forbids it too: a server is often gone when something is wrong.
"""

import typing as t
import urllib.parse

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import exchange
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.request import Alerts

MAX_BYTES = 1024 * 1024
MAX_NAMED = 3
_HEADERS = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


def ask(alerts: Alerts) -> None:
    """See that no alert forbids a reboot.

    Raises:
        RefusedError: one does, or it is not known.
    """
    url = alerts.prometheus
    body = urllib.parse.urlencode({"query": alerts.query})
    reply = exchange.send(url, "/api/v1/query", body, _HEADERS, MAX_BYTES)
    if len(reply.content) > MAX_BYTES:
        raise exchange.RefusedError(f"alerts are not known: {url} answers with more than {MAX_BYTES // 1024} KiB")
    try:
        answer = host_text.parse_json(reply.content.decode("utf-8", "replace"))
        status = answer["status"]
    except (ValueError, LookupError, TypeError):
        raise exchange.RefusedError(
            f"alerts are not known: {url} answers with status {reply.status}, and not as Prometheus does"
        ) from None
    if reply.status != 200 or status != "success":
        raise exchange.RefusedError(f"alerts are not known: {url} says {exchange.line(answer.get('error'))}")
    try:
        kind, results = answer["data"]["resultType"], answer["data"]["result"]
        if not isinstance(results, list):
            raise TypeError("whatever it is, it is no list of results")
        names = [_name(series["metric"]) for series in results] if kind == "vector" else []
    except (LookupError, TypeError, AttributeError):
        raise exchange.RefusedError(f"alerts are not known: {url} does not answer as Prometheus does") from None
    partial = _partial(answer)
    if partial:
        raise exchange.RefusedError(f"alerts are not all known: {url} says {partial}")
    if kind != "vector":
        raise exchange.RefusedError(
            f"alerts are not known: query gives a {exchange.line(kind)}, and a list of alerts is needed"
        )
    if names:
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        raise exchange.RefusedError(f"alerts forbid it: {', '.join(names[:MAX_NAMED])}{more} ({url})")


def _partial(answer: "t.Dict[str, t.Any]") -> str:
    """Return why an answer may lack alerts, empty where it does not: servers in front of others say so.

    VictoriaMetrics sets ``isPartial``; Thanos warns. Prometheus' own warnings of how a query is written begin with
    ``PromQL`` (util/annotations/annotations.go), and leave nothing out.
    """
    if answer.get("isPartial") is True:
        return "that its answer is partial"
    warnings = answer.get("warnings")
    if warnings is None:
        return ""
    messages = [str(warning) for warning in warnings] if isinstance(warnings, list) else [str(warnings)]
    return next((exchange.line(warning) for warning in messages if not warning.startswith("PromQL")), "")


def _name(metric: "t.Dict[str, t.Any]") -> str:
    """Return what a result is called: its alert and where that is, as far as it says so."""
    name, where = metric.get("alertname", metric.get("__name__", "a result without a name")), metric.get("instance")
    return exchange.line(f"{name} of {where}" if where else name)
