# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of FleetLock, the protocol by which Zincati asks for a reboot (docs/development/fleetlock/protocol.md of
coreos/zincati): two requests, which may be repeated, and of which the status 200 alone is a yes.

What a yes is, is decided here; :mod:`exchange` sends the requests.
"""

import json
import random
import time

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import exchange

ACQUIRE, RELEASE = "pre-reboot", "steady-state"
MAX_BYTES = 64 * 1024
# Where requests of two hosts of a group cross, airlock answers one of them with 500, "conflict on semaphore detected".
# It does so also where it gives a slot back, and hosts of one play do that in the same moment. The pauses before it is
# asked again, and after how long that ends.
AGAIN_PAUSES, AGAIN_SECONDS = (0.2, 0.4, 0.8, 1.6, 3.2), 10.0
_HEADERS = {"fleet-lock-protocol": "true", "Content-Type": "application/json"}


def ask(url: str, endpoint: str, group: str, host: str) -> None:
    """Ask for a slot, once, or give it back, which is asked again for some seconds where the server has a fault.

    A request for a slot is not: airlock answers 500 where all slots are taken too, and whoever wants one waits longer.

    Args:
        url: the server's address, without a slash at its end.
        endpoint: `ACQUIRE` or `RELEASE`.
        group: the group of the host.
        host: the id by which the slot is held.

    Raises:
        RefusedError: the answer is no yes.
    """
    body = json.dumps({"client_params": {"id": host, "group": group}})
    begun = time.monotonic()
    for pause in (*(AGAIN_PAUSES if endpoint == RELEASE else ()), None):
        reply = exchange.send(url, f"/v1/{endpoint}", body, _HEADERS, MAX_BYTES)
        if pause is None or reply.status < 500 or time.monotonic() - begun + pause > AGAIN_SECONDS:
            break
        time.sleep(pause * random.uniform(0.5, 1.5))
    _check(url, reply)


def _check(url: str, reply: exchange.Reply) -> None:
    """See that an answer is a yes of such a server; raise exchange.RefusedError."""
    message = _words(reply.content)
    if reply.status != 200:
        more = "" if message is None else f": {message}" if message else ""
        raise exchange.RefusedError(f"{url} answers with status {reply.status}{more}")
    if message is None:
        raise exchange.RefusedError(
            f"{url} answers with status 200, and not as FleetLock does: is it the address of such a server?"
        )


def _words(content: bytes) -> "str | None":
    """Return what an answer says in words, None where no server of FleetLock says such a thing.

    Servers are known that answer with nothing, with a line of text, and with kind and value in JSON.
    """
    text = content.decode("utf-8", "replace").strip()
    if len(content) > MAX_BYTES or text.startswith("<"):
        return None
    if text[:1] not in ("{", "["):
        return exchange.line(text)
    try:
        document = host_text.parse_json(text)
        if isinstance(document["kind"], str) and isinstance(document["value"], str):
            return exchange.line(document["value"])
    except (ValueError, LookupError, TypeError):
        pass
    return None
