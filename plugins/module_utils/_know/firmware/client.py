# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small client of Redfish that only reads: within limits of time, size and number, and on one host alone.

Nothing that a BMC answers is trusted: whatever it does, a caller gets an object of JSON or a RedfishError. A link is
followed on the host that the user named, or not at all; the credentials go nowhere else. Of the specification:
https://www.dmtf.org/sites/default/files/standards/documents/DSP0266_1.20.0.pdf.
"""

import base64
import contextlib
import gzip
import http.client
import json
import signal
import time
import typing as t
import urllib.error
import urllib.parse
import zlib

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError

ROOT = "/redfish/v1/"
SESSIONS = "/redfish/v1/SessionService/Sessions"
# A registry of attributes has up to 1 MB, everything else is much smaller.
MAX_BYTES = 8 * 1024 * 1024
PIECE = 64 * 1024
# A chassis of eight nodes takes about forty.
MAX_REQUESTS = 200
MAX_PAGES = 20
MAX_MEMBERS = 500
# An old iLO adds a slash.
MAX_REDIRECTS = 2
MAX_LINK = 1000
# All requests together take at most so many times as long as one may.
LIMITS_OF_ALL = 10
_REDIRECTS = (301, 302, 303, 307, 308)
_VISIBLE = frozenset(map(chr, range(0x21, 0x7F)))
# Of a path, all but the characters that a BMC may leave as they are.
_SAFE = "/?&=$%:@!()*,;+~-._"
_SHOWN = "(a secret)"

Json = t.Dict[str, t.Any]
Open = t.Callable[..., t.Any]


class RedfishError(HostError):
    """A BMC does not answer as it should; the message names it, the path and the reason, without credentials."""


class NotFoundError(RedfishError):
    """A BMC does not have what was asked for."""


class RefusedError(RedfishError):
    """A BMC knows no such user, password or token. Each further try counts towards locking the user out."""


class Access(t.NamedTuple):
    """How to reach a BMC.

    Attributes:
        host: its name or address with the port, as it stands in an address.
        user: the user's name; empty with a token.
        password: the user's.
        token: of a session that exists already; empty for none.
        validate_certs: whether its certificate is checked.
        ca_path: a file with certificates to check it by; None for the system's.
        seconds: the time limit of one request.
    """

    host: str
    user: str
    password: str
    token: str
    validate_certs: bool
    ca_path: "str | None"
    seconds: int


def host_of(baseuri: str) -> str:
    """Return host and port of an address, with or without ``https://`` before it.

    Raises:
        RedfishError: it is none; nothing of it is shown, because it may have a password in it.
    """
    written = baseuri.strip()
    parts = host_text.address(written if "://" in written else f"https://{written}")
    if parts.scheme == "http":
        raise RedfishError("baseuri begins with http://: the password would be sent for all to read; a BMC has https")
    if "@" in parts.netloc:
        raise RedfishError("baseuri has a user or a password in it: give them as username and password")
    if parts.path.rstrip("/") not in ("", "/redfish", "/redfish/v1") or parts.query or parts.fragment:
        raise RedfishError("baseuri has a path in it: give the name or the address of the BMC alone")
    if parts.scheme != "https":
        raise RedfishError("baseuri is no name or address such as bmc.example.com, 192.0.2.1:8443 or [2001:db8::1]")
    return parts.netloc


class Client:
    """A client of one BMC.

    Args:
        access: how to reach it.
        open_url: Ansible's function of that name, which reads proxies, checks certificates and sends the request.
    """

    def __init__(self, access: Access, open_url: Open) -> None:
        self._access, self._open_url = access, open_url
        self._base = f"https://{access.host}"
        self._headers: dict[str, str] = {}
        self._secrets = [access.password, access.token]
        self._requests = 0
        self._deadline = time.monotonic() + LIMITS_OF_ALL * access.seconds

    # ---- signing in --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def signed_in(self, by_session: bool, sessions: t.Any) -> "t.Iterator[list[str]]":
        """Have the user's rights within a block.

        Args:
            by_session: whether the user signs in once, and signs out after the block; else each request has the
                password in it.
            sessions: the link where sessions are made, as the BMC gives it.

        Yields:
            A list, to which a sentence is added when the session could not be ended.

        Raises:
            RedfishError: the BMC refuses it.
        """
        access = self._access
        problems: list[str] = []
        if access.token:
            self._headers = {"X-Auth-Token": access.token}
            yield problems
        elif not by_session:
            basic = base64.b64encode(f"{access.user}:{access.password}".encode()).decode()
            self._secrets.append(basic)
            self._headers = {"Authorization": f"Basic {basic}"}
            yield problems
        else:
            session = self._make_session(sessions)
            try:
                yield problems
            finally:
                problems += self._end_session(session)

    def _make_session(self, sessions: t.Any) -> "str | None":
        """Sign in. Returns the path of the session, None where the BMC does not say it."""
        body = {"UserName": self._access.user, "Password": self._access.password}
        try:
            _answer, headers = self._ask("POST", sessions, body)
        except NotFoundError:
            raise RedfishError(f"{self._title} makes no sessions: set auth_method to basic") from None
        token = str(headers.get("X-Auth-Token") or "")
        if not token or len(token) > 4096 or not _VISIBLE.issuperset(token):
            raise RedfishError(f"{self._title} signed in without giving a token: set auth_method to basic")
        self._secrets.append(token)
        self._headers = {"X-Auth-Token": token}
        # Often with the BMC's address instead of the name that the user gave. Only the path counts: it is asked for
        # on the same host.
        path = urllib.parse.urlsplit(str(headers.get("Location") or "")).path
        return path if path.startswith("/") and len(path) <= MAX_LINK and _VISIBLE.issuperset(path) else None

    def _end_session(self, session: "str | None") -> "list[str]":
        reason = "it did not say where its session is"
        if session is not None:
            try:
                # Also when the time of all is over: a BMC has few sessions.
                self._deadline = max(self._deadline, time.monotonic() + self._access.seconds)
                self._requests = min(self._requests, MAX_REQUESTS - 1 - MAX_REDIRECTS)
                self._ask("DELETE", session)
                return []
            except RedfishError as error:
                reason = str(error)
        return [f"the session stays open until the BMC ends it: {reason}"]

    # ---- reading -----------------------------------------------------------------------------------------------------

    def get(self, link: t.Any) -> Json:
        """Return the resource of a link.

        Args:
            link: a path, or what a BMC has in its place.

        Raises:
            RedfishError: it leads elsewhere, or the BMC does not answer as it should.
        """
        return self._ask("GET", link)[0]

    def members(self, link: t.Any) -> "list[t.Any]":
        """Return the links of a collection's members, of all its pages.

        Raises:
            RedfishError: it cannot be read, or has too many pages or members.
        """
        members: list[t.Any] = []
        seen: set[str] = set()
        while link is not None:
            page = self._path(link)
            if page in seen or len(seen) >= MAX_PAGES:
                raise RedfishError(f"{self._title}: the collection {page} has pages without an end")
            seen.add(page)
            answer = self.get(page)
            members += map(linked, list_of(answer, "Members"))
            if len(members) > MAX_MEMBERS:
                raise RedfishError(f"{self._title}: the collection {page} has more than {MAX_MEMBERS} members")
            link = answer.get("Members@odata.nextLink")
        return members

    def _path(self, link: t.Any) -> str:
        """Return the path of a link on this host."""
        if not isinstance(link, str) or not link or len(link) > MAX_LINK:
            raise RedfishError(f"{self._title} has no link where there should be one")
        try:
            parts = urllib.parse.urlsplit(link)
            own = urllib.parse.urlsplit(self._base)
            is_own = parts.scheme == "https" and (parts.hostname, parts.port or 443) == (own.hostname, own.port or 443)
        except ValueError:
            raise RedfishError(f"{self._title} has a link that is none: {self._line(link)}") from None
        if (parts.scheme or parts.netloc) and (not is_own or "@" in parts.netloc):
            raise RedfishError(f"{self._title} has a link to another host, which is not followed: {self._line(link)}")
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        if not path.startswith("/") or path.startswith("//") or "\\" in path or "/../" in path + "/":
            raise RedfishError(f"{self._title} has a link that is none: {self._line(link)}")
        return urllib.parse.quote(path, safe=_SAFE)

    # ---- one request -------------------------------------------------------------------------------------------------

    def _ask(self, method: str, link: t.Any, body: "Json | None" = None) -> "tuple[Json, t.Any]":
        """Send a request, and again where the BMC has the same under another path.

        Args:
            method: of HTTP.
            link: from a BMC, as everywhere here: what leads to another host is refused before anything is sent.
            body: for a POST.

        Returns:
            The answer, and its headers.
        """
        for _hop in range(MAX_REDIRECTS + 1):
            path = self._path(link)
            self._requests += 1
            if self._requests > MAX_REQUESTS:
                raise RedfishError(f"{self._title} takes more than {MAX_REQUESTS} requests")
            left = min(2.0 * self._access.seconds, self._deadline - time.monotonic())
            if left <= 0:
                raise RedfishError(f"{self._title}: its answers took all of the time there is; set a longer timeout")
            with self._border(path, left), contextlib.closing(self._opened(method, path, body)) as response:
                status, headers = int(response.code or 0), response.headers
                content = self._body(response)
            if status not in _REDIRECTS:
                return self._answer(path, status, content), headers
            link = headers.get("Location")
        raise RedfishError(f"{self._title} sends {path} from one path to the next without an end")

    @contextlib.contextmanager
    def _border(self, path: str, seconds: float) -> "t.Iterator[None]":
        """Limit the time of a request, headers that come one by one included, and make a RedfishError of all that a
        BMC can cause.
        """

        def give_up(_number: int, _frame: t.Any) -> None:
            raise RedfishError(f"{self._title}: no answer for {path} within {seconds:.3g} s")

        before = signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        except RedfishError:
            raise
        except Exception as error:
            # Its classes differ between releases of Ansible and of Python: certificates, names, ports, times.
            raise RedfishError(f"{self._title} cannot be read ({path}): {self._reason(error)}") from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _opened(self, method: str, path: str, body: "Json | None") -> t.Any:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "OData-Version": "4.0", **self._headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            return self._open_url(
                self._base + path,
                method=method,
                data=None if body is None else json.dumps(body).encode(),
                headers=headers,
                validate_certs=self._access.validate_certs,
                ca_path=self._access.ca_path,
                follow_redirects="none",
                timeout=self._access.seconds,
                http_agent="threadwise.smt",
                use_netrc=False,
                # Ansible's own way to unpack has no limit.
                decompress=False,
            )
        except urllib.error.HTTPError as error:
            return error

    def _body(self, response: t.Any) -> bytes:
        """Read a body as its headers say, within the limit of size."""
        # An iLO packs its registries, whatever a client accepts.
        packed = str(response.headers.get("Content-Encoding") or "identity").strip().lower()
        if packed not in ("identity", "gzip", "x-gzip"):
            raise RedfishError(f"{self._title}: an answer is packed as {self._line(packed)}, which nobody asked for")
        reader = response if packed == "identity" else gzip.GzipFile(fileobj=response, mode="rb")
        body = bytearray()
        try:
            piece = reader.read1(PIECE)
            while piece:
                body += piece
                if len(body) > MAX_BYTES:
                    raise RedfishError(f"{self._title}: an answer is larger than {MAX_BYTES // 1024 // 1024} MiB")
                piece = reader.read1(PIECE)
        except (EOFError, zlib.error, http.client.HTTPException) as error:
            raise RedfishError(f"{self._title}: an answer broke off: {self._reason(error)}") from None
        # The standard library ends a body that is shorter than its length like any other one.
        if getattr(response, "length", None):
            raise RedfishError(f"{self._title}: an answer broke off: {response.length} bytes are missing")
        return bytes(body)

    def _answer(self, path: str, status: int, content: bytes) -> Json:
        """Return an answer as the object that it has to be."""
        wrong = "it is no object"
        try:
            answer = host_text.parse_json(content.decode("utf-8-sig", "replace")) if content.strip() else {}
        except ValueError as error:
            answer, wrong = None, str(error)
        if 200 <= status < 300 and isinstance(answer, dict):
            return answer
        message = self._error_message(answer) if isinstance(answer, dict) else ""
        what = f"{path} (status {status}){': ' if message else ''}{message}"
        if status == 401:
            raise RefusedError(f"{self._title} refuses {what}: check username and password, or auth_token")
        if status == 403:
            raise RedfishError(f"{self._title} forbids {what}: check the role of the user, and the licence of the BMC")
        if status in (404, 405, 410, 501):
            raise NotFoundError(f"{self._title} has no {what}")
        if not 200 <= status < 300:
            raise RedfishError(f"{self._title} does not answer {what}")
        raise RedfishError(f"{self._title}: the answer to {path} is not what Redfish has: {self._line(wrong)}")

    def _error_message(self, answer: Json) -> str:
        """Return what a BMC says of an error, in one line."""
        error = answer.get("error")
        details = error.get("@Message.ExtendedInfo") if isinstance(error, dict) else None
        first = details[0] if isinstance(details, list) and details and isinstance(details[0], dict) else error
        message = (first.get("Message") or first.get("message")) if isinstance(first, dict) else None
        return self._line(message) if isinstance(message, str) else ""

    # ---- texts -------------------------------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        return f"the BMC {host_text.printable(self._access.host)}"

    def _line(self, message: t.Any) -> str:
        """Return what a BMC or an error says as one line, without the credentials that it may repeat."""
        line = " ".join(str(message)[:2000].split())
        for secret in filter(None, self._secrets):
            for form in (secret, json.dumps(secret)[1:-1], urllib.parse.quote(secret, safe="")):
                line = line.replace(form, _SHOWN)
        return host_text.printable(line)

    def _reason(self, error: BaseException) -> str:
        reason = getattr(error, "reason", None)
        cause = reason if isinstance(reason, OSError) else error
        message = self._line(getattr(cause, "verify_message", None) or getattr(cause, "strerror", None) or cause)
        if "CERTIFICATE_VERIFY_FAILED" in str(error) or getattr(cause, "verify_message", None):
            return f"{message}: give the certificate of its CA as ca_path, or set validate_certs to false"
        return message or type(error).__name__


def linked(resource: t.Any) -> t.Any:
    """Return the link in a part of a resource, None where it has none."""
    return resource.get("@odata.id") if isinstance(resource, dict) else None


def list_of(resource: Json, name: str) -> "list[Json]":
    """Return the objects of a list in a resource; empty where there is none."""
    items = resource.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def object_of(resource: Json, name: str) -> Json:
    """Return an object in a resource; empty where there is none."""
    item = resource.get(name)
    return item if isinstance(item, dict) else {}
