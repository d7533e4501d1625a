# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers that speak HTTP in every way, lie or mean harm; a real Prometheus; and numbers that are read on a host."""

import contextlib
import datetime
import functools
import gzip
import itertools
import json
import subprocess
import zlib

import night
import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import (
    base,
    lineage,
    on_host,
    prometheus,
    promql,
    server,
)

BEGIN = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
AT = BEGIN.timestamp()


def source(url, seconds=server.ANSWER_SECONDS, **variables):
    return prometheus.Prometheus(server.access({"url": url, **variables}.get), seconds)


def refusal(address, query="load", **variables):
    with pytest.raises(server.SourceError) as caught:
        source(address, **variables).instant(query)
    said = str(caught.value)
    assert said.startswith(f"the metrics server {address}") and caught.value.__cause__ is None
    assert "\n" not in said and "\x1b" not in said and "hidden" not in said and "s3cret" not in said
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
LARGE = "its answer is larger than 4 MiB: does the query give one number for each host?"
COLOURS = b'{"status": "error", "error": "\\u001b[31mred\\nline"}'
# Sent, and said.
BROKEN = {
    "nothing of gzip": (sized(ANSWER, GZIP), "its answer broke off: Not a gzipped file"),
    "a packed body that ends early": (sized(PACKED[:-20], GZIP), "its answer broke off: Compressed file ended before"),
    "a packed body with a wrong sum": (sized(spoilt(len(PACKED) - 8), GZIP), "its answer broke off: CRC check failed"),
    "a bomb in chunks": (chunks(bomb(16), 1000, GZIP), LARGE),
    "packed by another way": (sized(ANSWER, b"Content-Encoding: gzip, br\r\n"), "is packed as gzip, br, which nobody"),
    "a chunk without a size": (chunks(ANSWER, 10, end=b"zz\r\n"), "its answer broke off: "),
    "no HTTP at all": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", NO_HTTP + "SSH-2.0"),
    "no server behind": (of_status("502 x", b"", "text/html"), "answers no queries now (status 502): it is starting"),
    "a redirect": (of_status("302 x"), "redirects elsewhere (status 302), which is not followed: give the address"),
    "forbidden": (of_status("403 x", b"hidden-token", "text/plain"), "refuses access (status 403): check smt_trial_"),
    "no reason": (of_status("400 x", b"{}"), "refuses the query (status 400): it does not say why"),
    "colours": (of_status("400 x", COLOURS), "refuses the query (status 400): \\x1b[31mred line"),
    "a huge number": (sized(vector("1e308")), "gives 1e308 for load, which is no number to judge by"),
    "other data": (data(data={"resultType": "vector", "result": [7]}), "is not that of a Prometheus server"),
    "a part": (sized(vector(isPartial=True)), "answers with a part of its numbers: one of its stores is lost"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_answer_gets_a_sentence(name):
    sent, said = BROKEN[name]
    with prometheus_server.raw(sent) as address:
        assert said in refusal(address, token="hidden-token")


def test_who_ends_early_who_is_not_there_and_who_redirects():
    for sent, said in ((sized(ANSWER)[:-9], "9 bytes are missing"), (chunks(ANSWER, 10, end=b""), "IncompleteRead")):
        with prometheus_server.serving(lambda handler, sent=sent: handler.wfile.write(sent)) as address:
            assert f"its answer broke off: {said}" in refusal(address)
    said = refusal(f"http://127.0.0.1:{prometheus_server.free_port()}")
    assert said.endswith("cannot be reached: Connection refused")
    elsewhere = []
    with (
        prometheus_server.serving(lambda handler: elsewhere.append(handler.headers)) as other,
        prometheus_server.serving(lambda it: prometheus_server.send(it, "", 302, Location=other)) as address,
    ):
        refusal(address, token="hidden")
    assert elsewhere == []


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
# What is sent again and again, after what: more slowly than a limit of size or number is reached, and faster than a
# wait for one part of it ends.
SLOW = {
    "packed parts without content": (OK + GZIP + b"\r\n", (gzip.compress(b"") * 1000,)),
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
        with one.at_most(0.0), pytest.raises(server.SourceError, match="took all of the time there is"):
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
    assert found == base.Series(((AT, 1.0), (AT + 30, 2.0)), 3)
    assert over([AT + 15, "2"], *no_numbers[:1]).points == ((AT + 15, 2.0),)


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


NO_ADDRESS = "url is no address such as http://prometheus.example.com:9090"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"token": "Bearer hidden"}, "token has a blank in it, or a letter"),
        ({"token": "hidden\r\nX-Other: hidden"}, "token has a line break"),
        ({"token": 4242}, "token is a number"),
        ({"token": "hidden", "user": "me"}, "token and smt_trial_metrics_user are both set"),
        ({"user": "me:hidden", "password": "x"}, "user has a colon in it"),
        *(({"url": one}, "url has a user or a password in it") for one in ("http://hidden:hidden@h:1", "//hidden@h")),
        *(({"url": f"http://h:1{one}"}, "url has a part in it that begins with ? or #") for one in ("?hidden", "/#h")),
        *(({"url": f"http://{one}"}, NO_ADDRESS) for one in ("", "h:99999", "h:hidden", "[hidden", "h/hid den")),
        *(({"url": one}, NO_ADDRESS) for one in (None, "http://h\u00fcdden:1", "ftp://hidden", "h:9090")),
        ({"url": ["http://u:hidden@h"]}, "url is a list"),
        ({"ca": "/nowhere/hidden"}, "ca names no file that can be read here (No such file or directory)"),
        ({"key": "-----BEGIN PRIVATE KEY-----\nhidden\n"}, "key has a line break"),
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
    "as a label": lambda said: sized(ANSWER.replace(b"{}", json.dumps({"a": said + "x" * 5000}).encode())),
    "as its content type": lambda said: of_status("200 OK", b"", said),
    "as its packing": lambda said: sized(ANSWER, f"Content-Encoding: {said}\r\n".encode()),
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
TOO_MANY = "is made of more rules than 30 over each other, or 500 in all"
NOT_SO = "is not that of a Prometheus server"
LIES = {
    "a circle": (groups(rule("rate(c[1m])"), rule("d", "c"), rule("{'a:b'} + 1", "d")), None),
    "a long chain": (groups(rule("r0"), *CHAIN), TOO_MANY),
    "no rules": ({"groups": []}, "shows no rules, and only Prometheus itself is known to have none then"),
    "no interval": ({"groups": [{"rules": [rule(type="recording")]}]}, NOT_SO),
    "many selectors": (groups(rule(" + ".join(f"x{n}" for n in range(200)))), "the series of more than 30 selectors"),
    "a query that is none": (groups(rule("\x1b[31m((((" + "(" * 5000)), "is not followed from "),
    **{f"the interval {one}": (groups(rule(), interval=one), NOT_SO) for one in (0, 1e300, "15s")},
    "too many": (groups(*(rule(name="a" * 4000) for _number in range(1200))), "is larger than 4 MiB"),
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
    assert looked_back(Liar(rules), "rate(x[5m] @ 1)", 90.0).seconds == lineage.ENDLESS


def test_a_million_jobs_are_too_many_and_one_sample_too_few():
    assert "has series of 2000 jobs for x" in looked_back(Liar(groups(rule()), series=2000), "x")
    assert "has fewer than two samples of x in 10 min" in looked_back(Liar(groups(rule()), samples=1), "x")


SECRET = "s3cret-token"
BCRYPT_OF_SECRET = "$2b$04$abcdefghijklmnopqrstuuNG0Z9xYjgj3pkzN.YpYToaPHOmIUPo."
ONE = "a metric has to be one number for each host"
EXPORTED = 'load 1\nworkers{pool="a"} 3\nworkers{pool="b"} 4\nbroken NaN\n'


@pytest.fixture(name="service", scope="module")
def a_scraped_service(tmp_path_factory):
    """(Address of the server, instance)."""
    exporter = prometheus_server.Exporter(is_punctual=True)
    exporter.text = EXPORTED
    with prometheus_server.serving(exporter.answer) as address:
        instance = address.removeprefix("http://")
        directory = tmp_path_factory.mktemp("prometheus")
        with prometheus_server.prometheus(directory, [instance]) as url:
            exporter.wait(3)
            yield url, instance


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ('load{{instance="{instance}"}}', 1.0),
        ("sum(workers)", 7.0),
        ("workers", f" has 2 series for workers, which differ by pool: {ONE}, so sum them or name one"),
        ("broken", " gives NaN for broken, which is no number to judge by"),
        ("load / 0", " gives +Inf for load / 0, which is no number to judge by"),
        ("rate(load", "unclosed left parenthesis"),
        ('load{{instance="127.0.0.2:{port}"}}', ": it knows no instance '127.0.0.2:{port}'; there is {instance}"),
    ],
)
def test_a_query_gives_its_number_now_or_a_sentence(service, query, value):
    url, instance = service
    names = {"instance": instance, "port": instance.rpartition(":")[2]}
    query = query.format(**names)
    if isinstance(value, float):
        assert source(url).instant(query) == value
    else:
        assert refusal(url, query).endswith(value.format(**names))


def test_a_server_with_tls_and_a_password(tmp_path):
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    made = [*made.split(), "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"]
    subprocess.run(made, check=True, capture_output=True)
    config = {"tls_server_config": {"cert_file": "cert.pem", "key_file": "key.pem"}}
    config["basic_auth_users"] = {"trial": BCRYPT_OF_SECRET}
    given = {"ca": str(tmp_path / "cert.pem"), "user": "trial", "password": SECRET}
    with prometheus_server.prometheus(tmp_path, [], config, "https", credentials=("trial", SECRET)) as url:
        assert source(url, **given).instant("vector(1)") == 1.0
        said = refusal(url, **{**given, "ca": ""})
        assert "certificate verify failed" in said or "self-signed" in said
        assert " refuses access (status 401)" in refusal(url, **{**given, "password": "wrong"})
        assert " refuses access (status 401)" in refusal(url, ca=given["ca"], token=SECRET)


def labelled(word, doublings):
    """A query whose answer has a label of ``len(word) * 2**doublings`` letters."""
    query = f'label_replace(vector(7), "a", "{word}", "", "")'
    for _turn in range(doublings):
        query = f'label_join({query}, "a", "", "a", "a")'
    return query


def test_answers_of_every_size_from_prometheus_itself(service):
    """Answers of a real server from 100 bytes to the limit, each value of which is known."""
    asked = source(service[0])
    # A day at each check of 2 s would be more points than a server gives: there are fewer of them, further apart.
    for seconds, step, between in ((0, 15, 15), (300, 15, 15), (300, 2, 2), (3600, 2, 2), (86_400, 2, 9)):
        found = asked.over("time() * 1.1", BEGIN, BEGIN + datetime.timedelta(seconds=seconds), step)
        moments = [AT + number * between for number in range(seconds // between + 1)]
        assert [moment for moment, _value in found.points] == moments and found.expected == len(moments)
        assert [value for _moment, value in found.points] == pytest.approx([moment * 1.1 for moment in moments])
    # About where Prometheus begins with chunks, and where nginx begins with files.
    for letters, doublings in ((1, 0), (1860, 0), (1960, 0), (2060, 0), (1000, 7), (1000, 10), (31, 17)):
        data = asked._asked("query", {"query": labelled("x" * letters, doublings)}, dict)
        assert len(data["result"][0]["metric"]["a"]) == letters * 2**doublings and data["result"][0]["value"][1] == "7"
    with pytest.raises(server.SourceError, match="larger than 4 MiB"):
        asked.instant(labelled("x" * 32, 17))


FILE = """# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{code="200",method="get"} 1027 1395066363000
requests_total{method="post", code="200"} 3
 load   0.5
escaped{path="C:\\\\DIR\\"x"} 7
broken NaN
"""


def test_a_sample_of_a_file():
    for sample, value in (
        ('requests_total{method="get",code="200"}', 1027.0),
        ('requests_total{code="200", method="post"}', 3.0),
        ("load", 0.5),
        ('escaped{path="C:\\\\DIR\\"x"}', 7.0),
        *((one, None) for one in ("broken", "requests_total", 'requests_total{code="200"}', "no such {sample")),
    ):
        assert on_host.File().number(("", sample), FILE) == value, sample


def test_what_a_command_prints():
    number = functools.partial(on_host.Command().number, ())
    assert number("1.5\n") == 1.5
    assert {number(one) for one in ("", "1 2", "NaN", "inf", "1e308", "\x1b[31m1", "many")} == {None}


def test_a_counter_has_a_rate_but_not_over_a_reset_or_a_gap():
    rate = on_host.Rate()
    readings = [(0, 100.0), (10, 150.0), (20, 30.0), (30, 60.0), (40, None), (50, 90.0), (60, 95.0)]
    assert [rate.feed(now, value) for now, value in readings] == [None, 5.0, None, 3.0, None, None, 0.5]
    assert rate.resets == 1


USES = {
    "load": [("load", 0)],
    "rate(requests[1h30m])": [("requests", 5400)],
    # One moment is the same in each period.
    "rate(a[5m] @ 1609746000)": [("a", schema.MAX_SECONDS)],
    "rate(a[1m] @ end())": [("a", 60)],
    'load{path="[9h]"}': [("load", 0)],
    "sum by (le, instance) (rate(a[1m])) / on (le) group_left (x) b": [("a", 60), ("b", 0)],
    'label_replace(a, "__name__", "b", "c", "[5m]")': [("a", 0)],
    "histogram_quantile(0.99, sum(rate(a_bucket[1m])) without (x,))": [("a_bucket", 60)],
    '{"a.b", "x.y"=~"z"}': [("a.b", 0)],
    '{__name__=~"a|b"}': [(None, 0)],
    # Only the server reads escapes.
    '{__name__="\\x61"}': [(None, 0)],
    "vector(1) + time()": [],
}


@pytest.mark.parametrize("query", USES)
def test_which_series_a_query_counts_and_how_far_it_looks_back(query):
    assert [(one.selector.name, one.seconds) for one in promql.uses(query)] == USES[query]


NO_DURATION = " where a duration such as 5m is known here"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("rate(a)", "has rate without a range, which a server chooses: write it, such as [1m]"),
        *((f"rate(a[{one}])", f"has {one}{NO_DURATION}") for one in ("5i", "$__interval", "1m * 2", "")),
        ("rate(a[" + "9" * 5000 + "s])", NO_DURATION),
        ("WITH (r = 5m) rate(a[r])", "is not followed from '=' on, at character 9"),
        ('{a="b" or c="d"}', "is not followed from 'or' on"),
        ("sum(a", "is not followed from 'its end' on"),
        ("a @ b", "is not followed from 'b' on"),
        ("\x1b[31m", "is not followed from '\\x1b[31m' on, at character 1"),
        ("(" * 10_000, "is nested more than 100 times"),
        ("a" * 100_001, "has 100001 characters, more than 100000"),
        ("ALERTS_FOR_STATE", "is about ALERTS_FOR_STATE, which depends on how long alerts have lasted"),
    ],
)
def test_what_is_not_followed_is_named(query, said):
    with pytest.raises(promql.QueryError) as caught:
        promql.uses(query)
    assert said in str(caught.value) and len(str(caught.value)) < 400 and "\x1b" not in str(caught.value)
