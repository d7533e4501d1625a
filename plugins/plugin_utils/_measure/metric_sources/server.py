# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A metrics server: how it is reached, and its answers, read as HTTP says within limits of time and size.

Nothing that it answers is trusted: whatever it does, a caller gets an answer or a SourceError. No credential gets into
a message: they are checked before they are used, and taken out of what the server says. Redirects are not followed,
because they would carry the credentials elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import gzip
import http.client
import ssl
import time
import typing as t
import urllib.error
import urllib.parse
import zlib

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.urls import open_url
from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.credentials import variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.credentials.secret import Secret, SecretError, read

# Of the body of an answer, and of each wait for a part of it.
ANSWER_SECONDS = 15.0
# Looking up its name, connecting, headers and body together, and what follows from the answer, take at most so many
# times as long.
LIMITS_OF_ALL = 2
# A series of 600 points has 20 kB. Of the answer as it is after unpacking.
MAX_BYTES = 4 * 1024 * 1024
PIECE = 64 * 1024
# Of tokens that are in use anywhere (RFC 6750, section 2.1, allows fewer).
_VISIBLE = frozenset(map(chr, range(0x21, 0x7F)))

# Ansible's own function has no type hints.
_OPEN: t.Callable[..., t.Any] = open_url


class SourceError(Exception):
    """A source gives no number; the message says which, why and what to do, without credentials."""


@dataclasses.dataclass(frozen=True)
class Access:
    """How to reach a server; `access` makes it from variables.

    Attributes:
        url: its address without a slash at the end, such as ``https://prometheus.example.com:9090``.
        token: a bearer token; empty for none.
        user: for basic authentication; empty for none.
        password: of the user.
        ca: a file with certificates to check its certificate by; empty for the system's.
        certificate: a file with the client's certificate; empty for none.
        key: a file with its key.
        variable: how the names of the variables begin that say so, for messages.
    """

    url: str = dataclasses.field(repr=False)
    token: Secret = dataclasses.field(default_factory=Secret)
    user: Secret = dataclasses.field(default_factory=Secret)
    password: Secret = dataclasses.field(default_factory=Secret)
    ca: str = ""
    certificate: str = ""
    key: str = ""
    variable: str = variables.OF_TRIAL

    @property
    def shown(self) -> str:
        """The address for messages: its path may be what gives access, as with servers of several tenants."""
        return text.line("{0.scheme}://{0.netloc}".format(urllib.parse.urlsplit(self.url)), 200)

    def hide(self, message: str) -> str:
        """Return what a server or an error says without credentials."""
        basic = (
            base64.b64encode(f"{self.user.reveal()}:{self.password.reveal()}".encode()).decode() if self.user else ""
        )
        for secret in (self.token, self.password, Secret(basic)):
            message = secret.hide(message)
        return message


def access(get: t.Callable[[str], t.Any], variable: str = variables.OF_TRIAL) -> Access:
    """Return how to reach a server as the variables say.

    Args:
        get: returns the value of the variable of a name of `variables.NAMES`, None where it is not set.
        variable: how the names of the variables begin.

    Raises:
        SourceError: one of them cannot be used; the message has no value.
    """
    try:
        given = {name: read(variable + name, functools.partial(get, name)) for name in variables.NAMES}
    except SecretError as error:
        raise SourceError(str(error)) from None
    url = given["url"].reveal().strip()
    _check_url(url, variable)
    token = Secret(given["token"].reveal().strip())
    if not _VISIBLE.issuperset(token.reveal()):
        raise SourceError(
            f"{variable}token has a blank in it, or a letter that is not ASCII: a token is one word, without Bearer"
            " before it"
        )
    if token and given["user"]:
        raise SourceError(f"{variable}token and {variable}user are both set: a server takes one of them")
    if given["password"] and not given["user"]:
        raise SourceError(f"{variable}password is set, and {variable}user is not")
    if ":" in given["user"].reveal():
        raise SourceError(f"{variable}user has a colon in it, which ends a user's name")
    files = {name: given[name].reveal() for name in ("ca", "certificate", "key")}
    for name, path in files.items():
        try:
            if path:
                with open(path, "rb"):
                    pass
        except OSError as error:
            raise SourceError(f"{variable}{name} names no file that can be read here ({error.strerror})") from None
    return Access(url.rstrip("/"), token, given["user"], given["password"], **files, variable=variable)


def _check_url(url: str, variable: str) -> None:
    """Refuse what is no address, or has more in it than an address.

    Nothing of it is shown: whatever it is, it may have a password in it.
    """
    parts = host_text.address(url)
    if "@" in parts.netloc:
        raise SourceError(
            f"{variable}url has a user or a password in it: give them as {variable}user and {variable}password"
        )
    if "?" in url or "#" in url:
        raise SourceError(
            f"{variable}url has a part in it that begins with ? or #: give a token as {variable}token, and the address"
            " without that part"
        )
    if parts.scheme not in ("http", "https"):
        raise SourceError(f"{variable}url is no address such as http://prometheus.example.com:9090")


class ServerAnswer(t.NamedTuple):
    """An answer of a server.

    Attributes:
        status: of HTTP.
        kind: its content type, in lower case.
        body: unpacked.
    """

    status: int
    kind: str
    body: bytes


class Server:
    """A server.

    Args:
        access: how to reach it.
        seconds: the time limit of an answer's body.
        most: bytes of an answer as it is after unpacking.
    """

    def __init__(self, access: Access, seconds: float = ANSWER_SECONDS, most: int = MAX_BYTES) -> None:
        self._access, self._seconds, self._most = access, seconds, most
        self._deadline: float | None = None

    @contextlib.contextmanager
    def at_most(self, seconds: float) -> t.Iterator[None]:
        """Limit the time of all questions within a block together;
        a question for which nothing is left is a SourceError.
        """
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = None

    @contextlib.contextmanager
    def border(self) -> t.Iterator[None]:
        """Limit the time of a question with all that follows from its answer.

        Yields:
            None.

        Raises:
            SourceError: it took too long, or anything else that a server can cause happened.
        """
        seconds = LIMITS_OF_ALL * self._seconds
        if self._deadline is not None:
            seconds = min(seconds, self._deadline - time.monotonic())
        if seconds <= 0:
            raise self.error(": its answers before this one took all of the time there is")
        try:
            # A server that sends its headers one by one is slow in every single one of them.
            with time_limits.within(seconds):
                yield
        except SourceError:
            raise
        except AnsibleConnectionFailure:
            raise self.error(f": its answer was not there after {seconds:.3g} s") from None
        except Exception as error:
            raise self.error(f": its answer cannot be read: {self._reason(error)}") from None

    @property
    def variable(self) -> str:
        """How the names of the variables begin that say how it is reached."""
        return self._access.variable

    def error(self, problem: str) -> SourceError:
        """Return an error about this server."""
        return SourceError(f"the metrics server {self._access.shown}{problem}")

    def line(self, message: t.Any, most: int) -> str:
        """Return what the server says for a message, without the credentials that it may repeat."""
        return text.line(self._access.hide(str(message)), most)

    def is_repeated(self, message: str) -> bool:
        """Return whether a credential is in what the server says."""
        return self._access.hide(message) != message

    def ask(self, path: str, wanted: t.Mapping[str, str]) -> ServerAnswer:
        """Return the answer to a GET request, whatever its status.

        Args:
            path: below the server's address.
            wanted: names and values of the request.

        Raises:
            SourceError: there is no answer, or it is not whole.
        """
        access = self._access
        deadline = time.monotonic() + self._seconds
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token.reveal()}"
        try:
            response = _OPEN(
                f"{access.url}/{path}?{urllib.parse.urlencode(wanted)}",
                headers=headers,
                url_username=access.user.reveal() or None,
                url_password=access.password.reveal(),
                force_basic_auth=bool(access.user),
                ca_path=access.ca or None,
                client_cert=access.certificate or None,
                client_key=access.key or None,
                follow_redirects="none",
                timeout=self._seconds,
                http_agent="threadwise.smt",
                use_netrc=False,
                # Ansible's own way to unpack reads past the chunks of HTTP, and without a limit.
                decompress=False,
            )
        except urllib.error.HTTPError as error:
            response = error
        except AnsibleConnectionFailure:
            raise
        except http.client.HTTPException as error:
            raise self.error(f" does not answer as HTTP says: {self._reason(error) or 'not at all'}") from None
        except Exception as error:
            # Its classes differ between releases of Ansible and of Python: certificates, names, ports, times.
            raise self.error(f" cannot be reached: {self._reason(error)}") from None
        with response:
            return ServerAnswer(
                int(response.status or 0),
                str(response.headers.get("Content-Type") or "").lower(),
                self._body(response, deadline),
            )

    def _body(self, response: t.Any, deadline: float) -> bytes:
        """Read a body as its headers say, within the limits of time and size."""
        packed = str(response.headers.get("Content-Encoding") or "identity").strip().lower()
        if packed not in ("identity", "gzip", "x-gzip"):
            raise self.error(
                f": its answer is packed as {self.line(packed, 40)}, which nobody asked for: is there a proxy in front"
                " of it?"
            )
        reader = response if packed == "identity" else gzip.GzipFile(fileobj=response, mode="rb")
        body = bytearray()
        try:
            while piece := reader.read1(PIECE):
                body += piece
                if len(body) > self._most:
                    raise self.error(
                        f": its answer is larger than {self._most // 1024 // 1024} MiB: does the query give one number"
                        " for each host?"
                    )
                if time.monotonic() > deadline:
                    raise self.error(f": its answer was not there after {self._seconds:g} s")
        except (OSError, EOFError, zlib.error, http.client.HTTPException) as error:
            raise self.error(f": its answer broke off: {self._reason(error)}") from None
        # The standard library ends a body that is shorter than its length like any other one.
        if getattr(response, "length", None):
            raise self.error(f": its answer broke off: {response.length} bytes are missing")
        return bytes(body)

    def _reason(self, error: BaseException) -> str:
        """Return what an error says, without an address that it may repeat."""
        reason = getattr(error, "reason", None)
        cause = reason if isinstance(reason, (OSError, ssl.SSLError)) else error
        return self.line(getattr(cause, "strerror", None) or getattr(cause, "verify_message", None) or cause, 200)
