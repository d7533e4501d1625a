# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of FleetLock, the protocol by which Zincati asks for a reboot (docs/development/fleetlock/protocol.md of
coreos/zincati): two requests, which may be repeated, and of which the status 200 alone is a yes.

What a yes is, is decided here; :mod:`exchange` sends the requests.
"""

import json

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._slot import exchange

ACQUIRE, RELEASE = "pre-reboot", "steady-state"
MAX_BYTES = 64 * 1024
_HEADERS = {"fleet-lock-protocol": "true", "Content-Type": "application/json"}


def ask(url: str, endpoint: str, group: str, host: str) -> None:
    """Ask for a slot, or give it back.

    Args:
        url: the server's address, without a slash at its end.
        endpoint: `ACQUIRE` or `RELEASE`.
        group: the group of the host.
        host: the id by which the slot is held.

    Raises:
        RefusedError: the answer is no yes.
    """
    body = json.dumps({"client_params": {"id": host, "group": group}})
    _check(url, exchange.send(url, f"/v1/{endpoint}", body, _HEADERS, MAX_BYTES))


def _check(url: str, reply: exchange.Reply) -> None:
    """See that an answer is a yes of such a server; raise exchange.RefusedError."""
    said = _said(reply.content)
    if reply.status != 200:
        more = "" if said is None else f": {said}" if said else ""
        raise exchange.RefusedError(f"{url} answers with status {reply.status}{more}")
    if said is None:
        raise exchange.RefusedError(
            f"{url} answers with status 200, and not as FleetLock does: is it the address of such a server?"
        )


def _said(content: bytes) -> "str | None":
    """Return what an answer says in words, None where no server of FleetLock says such a thing.

    Servers are known that answer with nothing, with a line of text, and with kind and value in JSON.
    """
    text = content.decode("utf-8", "replace").strip()
    if len(content) > MAX_BYTES or text.startswith("<"):
        return None
    if text[:1] not in ("{", "["):
        return exchange.line(text)
    try:
        found = host_text.parse_json(text)
        if isinstance(found["kind"], str) and isinstance(found["value"], str):
            return exchange.line(found["value"])
    except (ValueError, LookupError, TypeError):
        pass
    return None
