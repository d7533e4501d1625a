# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP as real servers speak it: Prometheus with answers of every size, alone and behind nginx;
and as servers that mean harm do.
"""

from __future__ import annotations

import contextlib
import datetime
import gzip
import itertools
import json
import zlib

import prometheus_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._metric_sources import prometheus, server

BEGIN = datetime.datetime(2026, 11, 25, 12, tzinfo=datetime.UTC)
AT = BEGIN.timestamp()
PASSWORD = "s3cret-pass"


@pytest.fixture(name="url", scope="module")
def a_prometheus(tmp_path_factory):
    with prometheus_server.prometheus(tmp_path_factory.mktemp("prometheus"), []) as address:
        yield address


def source(url, seconds=server.ANSWER_SECONDS, **variables):
    return prometheus.Prometheus(server.access({"url": url, **variables}.get), seconds)


def labelled(word, doublings):
    """A query whose answer has a label of ``len(word) * 2**doublings`` letters."""
    query = f'label_replace(vector(7), "a", "{word}", "", "")'
    for _turn in range(doublings):
        query = f'label_join({query}, "a", "", "a", "a")'
    return query


def read_in_every_size(source):
    """Read answers of a real server from 100 bytes to the limit, each value of which is known."""
    # A day at each check of 2 s would be more points than a server gives: there are fewer of them, further apart.
    for seconds, step, between in (
        (0, 15, 15),
        (300, 15, 15),
        (1200, 15, 15),
        (300, 2, 2),
        (3600, 2, 2),
        (86_400, 2, 9),
    ):
        found = source.over("time() * 1.1", BEGIN, BEGIN + datetime.timedelta(seconds=seconds), step)
        moments = [AT + number * between for number in range(seconds // between + 1)]
        assert [moment for moment, _value in found.points] == moments and found.expected == len(moments)
        assert [value for _moment, value in found.points] == pytest.approx([moment * 1.1 for moment in moments])
    # About where Prometheus begins with chunks, and where nginx begins with files.
    for letters, doublings in ((1, 0), (1860, 0), (1960, 0), (2060, 0), (1000, 7), (1000, 10), (31, 17)):
        data = source._asked("query", {"query": labelled("x" * letters, doublings)})
        assert len(data["result"][0]["metric"]["a"]) == letters * 2**doublings and data["result"][0]["value"][1] == "7"
    with pytest.raises(server.SourceError, match="larger than 4 MiB"):
        source.instant(labelled("x" * 32, 17))


def test_answers_of_every_size_from_prometheus_itself(url):
    read_in_every_size(source(url))


PROXIES = {
    "as Debian has it": (),
    "without buffers": ("proxy_buffering off",),
    "HTTP/1.1 behind it, and connections kept": ("proxy_http_version 1.1", 'proxy_set_header Connection ""'),
    "HTTP/1.1 without buffers": ("proxy_http_version 1.1", "proxy_buffering off"),
    "nginx packs": (
        'proxy_set_header Accept-Encoding ""',
        "gzip on",
        "gzip_proxied any",
        "gzip_types application/json",
        "gzip_min_length 0",
    ),
    "nginx packs without buffers": (
        'proxy_set_header Accept-Encoding ""',
        "gzip on",
        "gzip_proxied any",
        "gzip_types application/json",
        "proxy_buffering off",
    ),
    "nobody packs": ('proxy_set_header Accept-Encoding ""',),
    "small buffers": ("proxy_buffers 2 4k", "proxy_buffer_size 4k", "proxy_busy_buffers_size 4k"),
}


@pytest.mark.parametrize("name", PROXIES)
def test_answers_of_every_size_through_nginx(url, tmp_path, name):
    with prometheus_server.nginx(tmp_path, url, *PROXIES[name]) as front:
        read_in_every_size(source(front))


def test_a_user_of_nginx(url, tmp_path):
    (tmp_path / "users").write_text(f"trial:{{PLAIN}}{PASSWORD}\n")
    with prometheus_server.nginx(
        tmp_path,
        url,
        'proxy_set_header Authorization ""',
        server=('auth_basic "x"', f"auth_basic_user_file {tmp_path}/users"),
    ) as front:
        read_in_every_size(source(front, user="trial", password=f"{PASSWORD}\n"))
        with pytest.raises(server.SourceError, match="refuses access"):
            source(front, user="trial", password="wrong").instant("vector(1)")


def test_what_nginx_says_while_nothing_is_behind_it(tmp_path):
    with prometheus_server.nginx(tmp_path, f"http://127.0.0.1:{prometheus_server.free_port()}") as front:
        with pytest.raises(server.SourceError, match=r"answers no queries now \(status 502\)"):
            source(front).instant("load")
        with pytest.raises(server.SourceError, match=r"refuses a query for its length \(status 414\)"):
            source(front).instant(f"load + {'1 + ' * 20_000} 1")


ANSWER = json.dumps(
    {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1.0, "7"]}]}}
).encode()
JSON = b"Content-Type: application/json\r\n"
OK = b"HTTP/1.1 200 OK\r\n" + JSON


def sized(body, *headers):
    return b"".join([OK, *headers, b"Content-Length: %d\r\n\r\n" % len(body), body])


def chunks(body, size, *headers, end=b"0\r\n\r\n"):
    """A body in chunks, with an extension of each that nobody needs."""
    pieces = (body[place : place + size] for place in range(0, len(body), size))
    return b"".join(
        [
            OK,
            *headers,
            b"Transfer-Encoding: chunked\r\n\r\n",
            *(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces),
            end,
        ]
    )


GZIP = b"Content-Encoding: gzip\r\n"
PACKED = gzip.compress(ANSWER)
# The servers keep the connection open: whoever reads on until it is closed waits until the limit.
WHOLE = {
    "a length": sized(ANSWER),
    "chunks": chunks(ANSWER, 10),
    "chunks of one byte": chunks(ANSWER, 1),
    "chunks and trailers": chunks(ANSWER, 50, end=b"0\r\nX-Sum: 1\r\n\r\n"),
    "packed with a length": sized(PACKED, GZIP),
    "packed in chunks": chunks(PACKED, 7, GZIP),
    "packed in two parts": sized(gzip.compress(ANSWER[:40]) + gzip.compress(ANSWER[40:]), GZIP),
    "packed by its old name": sized(PACKED, b"Content-Encoding: X-GZip\r\n"),
    "not packed, in words": sized(ANSWER, b"Content-Encoding: identity\r\n"),
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


flipped = bytearray(PACKED)
flipped[len(PACKED) // 2] ^= 0xFF
wrong_sum = bytearray(PACKED)
wrong_sum[-8] ^= 0xFF
BROKEN = {
    "nothing of gzip": (sized(ANSWER, GZIP), "its answer broke off: Not a gzipped file"),
    "a packed body that ends early": (sized(PACKED[:-20], GZIP), "its answer broke off: Compressed file ended before"),
    "a packed body of which a bit is wrong": (sized(bytes(flipped), GZIP), "its answer broke off: "),
    "a packed body with a wrong sum": (sized(bytes(wrong_sum), GZIP), "its answer broke off: CRC check failed"),
    "a packed body with more after it": (sized(PACKED + b"more", GZIP), "its answer broke off: Not a gzipped file"),
    "an empty packed body": (sized(b"", GZIP), "its answer cannot be read: not a complete JSON document"),
    "a bomb": (sized(bomb(64), GZIP), "its answer is larger than 4 MiB"),
    "a bomb in chunks": (chunks(bomb(64), 1000, GZIP), "its answer is larger than 4 MiB"),
    "packed twice": (sized(gzip.compress(PACKED), GZIP), "its answer cannot be read"),
    "packed twice, as it says": (
        sized(gzip.compress(PACKED), b"Content-Encoding: gzip, gzip\r\n"),
        "its answer is packed as gzip, gzip, which nobody asked for",
    ),
    "packed by another way": (
        sized(ANSWER, b"Content-Encoding: br\r\n"),
        "its answer is packed as br, which nobody asked for",
    ),
    "deflate": (
        sized(zlib.compress(ANSWER), b"Content-Encoding: deflate\r\n"),
        "its answer is packed as deflate, which nobody asked for",
    ),
    "a chunk without a size": (chunks(ANSWER, 10, end=b"zz\r\n"), "its answer broke off: "),
    "a chunk with a line that is too long": (chunks(ANSWER, 10, end=b"a;" + b"x" * 100_000), "its answer broke off: "),
    "no HTTP at all": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not answer as HTTP says: SSH-2.0"),
    "a version of HTTP that is none": (b"HTTP/9.9 200 OK\r\n\r\n", "does not answer as HTTP says: HTTP/9.9"),
    "a status that is none": (b"HTTP/1.1 abc OK\r\n\r\n", "does not answer as HTTP says: HTTP/1.1 abc OK"),
    "a status of many digits": (b"HTTP/1.1 " + b"9" * 5000 + b" OK\r\n\r\n", "does not answer as HTTP says: "),
    "a header that is too long": (
        OK + b"X: " + b"x" * 100_000,
        "does not answer as HTTP says: got more than 65536 bytes",
    ),
    "headers that are too many": (OK + b"X: y\r\n" * 1000, "does not answer as HTTP says: got more than 100 headers"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", "answers with nothing and status 204 instead of JSON"),
    "too many queries": (
        b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n",
        "refuses so many queries (status 429): give fewer with a longer smt_trial_check",
    ),
    "no reason": (
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        "refuses the query (status 400): it does not say why",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_answer_gets_a_sentence(name):
    sent, said = BROKEN[name]
    with prometheus_server.raw(sent) as address, pytest.raises(server.SourceError) as caught:
        source(address).instant("load")
    assert str(caught.value).startswith(f"the metrics server {address}") and said in str(caught.value)
    assert caught.value.__cause__ is None and "\n" not in str(caught.value)


def test_an_answer_of_which_the_end_is_missing():
    def cut(handler):
        handler.wfile.write(sized(ANSWER)[:-9])

    with (
        prometheus_server.serving(cut) as address,
        pytest.raises(server.SourceError, match="its answer broke off: 9 bytes are missing"),
    ):
        source(address).instant("load")


def test_chunks_of_which_the_end_is_missing():
    def cut(handler):
        handler.wfile.write(chunks(ANSWER, 10, end=b""))

    with (
        prometheus_server.serving(cut) as address,
        pytest.raises(server.SourceError, match="its answer broke off: IncompleteRead"),
    ):
        source(address).instant("load")


# What is sent again and again, after what.
SLOW = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "what is not yet an answer": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "the size of a chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a chunk of a size below nothing": (OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n", b"x"),
    "trailers": (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
    "a body": (OK + b"Content-Length: 1000000\r\n\r\n", b" "),
    "a body without a length": (OK + b"\r\n", b" "),
    "the name in a packed body": (OK + GZIP + b"\r\n" + b"\x1f\x8b\x08\x08" + bytes(6), b"x"),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_comes_slowly_or_never_ends_at_the_time_limit(name):
    first, drip = SLOW[name]
    # More slowly than a limit of size or number is reached, and faster than a wait for one part of it ends.
    with (
        prometheus_server.raw(first, drips=(drip, 0.05)) as address,
        pytest.raises(server.SourceError, match=r"was not there after [12] s|timed out"),
    ):
        source(address, 1.0).instant("load")


@pytest.mark.parametrize(
    "packed", [gzip.compress(b""), b"\x1f\x8b\x08\x08" + bytes(6) + b"x" * 65536], ids=["empty", "named"]
)
def test_packed_parts_without_content_end_at_the_time_limit(packed):
    with (
        prometheus_server.raw(OK + GZIP + b"\r\n", drips=(packed * 1000,)) as address,
        pytest.raises(server.SourceError, match=r"was not there after 2 s|broke off"),
    ):
        source(address, 1.0).instant("load")


def test_all_answers_of_a_check_take_one_limit_together():
    """A check with many queries does not last longer than the host's rollback timer, whatever each of them takes."""
    asked = []

    def slow(handler):
        asked.append(handler.path)
        prometheus_server.send(handler, ANSWER)

    with prometheus_server.serving(slow) as address:
        slow_source = source(address)
        with slow_source.at_most(60.0):
            assert slow_source.instant("load") == 7.0
        with (
            slow_source.at_most(0.0),
            pytest.raises(server.SourceError, match="its answers before this one took all of the time there is"),
        ):
            slow_source.instant("load")
        assert slow_source.instant("load") == 7.0
    assert len(asked) == 2


def matrix(values):
    return json.dumps(
        {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}}
    )


def over(values, seconds=30, step=15):
    with prometheus_server.serving(lambda handler: prometheus_server.send(handler, matrix(values))) as address:
        return source(address).over("load", BEGIN, BEGIN + datetime.timedelta(seconds=seconds), step)


@pytest.mark.parametrize("moment", [1e200, -1e200, 1e308, 10**99, 0, -1, AT - 15, AT + 45, AT - 0.5, AT + 30.5])
def test_a_moment_that_was_not_asked_for_is_no_point(moment):
    assert over([[AT, "1"], [moment, "1000"], [AT + 30, "2"]]) == prometheus.Series(((AT, 1.0), (AT + 30, 2.0)), 3)


@pytest.mark.parametrize(
    "sample",
    [
        [True, "1"],
        ["1", "1"],
        [None, "1"],
        [AT, 1],
        [AT, None],
        [AT, True],
        [AT],
        [AT, "1", "2"],
        [],
        {},
        "x",
        [[AT], "1"],
        [AT, "1" * 200],
    ],
)
def test_what_is_no_sample_is_refused(sample):
    with pytest.raises(server.SourceError, match="its answer is not that of a Prometheus server"):
        over([[AT, "1"], sample])


@pytest.mark.parametrize("written", ["NaN", "+Inf", "-Inf", "1e101", "-1e308", "", "many", "1,5", "0x10"])
def test_a_value_that_is_no_number_is_no_point(written):
    assert over([[AT, written], [AT + 15, "2"]]).points == ((AT + 15, 2.0),)


def test_points_are_in_order_and_once():
    assert over([[AT + 30, "3"], [AT, "1"], [AT, "1"], [AT + 15, "2"]]).points == (
        (AT, 1.0),
        (AT + 15, 2.0),
        (AT + 30, 3.0),
    )


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "1e400", "9" * 5000])
def test_a_moment_that_is_no_number_of_json_is_refused(constant):
    sent = matrix([[1, "1"]]).replace("[[1,", f"[[{constant},")
    with (
        prometheus_server.serving(lambda handler: prometheus_server.send(handler, sent)) as address,
        pytest.raises(server.SourceError, match="cannot be read"),
    ):
        source(address).over("load", BEGIN, BEGIN, 15)


ODD = (None, True, 0, 1e300, "x", "", [], {}, [[]], [{}], {"a": 1}, [1, "1"])


def test_answers_of_every_form_are_a_number_or_a_sentence():
    """Every part of an answer is replaced by every odd value."""
    document = json.loads(ANSWER)
    parts = [(), ("status",), ("data",), ("data", "resultType"), ("data", "result"), ("data", "result", 0)]
    parts += [
        ("data", "result", 0, "metric"),
        ("data", "result", 0, "value"),
        ("data", "result", 0, "value", 0),
        ("data", "result", 0, "value", 1),
    ]
    sent = []
    with prometheus_server.serving(lambda handler: prometheus_server.send(handler, json.dumps(sent[-1]))) as address:
        for part, odd in itertools.product(parts, ODD):
            changed = json.loads(json.dumps(document))
            at = changed
            for key in part[:-1]:
                at = at[key]
            if part:
                at[part[-1]] = odd
            sent.append(changed if part else odd)
            with contextlib.suppress(server.SourceError):
                assert source(address).instant("load") in (1.0, 7.0)


@pytest.mark.parametrize("field", ["histogram", "histograms"])
def test_a_native_histogram_is_no_number(field):
    kind, ask = ("vector", "instant") if field == "histogram" else ("matrix", "over")
    of_histogram = [1.0, {"count": "6", "sum": "20", "buckets": [[0, "1", "2", "6"]]}]
    one = {"metric": {}, field: of_histogram if field == "histogram" else [of_histogram]}
    sent = json.dumps({"status": "success", "data": {"resultType": kind, "result": [one]}})
    with (
        prometheus_server.serving(lambda handler: prometheus_server.send(handler, sent)) as address,
        pytest.raises(server.SourceError, match="gives a histogram for load: ask for one number"),
    ):
        getattr(source(address), ask)("load", *(() if ask == "instant" else (BEGIN, BEGIN, 15)))


def test_what_a_server_remarks_does_not_matter():
    sent = json.dumps({**json.loads(ANSWER), "warnings": ["x"] * 1000, "infos": {"y": []}})
    with prometheus_server.serving(lambda handler: prometheus_server.send(handler, sent)) as address:
        assert source(address).instant("load") == 7.0


def test_a_hundred_thousand_series_and_names_take_no_longer_than_one():
    series = [{"metric": {"n": str(number)}, "value": [1, "1"]} for number in range(50_000)]
    names = [f"web{number:06}.example.com:9100" for number in range(100_000)]
    sent = {"query": {"resultType": "vector", "result": series}, "values": names}

    def answer(handler):
        prometheus_server.send(
            handler, json.dumps({"status": "success", "data": sent[handler.path.partition("?")[0].rpartition("/")[2]]})
        )

    with prometheus_server.serving(answer) as address:
        with pytest.raises(server.SourceError, match="has 50000 series for load, which differ by n: "):
            source(address, 5.0).instant("load")
        sent["query"]["result"] = []
        with pytest.raises(server.SourceError) as caught:
            source(address, 5.0).instant('load{instance="web012345"}')
        assert str(caught.value).endswith(
            ": it knows no instance 'web012345'; there is web012345.example.com:9100, web012495.example.com:9100,"
            " web012485.example.com:9100"
        )
        # Names as long as an answer, and one that is like all others.
        sent["values"] = ["x" * 3_000_000, *(f"web{number:06}" for number in range(80_000))]
        with pytest.raises(server.SourceError, match=r"there is web07999\d, web07999\d, web07999\d$"):
            source(address, 5.0).instant('load{instance="web07999x"}')


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"token": "Bearer hidden"},
            "token has a blank in it, or a letter that is not ASCII: a token is one word, without Bearer before it",
        ),
        ({"token": "hidden\u20ac"}, "token has a blank in it, or a letter that is not ASCII"),
        ({"token": "hidden\u00e9"}, "token has a blank in it, or a letter that is not ASCII"),
        ({"token": "hidden\r\nX-Other: hidden"}, "token has a line break or another character in it"),
        ({"token": ["hidden"]}, "token is a list"),
        ({"token": 4242}, "token is a number"),
        ({"token": "hidden", "user": "me"}, "token and smt_trial_metrics_user are both set"),
        ({"password": "hidden"}, "password is set, and smt_trial_metrics_user is not"),
        ({"user": "me:hidden", "password": "x"}, "user has a colon in it"),
        ({"user": "me", "password": {"x": "hidden"}}, "password is a mapping"),
        ({"url": "http://hidden:hidden@h:1"}, "url has a user or a password in it"),
        ({"url": "http://hidden@h:1"}, "url has a user or a password in it"),
        ({"url": "http://h:1?token=hidden"}, "url has a part in it that begins with ? or #"),
        ({"url": "http://h:1/?hidden"}, "url has a part in it that begins with ? or #"),
        ({"url": "http://h:1/#hidden"}, "url has a part in it that begins with ? or #"),
        ({"url": "http://h:1/?"}, "url has a part in it that begins with ? or #"),
        ({"url": "hidden:hidden@h:1"}, "url is no address such as"),
        ({"url": "//hidden:hidden@h"}, "url has a user or a password in it"),
        ({"url": "http://h:hidden"}, "url is no address such as"),
        ({"url": "http://[hidden"}, "url is no address such as"),
        ({"url": "http://h/hid den"}, "url is no address such as"),
        ({"url": "http://h\u00fcdden:1"}, "url is no address such as"),
        ({"url": "ftp://hidden"}, "url is no address such as"),
        ({"url": ["http://u:hidden@h"]}, "url is a list"),
        ({"url": None}, "url is no address such as"),
        ({"ca": "/nowhere/hidden"}, "ca names no file that can be read here (No such file or directory)"),
        ({"certificate": "hidden" * 1000}, "certificate names no file that can be read here (File name too long)"),
        ({"key": "-----BEGIN PRIVATE KEY-----\nhidden\n"}, "key has a line break or another character in it"),
        ({"key": ["hidden"]}, "key is a list"),
    ],
)
def test_what_cannot_be_used_is_refused_without_showing_it(variables, said):
    with pytest.raises(server.SourceError) as caught:
        server.access({"url": "http://127.0.0.1:1", **variables}.get)
    assert (
        str(caught.value).startswith(f"smt_trial_metrics_{said}")
        and "hid" not in str(caught.value)
        and "4242" not in str(caught.value)
    )
    assert caught.value.__cause__ is None


def test_how_a_server_is_reached_shows_no_credential():
    given = {
        "url": " http://127.0.0.1:1/hidden/prometheus/\n",
        "user": "hidden-user",
        "password": "hidden-password\r\n",
    }
    found = server.access(given.get)
    assert (found.url, found.shown) == ("http://127.0.0.1:1/hidden/prometheus", "http://127.0.0.1:1")
    assert found.password.reveal() == "hidden-password" and "hidden" not in repr(found)


# What a server may do with what it gets.
REPEATS = {
    "in its error": lambda said: sized(json.dumps({"status": "error", "error": f"not {said}"}).encode()),
    "in its error, as JSON has it": lambda said: sized(
        json.dumps({"status": "error", "error": json.dumps([said])}).encode()
    ),
    "cut off in its error": lambda said: sized(json.dumps({"status": "error", "error": f"{'x' * 280}{said}"}).encode()),
    "as its content type": (
        lambda said: f"HTTP/1.1 200 OK\r\nContent-Type: {said}\r\nContent-Length: 0\r\n\r\n".encode()
    ),
    "as its packing": lambda said: sized(ANSWER, f"Content-Encoding: {said}\r\n".encode()),
    "as its status": lambda said: f"HTTP/1.1 {said}\r\n\r\n".encode(),
    "as all that it says": lambda said: f"{said}\r\n\r\n".encode(),
    "as a value": lambda said: sized(ANSWER.replace(b'"7"', json.dumps(said).encode())),
    "as a label, of which too much is there": lambda said: sized(
        ANSWER.replace(b"{}", json.dumps({"a": said + "x" * 5000}).encode())
    ),
    "as the name of a label": lambda said: sized(ANSWER.replace(b"{}", json.dumps({said + "x" * 300: "a"}).encode())),
    "as a kind of result": lambda said: sized(ANSWER.replace(b'"vector"', json.dumps(said).encode())),
}


@pytest.mark.parametrize("name", REPEATS)
@pytest.mark.parametrize(
    "variables", [{"token": 'hidden"token\\'}, {"user": "me", "password": "hidden-password"}], ids=["token", "password"]
)
def test_what_a_server_repeats_is_not_shown(name, variables):
    heads = []

    def repeat(handler):
        heads.append(handler.headers["Authorization"])
        handler.wfile.write(REPEATS[name](heads[0]))

    with prometheus_server.serving(repeat) as address, pytest.raises(server.SourceError) as caught:
        source(address, **variables).instant("load")
    assert heads[0].split()[1][:8] not in str(caught.value) and "hidden" not in str(caught.value)
