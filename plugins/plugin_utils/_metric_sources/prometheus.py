# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Prometheus server: queries by its HTTP API, and sentences for what it says instead of a number.

Nothing that it answers is trusted, and no credential gets into a message: an address that has one in it is refused, and headers are never shown. Redirects are
not followed, because they would carry the credentials elsewhere. The API: https://prometheus.io/docs/prometheus/latest/querying/api/.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import http.client
import math
import re
import ssl
import time
import typing as t
import urllib.error
import urllib.parse

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.urls import open_url
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import time_limits

# Of the whole answer, however slowly it comes.
ANSWER_SECONDS = 15.0
# Looking up its name, connecting, headers and body together take at most so many times as long.
LIMITS_OF_ALL = 2
# A series of 600 points has 20 kB.
MOST_BYTES = 4 * 1024 * 1024
PIECE = 64 * 1024
MOST_NAMES = 3
# As results keep them: more is no real rate or time, and sums stay finite.
MOST_VALUE = 1e100
# A server that reads its log after a start, and what proxies say while nothing behind them answers.
_NOT_NOW = (502, 503, 504)

_SAMPLE: schema.Schema = {"type": "array", "prefixItems": [{"type": "number"}, schema.text(100)], "minItems": 2, "maxItems": 2}
_LABELS = schema.mapping(schema.text(4096), 100, r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,255}$")
_DATA = schema.Checker(
    {
        "type": "object",
        "required": ["resultType", "result"],
        "properties": {"resultType": schema.text(20), "result": {"type": "array"}},
    }
)
_VECTOR = schema.Checker({"type": "object", "required": ["metric", "value"], "properties": {"metric": _LABELS, "value": _SAMPLE}})
_MATRIX = schema.Checker({"type": "object", "required": ["metric", "values"], "properties": {"metric": _LABELS, "values": schema.items(_SAMPLE, 11_000)}})
_SCALAR = schema.Checker(_SAMPLE)
_RANGE = re.compile(r"\[\s*((?:[0-9]+(?:ms|[smhdwy]))+)\s*(?::[^\]]*)?\]")
_PART = re.compile(r"([0-9]+)(ms|[smhdwy])")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'|`[^`]*`")
_MATCHER = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*=~?\s*\"((?:[^\"\\]|\\.)*)\"")

# Ansible's own function has no type hints.
_OPEN: t.Callable[..., t.Any] = open_url


class SourceError(Exception):
    """A source gives no number; the message says which, why and what to do, without credentials."""


class Series(t.NamedTuple):
    """The points of a metric.

    Attributes:
        points: (seconds since the epoch, value), in the order of time, without those that are no finite number.
        expected: how many there should be.
    """

    points: tuple[tuple[float, float], ...]
    expected: int


@dataclasses.dataclass(frozen=True)
class Access:
    """How to reach a server.

    Attributes:
        url: its address, such as ``https://prometheus.example.com:9090``.
        token: a bearer token; empty for none.
        user: for basic authentication; empty for none.
        password: of the user.
        ca: a file with certificates to check its certificate by; empty for the system's.
        certificate: a file with the client's certificate; empty for none.
        key: a file with its key.
    """

    url: str
    token: str = dataclasses.field(default="", repr=False)
    user: str = dataclasses.field(default="", repr=False)
    password: str = dataclasses.field(default="", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = dataclasses.field(default="", repr=False)

    def __post_init__(self) -> None:
        """Refuse an address that is none, or that has credentials in it, which messages would show."""
        try:
            parts = urllib.parse.urlsplit(self.url)
            port_is_valid = parts.port is None or 0 < parts.port < 65536
        except ValueError:
            parts, port_is_valid = urllib.parse.urlsplit(""), False
        if "@" in parts.netloc:
            raise SourceError("smt_trial_metrics_url has a user or a password in it: give them as smt_trial_metrics_user and smt_trial_metrics_password")
        if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid or parts.query or parts.fragment:
            raise SourceError(f"smt_trial_metrics_url is {text.line(self.url, 200)!r}: it must be an address such as http://prometheus.example.com:9090")
        if self.token and self.user:
            raise SourceError("smt_trial_metrics_token and smt_trial_metrics_user are both set: a server takes one of them")


class Prometheus:
    """A server.

    Args:
        access: how to reach it.
        seconds: the time limit of an answer.
    """

    def __init__(self, access: Access, seconds: float = ANSWER_SECONDS) -> None:
        self._access, self._seconds = access, seconds

    def instant(self, query: str) -> float:
        """Return the number that a query gives now.

        Raises:
            SourceError: it gives none, or the server does not answer.
        """
        data = self._asked("query", {"query": query})
        if data["resultType"] == "scalar":
            _checked(_SCALAR, data["result"], self._where())
            sample = data["result"]
        else:
            sample = self._one(query, data, "vector", _VECTOR)["value"]
        value = _number(sample[1])
        if value is None:
            raise SourceError(f"{self._where()} gives {text.line(sample[1], 40)} for {_shown(query)}, which is no number to judge by")
        return value

    def over(self, query: str, begin: datetime.datetime, end: datetime.datetime, step: float) -> Series:
        """Return the points of a query between two moments.

        Raises:
            SourceError: there is no series, or the server does not answer.
        """
        wanted = {"query": query, "start": f"{begin.timestamp():.3f}", "end": f"{end.timestamp():.3f}", "step": f"{step:g}"}
        data = self._asked("query_range", wanted)
        values = self._one(query, data, "matrix", _MATRIX)["values"]
        found = {float(moment): number for moment, value in values if (number := _number(value)) is not None}
        return Series(tuple(sorted(found.items())), math.floor((end - begin).total_seconds() / step) + 1)

    def _one(self, query: str, data: dict[str, t.Any], kind: str, checker: schema.Checker) -> dict[str, t.Any]:
        """Return the only series of an answer."""
        if data["resultType"] != kind:
            raise SourceError(
                f"{self._where()} answers {_shown(query)} with a {text.line(data['resultType'], 40)}: a metric has to be one number for each host"
            )
        result = data["result"]
        if not result:
            raise SourceError(f"{self._where()} has no series for {_shown(query)}{self._other_names(query)}")
        for one in result[:2]:
            _checked(checker, one, self._where())
        if len(result) > 1:
            first, second = result[0]["metric"], result[1]["metric"]
            differ = sorted(label for label in {*first, *second} if first.get(label) != second.get(label))
            raise SourceError(
                f"{self._where()} has {len(result)} series for {_shown(query)}, which differ by {text.line(', '.join(differ), 100) or 'nothing'}: "
                "a metric has to be one number for each host, so sum them or name one"
            )
        found: dict[str, t.Any] = result[0]
        return found

    def _other_names(self, query: str) -> str:
        """Return which values the labels of a query have on this server that are like those it names."""
        for label, value in _MATCHER.findall(query):
            if label == "__name__":
                continue
            try:
                known = [one for one in self._asked(f"label/{urllib.parse.quote(label, safe='')}/values", {}, list) if isinstance(one, str)]
            except SourceError:
                return ""
            if value not in known:
                near = difflib.get_close_matches(value, known, MOST_NAMES, 0.4) or sorted(known)[:MOST_NAMES]
                names = ", ".join(text.line(name, 80) for name in near) or "none at all"
                return f": it knows no {label} {text.line(value, 80)!r}; there is {names}"
        return ": it was not scraped lately, or has another name there"

    def _asked(self, path: str, wanted: dict[str, str], kind: type = dict) -> t.Any:
        """Return the data of an answer."""
        status, kind_of_content, body = self._answer(path, wanted)
        if status in (401, 403):
            raise SourceError(f"{self._where()} refuses access (status {status}): check smt_trial_metrics_token, or the user and the password")
        if 300 <= status < 400:
            raise SourceError(f"{self._where()} redirects elsewhere (status {status}), which is not followed: give the address that it redirects to")
        if "json" not in kind_of_content:
            if status in _NOT_NOW:
                raise SourceError(f"{self._where()} answers no queries now (status {status}): it is starting, or what is in front of it does not reach it")
            sent = text.line(kind_of_content, 60) or "nothing"
            raise SourceError(f"{self._where()} answers with {sent} and status {status} instead of JSON: is it the address of a Prometheus server?")
        try:
            document = text.parse(body.decode("utf-8", errors="replace"))
        except text.BorderError as error:
            raise SourceError(f"{self._where()}: its answer cannot be read: {text.line(error, 200)}") from None
        if not isinstance(document, dict) or document.get("status") != "success":
            said = document.get("error") if isinstance(document, dict) else None
            raise SourceError(f"{self._where()} refuses the query (status {status}): {text.line(said or 'it does not say why', 300)}")
        data = document.get("data")
        if not isinstance(data, kind):
            raise SourceError(f"{self._where()}: its answer has no data")
        if kind is dict:
            _checked(_DATA, data, self._where())
        return data

    def _answer(self, path: str, wanted: dict[str, str]) -> tuple[int, str, bytes]:
        """Return status, content type and body of an answer, within the limits of time and size."""
        try:
            # A server that sends its headers one by one is slow in every single one of them.
            with time_limits.within(LIMITS_OF_ALL * self._seconds):
                return self._received(path, wanted)
        except AnsibleConnectionFailure:
            raise SourceError(f"{self._where()}: its answer was not there after {LIMITS_OF_ALL * self._seconds:g} s") from None

    def _received(self, path: str, wanted: dict[str, str]) -> tuple[int, str, bytes]:
        """Return status, content type and body of an answer."""
        access = self._access
        deadline = time.monotonic() + self._seconds
        address = f"{access.url.rstrip('/')}/api/v1/{path}"
        headers = {"Accept": "application/json", **({"Authorization": f"Bearer {access.token}"} if access.token else {})}
        try:
            response = _OPEN(
                address if not wanted else f"{address}?{urllib.parse.urlencode(wanted)}",
                headers=headers,
                url_username=access.user or None,
                url_password=access.password or None,
                force_basic_auth=bool(access.user),
                ca_path=access.ca or None,
                client_cert=access.certificate or None,
                client_key=access.key or None,
                follow_redirects="none",
                timeout=self._seconds,
                http_agent="threadwise.smt",
                use_netrc=False,
            )
        except urllib.error.HTTPError as error:
            response = error
        except AnsibleConnectionFailure:
            raise
        except Exception as error:
            # Its classes differ between releases of Ansible and of Python: certificates, names, ports, times.
            raise SourceError(f"{self._where()} cannot be reached: {_reason(error)}") from None
        with response:
            return int(response.status or 0), str(response.headers.get("Content-Type") or ""), self._body(response, deadline)

    def _body(self, response: t.Any, deadline: float) -> bytes:
        """Read a body within the limits of time and size."""
        body = b""
        piece: bytes
        reader = getattr(response, "fp", None) or response
        read = reader.read1 if hasattr(reader, "read1") else reader.read
        while True:
            try:
                piece = read(PIECE)
            except (OSError, http.client.HTTPException) as error:
                raise SourceError(f"{self._where()}: its answer broke off: {_reason(error)}") from None
            body += piece
            if not piece:
                return body
            if len(body) > MOST_BYTES:
                raise SourceError(f"{self._where()}: its answer is larger than {MOST_BYTES // 1024 // 1024} MiB: does the query give one number for each host?")
            if time.monotonic() > deadline:
                raise SourceError(f"{self._where()}: its answer was not there after {self._seconds:g} s")

    def _where(self) -> str:
        return f"the metrics server {text.line(self._access.url, 200)}"


def longest_range(query: str) -> float:
    """Return how many seconds a query looks back, by its longest range such as ``[5m]``; 0 without one."""
    ranges = _RANGE.findall(_QUOTED.sub("", query))
    return max((sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(one)) for one in ranges), default=0.0)


def _number(written: str) -> float | None:
    """Return a finite number, None for what is none."""
    try:
        value = float(written)
    except ValueError:
        return None
    return value if abs(value) <= MOST_VALUE else None


def _checked(checker: schema.Checker, data: t.Any, where: str) -> None:
    try:
        checker.check(data)
    except text.BorderError as error:
        raise SourceError(f"{where}: its answer is not that of a Prometheus server: {text.line(error, 200)}") from None


def _reason(error: BaseException) -> str:
    """Return what an error says, without an address that it may repeat."""
    reason = getattr(error, "reason", None)
    cause = reason if isinstance(reason, (OSError, ssl.SSLError)) else error
    return text.line(getattr(cause, "strerror", None) or getattr(cause, "verify_message", None) or cause, 200)


def _shown(query: str) -> str:
    return text.line(query, 200)
