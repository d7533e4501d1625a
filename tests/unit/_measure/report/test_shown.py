# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer at the top of a page, the numbers on the terminal in any width, and the page of a trial."""

import re

import pytest
import result_maker
import trial_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import hardware_classes
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import answer
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import terminal_table


def words(count, ending="."):
    return " ".join(f"w{number}" for number in range(count)) + ending


PART = words(20, "")
FULL = f"{PART}; {words(39, '')}; {words(20)}"


@pytest.mark.parametrize(
    ("sentences", "shown", "rest"),
    [
        (["a b.", "c."], ["a b.", "c."], []),
        # As many whole sentences as fit, none of those behind one that does not.
        ([words(30), words(30), "c."], [words(30), words(30)], ["c."]),
        ([words(30), words(31), "c."], [words(30)], [words(31), "c."]),
        # A first one that is too long is shown in part, and folded as a whole.
        ([words(200), "b."], [f"{words(59, '')} \u2026"], [words(200), "b."]),
        ([FULL], [f"{PART}; {words(39, '')} \u2026"], [FULL]),
    ],
)
def test_whole_sentences_open_a_page(sentences, shown, rest):
    assert answer.opening(sentences) == (shown, rest)
    assert sum(len(one.split()) for one in shown) <= answer.MAX_WORDS


ORDERS = {**result_maker.GZIP, "share": 0.45, "title": "orders of a shop, with all of its customers at once"}


def table(width, **workloads):
    """The table of the overview's row of a host."""
    summary = result_maker.summary(result_maker.result(workloads=workloads))
    return terminal_table.lines(list(hardware_classes.row(summary, "a.html").workloads.values()), width)


def test_a_line_for_each_workload():
    head, *rows = table(120, gzip=result_maker.GZIP, orders=ORDERS)
    assert head.split() == ["SMT", "on", "SMT", "off", "change", "interval", "verdict"]
    assert "MB/s" in rows[0] and " to " in rows[0] and rows[0].endswith("worse")
    assert "  +11.2 %  +11.0 to +11.4 %  " in rows[1] and rows[1].endswith("better") and "...  " in rows[1]
    narrow = table(40, gzip=result_maker.GZIP, orders=ORDERS)
    assert max(map(len, narrow)) <= 40 and "worse" in " ".join(narrow)


def test_what_a_host_calls_its_work_is_no_escape_of_the_terminal():
    shown = table(120, own={**result_maker.GZIP, "title": "a\x1b[31mb", "unit": "M\x1b[31mB/s"})
    assert "\x1b" not in "".join(shown) and "\\x1b[31mB/s" in shown[1]


ATTACK = "<script>alert(1)</script>{{ 7 * 7 }}"


def read(path):
    """The page as it is, and its words."""
    page = path.read_text(encoding="utf-8")
    return page, re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


@pytest.fixture(scope="module", name="trial")
def trial_fixture(tmp_path_factory):
    return read(trial_maker.page(tmp_path_factory.mktemp("trial") / "t"))


def test_the_answer_comes_first_and_each_host_is_there(trial):
    page, text = trial
    answer = re.search(r"p99 changes by \+(1|2)[0-9] % \(\+.*?\): worse, after [0-9]+ of 24 observations", text)
    for host in ("web1", "web2", "web3", "web4"):
        assert answer.start() < text.index(host)
    # The service's metric and the traffic of each host, over its arms.
    assert page.count("p99 of web1 in ") and page.count("traffic of web4 in ")
    assert "errors was breached: above 0.01 (0.5)" in text
    page = page.replace("\u00a0", " ")
    change = re.search(r"p99 changes by (\+[0-9]+ % \(\+[0-9]+ to \+[0-9]+ %\)): worse", page)[1]
    # The headline, and labels, marks and alternative texts of both charts.
    assert page.count(change) >= 6 and page.count(f"{change}, worse") >= 2
    # Worse is left of the middle, where the time is longer: the axis has the metric's own change.
    forest = page.partition('aria-label="Change of each')[2].partition("</svg>")[0]
    ticks = re.findall(r">([+\u2212])[0-9]+ %</text>", forest)
    assert set(ticks) == {"+", "\u2212"} and ticks == sorted(ticks)


def test_an_effect_that_is_none_is_not_called_and_a_period_without_a_value_counts_for_nothing(tmp_path):
    _page, text = read(trial_maker.page(tmp_path / "t", effect=0.0))
    assert "p99 changes by" in text and ": worse," not in text and ": better," not in text
    assert re.search("1 of [0-9]+ periods of hosts have no value of p99 .* first period 9 of web4: ", text)


def test_nothing_of_a_host_is_markup(tmp_path):
    hosts = ("web1", "web2", "web3", ATTACK)
    page, _text = read(trial_maker.page(tmp_path / "t", hosts=hosts, reason=ATTACK))
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;{{ 7 * 7 }}" in page
