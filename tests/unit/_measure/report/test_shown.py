# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer at the top of a page, the numbers on the terminal in any width, and the page of a trial."""

import re

import markup
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
        ([], [], []),
        (["a b.", "c."], ["a b.", "c."], []),
        # As many whole sentences as fit, none of those behind one that does not.
        ([words(30), words(30), "c."], [words(30), words(30)], ["c."]),
        ([words(30), words(31), "c."], [words(30)], [words(31), "c."]),
        # A first one that is too long is shown in part, and folded as a whole.
        ([words(200), "b."], [f"{words(59, '')} \u2026"], [words(200), "b."]),
        ([FULL], [f"{PART}; {words(39, '')} \u2026"], [FULL]),
        ([FULL.replace(";", " x;", 1)], [f"{PART} x \u2026"], [FULL.replace(";", " x;", 1)]),
    ],
)
def test_whole_sentences_open_a_page(sentences, shown, rest):
    assert answer.opening(sentences) == (shown, rest)
    assert sum(len(one.split()) for one in shown) <= answer.MAX_WORDS


ORDERS = {**result_maker.GZIP, "share": 0.45, "title": "orders of a shop, with all of its customers at once"}


def table(width, times=1, **options):
    """The table of the overview's row of a host."""
    both = {"gzip": result_maker.GZIP, "orders": ORDERS}
    summary = result_maker.summarised(result_maker.result(workloads=both, **options))
    return terminal_table.lines(list(hardware_classes.row(summary, "a.html")["workloads"].values()) * times, width)


def test_a_line_for_each_workload():
    head, *rows = table(120)
    assert head.split() == ["SMT", "on", "SMT", "off", "change", "interval", "verdict"]
    assert [row.split("  ")[0][:22] for row in rows] == ["gzip of a fixed stream", "orders of a shop, with"]
    assert "MB/s" in rows[0] and " to " in rows[0] and rows[0].endswith("worse")
    assert "  +11.2 %  +11.0 to +11.4 %  " in rows[1] and rows[1].endswith("better") and "...  " in rows[1]
    assert len({row.index(" %  ") for row in rows}) == 1


@pytest.mark.parametrize("width", [60, 40])
def test_a_narrow_terminal_has_more_lines_and_no_longer_ones(width):
    made = table(width)
    assert max(map(len, made)) <= width and "worse" in " ".join(made) and "SMT off" in " ".join(made)


def test_each_two_arms_have_a_part_and_the_rest_is_counted():
    arms = {"as_found": 1.0, "thp_always": 1.2, "thp_never": 0.9}
    assert len([line for line in table(120, arms=arms) if line.startswith(" ")]) == 2
    assert table(120, 11, arms=arms)[-1].startswith("... and ") and terminal_table.lines([], 120) == []


def test_what_a_host_calls_its_work_is_no_escape_of_the_terminal():
    own = {"own": {**result_maker.GZIP, "title": "a\x1b[31mb", "unit": "M\x1b[31mB/s"}}
    summary = result_maker.summarised(result_maker.result(blocks=4, workloads=own))
    shown = terminal_table.lines(list(hardware_classes.row(summary, "a.html")["workloads"].values()), 120)
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
    # No line ends between a number and its percent sign.
    assert re.search("p99 changes by \\+[0-9]+\u00a0% \\(", page)
    assert "errors was breached: above 0.01 (0.5)" in text and "(seed 7)" in text


def test_an_effect_has_one_number_wherever_it_stands(trial):
    page = trial[0].replace("\u00a0", " ")
    change = re.search(r"p99 changes by (\+[0-9]+ % \(\+[0-9]+ to \+[0-9]+ %\)): worse", page)[1]
    # The headline, and labels, marks and alternative texts of both charts.
    assert page.count(change) >= 6 and page.count(f"{change}, worse") >= 2
    forest = re.search(r'<svg [^>]*aria-label="Change of each metric[^>]*>.*?</svg>', markup.whole(page))[0]
    # Worse is left of the middle, where the time is longer: the axis has the metric's own change.
    ticks = re.findall(r'<text x="([0-9.]+)" y="[0-9.]+">([+\u2212]?[0-9]+ %)</text>', forest)
    assert [text[0] for _x, text in ticks] == ["+"] * (len(ticks) // 2) + ["0"] + ["\u2212"] * (len(ticks) // 2), ticks
    assert [float(x) for x, _text in ticks] == sorted(float(x) for x, _text in ticks)


def test_an_effect_that_is_none_is_not_called_and_a_period_without_a_value_counts_for_nothing(tmp_path):
    _page, text = read(trial_maker.page(tmp_path / "t", effect=0.0))
    assert "p99 changes by" in text and ": worse," not in text and ": better," not in text
    assert re.search("1 of [0-9]+ periods of hosts have no value of p99 .* first period 9 of web4: ", text)


def test_nothing_of_a_host_is_markup(tmp_path):
    hosts = ("web1", "web2", "web3", ATTACK)
    page, _text = read(trial_maker.page(tmp_path / "t", hosts=hosts, reason=ATTACK))
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;{{ 7 * 7 }}" in page
