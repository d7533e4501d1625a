# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request that a host makes to a server before its reboot, by the standard library of its Python.

Nothing that a server answers is trusted: whatever it does, within a limit of time a caller has an answer or a reason.
Redirects are not followed, and proxies of the environment are not used: who answers is who was named.
"""

import contextlib
import http.client
import socket
import ssl
import threading
import typing as t
import urllib.parse

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import SlotError

# Each wait for a part of an answer, and all of it.
WAIT_SECONDS, ANSWER_SECONDS = 10.0, 30.0


class RefusedError(SlotError):
    """A host may not be rebooted, or a slot is not known to be given back; the message is the reason."""


class Reply(t.NamedTuple):
    """What a server answers.

    Attributes:
        status: of HTTP.
        content: its body.
    """

    status: int
    content: bytes


def send(url: str, path: str, body: str, headers: "dict[str, str]", max_bytes: int) -> Reply:
    """Send a request by POST.

    Args:
        url: the server's address, as from `settings.address`.
        path: below it.
        body: of the request.
        headers: of the request.
        max_bytes: of the answer; of a longer one there is one byte more.

    Raises:
        RefusedError: there is no answer, or it leads elsewhere.
    """
    parts = urllib.parse.urlsplit(url)
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
            connection.request("POST", f"{parts.path}{path}", body, {**headers, "Connection": "close"})
            response = connection.getresponse()
            content = response.read(max_bytes + 1)
        except socket.timeout:
            raise RefusedError(f"{url} does not answer: nothing came for {WAIT_SECONDS:.0f} s") from None
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", None) or error.reason or error
            raise RefusedError(f"{url} cannot be trusted: {line(why)}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if limit.is_over:
                raise RefusedError(f"{url} does not answer within {ANSWER_SECONDS:.0f} s") from None
            why = getattr(error, "strerror", None) or error or type(error).__name__
            raise RefusedError(f"{url} cannot be reached, or its answer breaks off: {line(why)}") from None
        if limit.is_over:
            raise RefusedError(f"{url} does not answer within {ANSWER_SECONDS:.0f} s")
    if 300 <= response.status < 400:
        to = line(response.getheader("Location") or "nowhere")
        raise RefusedError(f"{url} redirects to {to}, which is not followed: give the server's own address")
    return Reply(response.status, content)


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
        for sock in (self._connection.sock, *self.sockets):
            with contextlib.suppress(OSError, AttributeError):
                sock.shutdown(socket.SHUT_RDWR)


def line(message: object) -> str:
    """Return what a server says as one line of visible text."""
    return host_text.printable(" ".join(str(message).split()), 300)
