# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a trial says the answer first, shows what each host did, and takes nothing from a host as it is."""

from __future__ import annotations

import re

import markup
import pytest
import trial_maker

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
