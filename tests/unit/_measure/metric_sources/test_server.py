# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers that speak HTTP in every way, that lie, or that mean harm: a number or one sentence, in time, without a
credential.
"""

from __future__ import annotations

import contextlib
import datetime
import gzip
import itertools
import json
import zlib

import night
import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import lineage, prometheus, server

BEGIN = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
AT = BEGIN.timestamp()


def source(url, seconds=server.ANSWER_SECONDS, **variables):
    return prometheus.Prometheus(server.access({"url": url, **variables}.get), seconds)


def refusal(address, **variables):
    with pytest.raises(server.SourceError) as caught:
        source(address, **variables).instant("load")
    said = str(caught.value)
    assert said.startswith(f"the metrics server {address}") and caught.value.__cause__ is None
    assert "\n" not in said and "\x1b" not in said and "hidden" not in said
    return said


def vector(value="7", **more):
    result = [{"metric": {}, "value": [1.0, value]}]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}, **more}).encode()


ANSWER = vector()
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
GZIP = b"Content-Encoding: gzip\r\n"
PACKED = gzip.compress(ANSWER)


def sized(body, *headers, head=OK):
    return b"".join([head, *headers, b"Content-Length: %d\r\n\r\n" % len(body), body])


def of_status(status, body=b"", kind="application/json"):
    return sized(body, head=f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n".encode())


def chunks(body, size, *headers, end=b"0\r\n\r\n"):
    """A body in chunks, with an extension of each that nobody needs."""
    pieces = [body[place : place + size] for place in range(0, len(body), size)]
    written = [b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    return b"".join([OK, *headers, b"Transfer-Encoding: chunked\r\n\r\n", *written, end])


# The servers keep the connection open: whoever reads on until it is closed waits until the limit.
WHOLE = {
    "chunks and trailers": chunks(ANSWER, 50, end=b"0\r\nX-Sum: 1\r\n\r\n"),
    "packed in chunks": chunks(PACKED, 7, GZIP),
    "packed in two parts": sized(gzip.compress(ANSWER[:40]) + gzip.compress(ANSWER[40:]), GZIP),
    "after what is not yet it": b"HTTP/1.1 100 Continue\r\n\r\n" + sized(ANSWER),
    "more than it says": sized(ANSWER) + b"HTTP/1.1 200 OK\r\n\r\nof somebody else",
    "capitals and a charset": sized(ANSWER).replace(b"application/json", b"Application/JSON; charset=klingon"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_ends_where_http_says(name):
    with prometheus_server.raw(WHOLE[name]) as address:
        assert source(address).instant("load") == 7.0


def bomb(mebibytes):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(bytes(1024 * 1024)) for _turn in range(mebibytes)), packer.flush()])


def spoilt(place):
    return PACKED[:place] + bytes([PACKED[place] ^ 0xFF]) + PACKED[place + 1 :]


def data(**found):
    return sized(json.dumps({"status": "success", **found}).encode())


NO_HTTP = "does not answer as HTTP says: "
HTML = b"<h1>x</h1>"
LARGE = "its answer is larger than 4 MiB: does the query give one number for each host?"
OTHER = "its answer is not that of a Prometheus server"
TIMEOUT = b'{"status": "error", "errorType": "timeout", "error": "query timed out"}'
BROKEN = {
    "nothing of gzip": (sized(ANSWER, GZIP), "its answer broke off: Not a gzipped file"),
    "a packed body that ends early": (sized(PACKED[:-20], GZIP), "its answer broke off: Compressed file ended before"),
    "a packed body with a wrong sum": (sized(spoilt(len(PACKED) - 8), GZIP), "its answer broke off: CRC check failed"),
    "an empty packed body": (sized(b"", GZIP), "its answer cannot be read: not a complete JSON document"),
    "a bomb in chunks": (chunks(bomb(16), 1000, GZIP), LARGE),
    "a large answer": (sized(b" " * (5 << 20)), LARGE),
    "packed by another way": (
        sized(ANSWER, b"Content-Encoding: gzip, br\r\n"),
        "its answer is packed as gzip, br, which nobody asked for: is there a proxy in front of it?",
    ),
    "a chunk without a size": (chunks(ANSWER, 10, end=b"zz\r\n"), "its answer broke off: "),
    "no HTTP at all": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", NO_HTTP + "SSH-2.0"),
    "headers that are too many": (OK + b"X: y\r\n" * 1000, NO_HTTP + "got more than 100 headers"),
    "no content": (b"HTTP/1.1 204 x\r\n\r\n", "answers with nothing and status 204 instead of JSON: is it the address"),
    "html": (of_status("200 x", HTML, "text/html"), "answers with text/html and status 200 instead of JSON"),
    "no server behind": (
        of_status("502 x", HTML, "text/html"),
        "answers no queries now (status 502): it is starting, or what is in front of it does not reach it",
    ),
    "too many queries": (
        of_status("429 x", b"", "text/html"),
        "refuses so many queries (status 429): give fewer with a longer smt_trial_check",
    ),
    "a redirect": (
        of_status("302 x"),
        "redirects elsewhere (status 302), which is not followed: give the address that it redirects to",
    ),
    "forbidden": (
        of_status("403 x", b"hidden-token", "text/plain"),
        "refuses access (status 403): check smt_trial_metrics_token, or the user and the password",
    ),
    "no reason": (of_status("400 x", b"{}"), "refuses the query (status 400): it does not say why"),
    "colours": (
        of_status("400 x", b'{"status": "error", "error": "\\u001b[31mred\\nline"}'),
        "refuses the query (status 400): \\x1b[31mred line",
    ),
    "a huge number": (sized(vector("1e308")), "gives 1e308 for load, which is no number to judge by"),
    "no data": (data(), "its answer has no data"),
    "other data": (data(data={"resultType": "vector", "result": [7]}), OTHER),
    "a part": (sized(vector(isPartial=True)), "answers with a part of its numbers: one of its stores is lost"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_answer_gets_a_sentence(name):
    sent, said = BROKEN[name]
    with prometheus_server.raw(sent) as address:
        assert said in refusal(address, token="hidden-token")


@pytest.mark.parametrize(
    ("sent", "said"), [(sized(ANSWER)[:-9], "9 bytes are missing"), (chunks(ANSWER, 10, end=b""), "IncompleteRead")]
)
def test_an_answer_of_which_the_end_is_missing(sent, said):
    with prometheus_server.serving(lambda handler: handler.wfile.write(sent)) as address:
        assert f"its answer broke off: {said}" in refusal(address)


def test_who_is_not_there_and_who_redirects():
    assert refusal(f"http://127.0.0.1:{prometheus_server.free_port()}").endswith(
        "cannot be reached: Connection refused"
    )
    elsewhere = []
    with (
        prometheus_server.serving(lambda handler: elsewhere.append(handler.headers)) as other,
        prometheus_server.serving(lambda it: prometheus_server.send(it, "", 302, Location=other)) as address,
    ):
        refusal(address, token="hidden")
    assert elsewhere == []


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
NAMED = b"\x1f\x8b\x08\x08" + bytes(6)
# What is sent again and again, after what: more slowly than a limit of size or number is reached, and faster than a
# wait for one part of it ends.
SLOW = {
    "headers": (b"HTTP/1.1 200 OK\r\n", (b"X: y\r\n", 0.05)),
    "chunks": (CHUNKED, (b"1\r\n \r\n", 0.05)),
    "packed parts without content": (OK + GZIP + b"\r\n", (gzip.compress(b"") * 1000,)),
    "the name in a packed body": (OK + GZIP + b"\r\n" + NAMED, (b"x", 0.05)),
    "a body": (OK + b"Content-Length: 1000000\r\n\r\n", (b" ", 0.05)),
    "a body without a length": (OK + b"\r\n", (b" ", 0.05)),
}


@pytest.mark.night(after=4)
@pytest.mark.parametrize("name", SLOW)
def test_what_comes_slowly_or_never_ends_at_the_time_limit(name):
    first, drips = SLOW[name]
    with (
        prometheus_server.raw(first, drips=drips) as address,
        pytest.raises(server.SourceError, match=r"was not there after [0-9.]+ s|timed out|broke off"),
    ):
        source(address, 0.5).instant("load")


def test_all_answers_of_a_check_take_one_limit_together():
    """A check with many queries does not last longer than the host's rollback timer, whatever each of them takes."""
    with prometheus_server.raw(sized(ANSWER)) as address:
        one = source(address)
        with one.at_most(60.0):
            assert one.instant("load") == 7.0
        with (
            one.at_most(0.0),
            pytest.raises(server.SourceError, match="its answers before this one took all of the time there is"),
        ):
            one.instant("load")
        assert one.instant("load") == 7.0


def over(*values):
    result = [{"metric": {}, "values": values}]
    with prometheus_server.raw(data(data={"resultType": "matrix", "result": result})) as address:
        return source(address).over("load", BEGIN, BEGIN + datetime.timedelta(seconds=30), 15)


def test_points_are_those_that_were_asked_for_in_order_and_once():
    others = [[moment, "9"] for moment in (1e308, -1e200, 10**99, 0, AT - 15, AT + 45, AT - 0.5, AT + 30.5)]
    no_numbers = [[AT + 15, value] for value in ("NaN", "+Inf", "-Inf", "1e101", "-1e308", "", "many", "1,5", "0x10")]
    found = over([AT + 30, "2"], *others, *no_numbers, [AT, "1"], [AT, "1"])
    assert found == prometheus.Series(((AT, 1.0), (AT + 30, 2.0)), 3)
    assert over([AT + 15, "2"], *no_numbers[:1]).points == ((AT + 15, 2.0),)


@pytest.mark.night(after=6)
@pytest.mark.parametrize(
    "sample",
    [[True, "1"], [AT, 1], [AT], [[AT], "1"], [AT, "1" * 200], {}, *([one, "1"] for one in ("1", None, float("nan")))],
)
def test_what_is_no_sample_is_refused(sample):
    with pytest.raises(server.SourceError, match=r"not that of a Prometheus server|cannot be read"):
        over([AT, "1"], sample)


ODD = (None, True, 0, 1e300, "x", "", [], {}, [[]], [{}], {"a": 1}, [1, "1"])
PARTS = [("status",), ("data",), ("data", "resultType"), ("data", "result"), ("data", "result", 0)]
PARTS += [("data", "result", 0, *more) for more in (("metric",), ("value",), ("value", 0), ("value", 1))]


def test_answers_of_every_form_are_a_number_or_a_sentence():
    """Every part of an answer is replaced by every odd value."""
    sent = []
    with prometheus_server.serving(lambda handler: prometheus_server.send(handler, json.dumps(sent[-1]))) as address:
        for part, odd in list(itertools.product(PARTS, ODD))[:: night.number(7, 1)]:
            at = changed = json.loads(ANSWER)
            for key in part[:-1]:
                at = at[key]
            at[part[-1]] = odd
            sent.append(changed)
            with contextlib.suppress(server.SourceError):
                assert source(address).instant("load") in (1.0, 7.0)


def test_of_any_number_of_names_of_any_length_the_likest_are_named():
    names = ["x" * 3_000_000, *(f"web{number:06}" for number in range(night.number(2000, 80_000)))]

    def answer(handler):
        known = names if "values" in handler.path.partition("?")[0] else {"resultType": "vector", "result": []}
        prometheus_server.send(handler, json.dumps({"status": "success", "data": known}))

    with (
        prometheus_server.serving(answer) as address,
        pytest.raises(server.SourceError, match=r"there is web00199\d, web00199\d, web00199\d$"),
    ):
        source(address).instant('load{instance="web00199x"}')


NO_ADDRESS = "url is no address such as http://prometheus.example.com:9090"
USER_IN_URL = "url has a user or a password in it: give them as smt_trial_metrics_user and smt_trial_metrics_password"
PART_IN_URL = "url has a part in it that begins with ? or #: give a token as smt_trial_metrics_token"
NO_TOKEN = "token has a blank in it, or a letter that is not ASCII: a token is one word, without Bearer before it"
NO_LINE = "{} has a line break or another character in it"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        *(({"token": one}, NO_TOKEN) for one in ("Bearer hidden", "hidden\u20ac", "hidden\u00e9")),
        ({"token": "hidden\r\nX-Other: hidden"}, NO_LINE.format("token")),
        ({"token": ["hidden"]}, "token is a list"),
        ({"token": 4242}, "token is a number"),
        ({"token": "hidden", "user": "me"}, "token and smt_trial_metrics_user are both set"),
        ({"password": "hidden"}, "password is set, and smt_trial_metrics_user is not"),
        ({"user": "me:hidden", "password": "x"}, "user has a colon in it"),
        ({"user": "me", "password": {"x": "hidden"}}, "password is a mapping"),
        *(({"url": one}, USER_IN_URL) for one in ("http://hidden:hidden@h:1", "http://hidden@h", "//hidden:hidden@h")),
        *(({"url": f"http://h:1{one}"}, PART_IN_URL) for one in ("?token=hidden", "/?hidden", "/#hidden", "/?")),
        *(({"url": f"http://{one}"}, NO_ADDRESS) for one in ("", "h:99999", "h:hidden", "[hidden", "h/hid den")),
        *(({"url": one}, NO_ADDRESS) for one in ("", None, "http://h\u00fcdden:1", "ftp://hidden", "h:9090")),
        ({"url": ["http://u:hidden@h"]}, "url is a list"),
        ({"ca": "/nowhere/hidden"}, "ca names no file that can be read here (No such file or directory)"),
        ({"certificate": "hidden" * 1000}, "certificate names no file that can be read here (File name too long)"),
        ({"key": "-----BEGIN PRIVATE KEY-----\nhidden\n"}, NO_LINE.format("key")),
    ],
)
def test_what_cannot_be_used_is_refused_without_showing_it(variables, said):
    with pytest.raises(server.SourceError) as caught:
        server.access({"url": "http://127.0.0.1:1", **variables}.get)
    shown = str(caught.value)
    assert shown.startswith(f"smt_trial_metrics_{said}") and caught.value.__cause__ is None
    assert "hid" not in shown and "4242" not in shown


def test_how_a_server_is_reached_shows_no_credential():
    given = {"url": " http://127.0.0.1:1/hidden/prometheus/\n", "user": "hidden-user", "password": "hidden-word\r\n"}
    found = server.access(given.get)
    assert (found.url, found.shown) == ("http://127.0.0.1:1/hidden/prometheus", "http://127.0.0.1:1")
    assert found.password.reveal() == "hidden-word" and "hidden" not in repr(found)


def error(said):
    return sized(json.dumps({"status": "error", "error": said}).encode())


# What a server may do with what it gets.
REPEATS = {
    "in its error": lambda said: error(f"not {said}"),
    "as a label, of which too much is there": lambda said: sized(
        ANSWER.replace(b"{}", json.dumps({"a": said + "x" * 5000}).encode())
    ),
    "in its error, as JSON has it": lambda said: error(json.dumps([said])),
    "as its content type": lambda said: of_status("200 OK", b"", said),
    "as its packing": lambda said: sized(ANSWER, f"Content-Encoding: {said}\r\n".encode()),
    "as all that it says": lambda said: f"{said}\r\n\r\n".encode(),
    "as a value": lambda said: sized(ANSWER.replace(b'"7"', json.dumps(said).encode())),
    "as the name of a label": lambda said: sized(ANSWER.replace(b"{}", json.dumps({said + "x" * 300: "a"}).encode())),
}


@pytest.mark.night(after=13)
@pytest.mark.parametrize("name", REPEATS)
@pytest.mark.parametrize(
    "variables", [{"token": 'hidden"token\\'}, {"user": "me", "password": "hidden-password"}], ids=["token", "password"]
)
def test_what_a_server_repeats_is_not_shown(name, variables):
    heads = []

    def repeat(handler):
        heads.append(handler.headers["Authorization"])
        handler.wfile.write(REPEATS[name](heads[0]))

    with prometheus_server.serving(repeat) as address:
        said = refusal(address, **variables)
    assert heads[0].split()[1][:8] not in said


class Liar:
    """A server of the test: what it says of its rules, and samples of any series."""

    def __init__(self, rules, gap=15.0, series=1, samples=3):
        self.rules = rules if isinstance(rules, (str, int)) else json.dumps({"status": "success", "data": rules})
        one = {"metric": {"instance": "a"}, "value": [1, "7"]}
        one["values"] = [[gap * number, "1"] for number in range(samples)]
        data = {"resultType": "vector", "result": [one] * series}
        self.samples = json.dumps({"status": "success", "data": data})
        self.asked = []

    def answer(self, handler):
        path = handler.path.partition("?")[0].rpartition("/v1/")[2]
        self.asked.append(path)
        if path == "status/buildinfo":
            prometheus_server.send(handler, '{"status": "success", "data": {"version": "2.24.0"}}')
        elif path == "rules" and isinstance(self.rules, int):
            prometheus_server.send(handler, "no such page", self.rules, "text/plain")
        else:
            prometheus_server.send(handler, self.rules if path == "rules" else self.samples)


def groups(*rules, interval=15):
    rules = [{"type": "recording", "health": "ok", **one} for one in rules]
    return {"groups": [{"name": "x", "interval": interval, "rules": rules}]}


def rule(query="1", name="a:b", **more):
    return {"name": name, "query": query, **more}


def looked_back(liar, query="a:b", declared=None):
    with prometheus_server.serving(liar.answer) as url:
        try:
            return lineage.Lineage(prometheus.Prometheus(server.access({"url": url}.get))).looks_back(query, declared)
        except lineage.NotKnownError as error:
            return str(error)


CHAIN = [rule(f"r{number + 1}", f"r{number}") for number in range(2000)]
WIDE = [rule(" + ".join(f"r{number}" for number in range(600))), *(rule("x", f"r{number}") for number in range(600))]
TOO_MANY = "is made of more rules than 30 over each other, or 500 in all"
NOT_SO = "is not that of a Prometheus server"
LIES = {
    "a circle": (groups(rule("rate(c[1m])"), rule("d", "c"), rule("{'a:b'} + 1", "d")), None),
    "a long chain": (groups(rule("r0"), *CHAIN), TOO_MANY),
    "no rules": ({"groups": []}, "shows no rules, and only Prometheus itself is known to have none then"),
    "no interval": ({"groups": [{"rules": [rule(type="recording")]}]}, NOT_SO),
    "many rules": (groups(*WIDE), TOO_MANY),
    "many selectors": (
        groups(rule(" + ".join(f"x{number}" for number in range(200)))),
        "it is made of the series of more than 30 selectors",
    ),
    "a query that is none": (groups(rule("\x1b[31m((((" + "(" * 5000)), "is not followed from "),
    "a part of its rules": ({**groups(rule()), "groupNextToken": "x"}, "shows only a part of its rules"),
    **{f"the interval {one}": (groups(rule(), interval=one), NOT_SO) for one in (0, -1e9, 1e300, "15s")},
    "a list as a name": (groups(rule(name=["a:b"])), NOT_SO),
    "groups that are none": ({"groups": [7, None]}, NOT_SO),
    "too many": (groups(*(rule(name="a" * 4000) for _number in range(1200))), "is larger than 4 MiB"),
    "nested": ('{"status": "success", "data": ' + "[" * 100_000, "its answer cannot be read"),
    "hidden": (403, "refuses access (status 403)"),
}


@pytest.mark.night(after=4)
@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_about_its_rules_gets_a_sentence(lie):
    rules, said = LIES[lie]
    answer = looked_back(Liar(rules))
    assert answer.seconds == lineage.ENDLESS if said is None else said in answer, answer
    assert "\x1b" not in str(answer) and len(str(answer)) < 900
    # What it hides or makes up is replaced by what the user says; what is known to have no end is not.
    assert looked_back(Liar(rules), declared=90.0).seconds == (lineage.ENDLESS if said is None else 90.0)


def test_an_absurd_interval_is_what_it_says():
    assert looked_back(Liar(groups(rule("time()"), interval=86400))).seconds == 86400
    assert looked_back(Liar(groups(rule("x[30d] offset 900y"), interval=1e9))).seconds == lineage.ENDLESS
    assert looked_back(Liar(groups(rule()), gap=1e-3), "x").seconds == 1e-3
    # A moment is a number, whatever it is.
    assert NOT_SO in looked_back(Liar(groups(rule()), gap="1"), "x")
    assert "has fewer than two samples of x in 10 min" in looked_back(Liar(groups(rule()), samples=1), "x")


def test_what_makes_it_so_is_said_and_what_the_user_says_counts_where_it_is_more():
    rules = groups(rule("max(r:2m offset 5s)"), rule("rate(x[2m])", "r:2m"), rule("max(s) or vector(1)", "s"))
    found = looked_back(Liar(rules))
    # A rule over a rule of its group may see what that one made an evaluation earlier.
    assert found.seconds == 15 + 5 + 2 * 15 + 120 + 15 and found.said == (
        "the rule a:b is evaluated every 15 s and looks back 5 s",
        "the rule r:2m is evaluated every 15 s and looks back 2 min",
        "x has a sample every 15 s",
    )
    assert looked_back(Liar(rules), "s").said[-1] == "the rule s is made of its own values"
    elsewhere = "job:other has the name of a rule's series, and no rule of the metrics server makes it"
    assert looked_back(Liar(rules), "job:other") == elsewhere
    said = (f"its looks_back says so, because {elsewhere}",)
    assert looked_back(Liar(rules), "avg_over_time(job:other[2m])", 90.0) == lineage.Path(120.0, said)
    assert looked_back(Liar(rules), "x", 90.0) == lineage.Path(90.0, ("its looks_back says so",))
    assert looked_back(Liar(rules), "rate(x[5m] @ 1)", 90.0).seconds == lineage.ENDLESS


def test_a_million_jobs_or_names_are_too_many():
    liar = Liar(groups(rule()), series=2000)
    assert "has series of 2000 jobs for x" in looked_back(liar, "x")
    assert "has series of 2000 names for {x=" in looked_back(liar, '{x="y"}')
