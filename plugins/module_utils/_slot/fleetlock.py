# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of FleetLock, the protocol by which Zincati asks for a reboot (docs/development/fleetlock/protocol.md of
coreos/zincati): two requests, which may be repeated, and of which the status 200 alone is a yes.

Nothing that a server answers is trusted: whatever it does, within a limit of time a caller has a yes or a reason.
Redirects are not followed, and proxies of the environment are not used: who answers is who was named.
"""

import contextlib
import http.client
import json
import socket
import ssl
import threading
import typing as t
import urllib.parse

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._slot.settings import SlotError

ACQUIRE, RELEASE = "pre-reboot", "steady-state"
# Each wait for a part of an answer, and all of it.
WAIT_SECONDS, ANSWER_SECONDS = 10.0, 30.0
MAX_BYTES = 64 * 1024
_HEADERS = {"fleet-lock-protocol": "true", "Content-Type": "application/json", "Connection": "close"}


class RefusedError(SlotError):
    """A slot is not granted, or not known to be given back; the message is the reason."""


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
    parts = urllib.parse.urlsplit(url)
    body = json.dumps({"client_params": {"id": host, "group": group}})
    connection = (
        http.client.HTTPSConnection(
            t.cast(str, parts.hostname), parts.port, timeout=WAIT_SECONDS, context=ssl.create_default_context()
        )
        if parts.scheme == "https"
        else http.client.HTTPConnection(t.cast(str, parts.hostname), parts.port, timeout=WAIT_SECONDS)
    )
    with contextlib.closing(connection), _Limit(connection) as limit:
        try:
            connection.connect()
            limit.sockets.append(connection.sock)
            connection.request("POST", f"{parts.path}/v1/{endpoint}", body, _HEADERS)
            response = connection.getresponse()
            content = response.read(MAX_BYTES + 1)
        except socket.timeout:
            raise RefusedError(f"{url} does not answer: nothing came for {WAIT_SECONDS:.0f} s") from None
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", None) or error.reason or error
            raise RefusedError(f"{url} cannot be trusted: {_line(why)}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if limit.is_over:
                raise RefusedError(f"{url} does not answer within {ANSWER_SECONDS:.0f} s") from None
            why = getattr(error, "strerror", None) or error or type(error).__name__
            raise RefusedError(f"{url} cannot be reached, or its answer breaks off: {_line(why)}") from None
        if limit.is_over:
            raise RefusedError(f"{url} does not answer within {ANSWER_SECONDS:.0f} s")
    _check(url, response, content)


class _Limit:
    """A time limit of all that a connection does: a server that sends byte by byte is never late for one of them."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.sockets: t.List[socket.socket] = []
        self.is_over = False
        self._timer = threading.Timer(ANSWER_SECONDS, self._end)
        self._timer.daemon = True

    def __enter__(self) -> "_Limit":
        self._timer.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        self.is_over = True
        for one in (self._connection.sock, *self.sockets):
            with contextlib.suppress(OSError, AttributeError):
                one.shutdown(socket.SHUT_RDWR)


def _check(url: str, response: http.client.HTTPResponse, content: bytes) -> None:
    """See that an answer is a yes of such a server; raise RefusedError."""
    said = _said(content)
    if response.status != 200:
        if 300 <= response.status < 400:
            to = _line(response.getheader("Location") or "nowhere")
            raise RefusedError(
                f"{url} redirects to {to}, which is not followed: set smt_slot to the server's own address"
            )
        more = "" if said is None else f": {said}" if said else ""
        raise RefusedError(f"{url} answers with status {response.status}{more}")
    if said is None:
        raise RefusedError(
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
        return _line(text)
    try:
        found = host_text.parse_json(text)
        if isinstance(found["kind"], str) and isinstance(found["value"], str):
            return _line(found["value"])
    except (ValueError, LookupError, TypeError):
        pass
    return None


def _line(said: object) -> str:
    return host_text.printable(" ".join(str(said).split()), 300)
