# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is shown while an evaluation runs, and how long its calls wait for a host."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import progress, time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import UNSET

METRIC = {"name": "throughput", "value": 78.04, "unit": "MB/s"}
LAST = {"workload": "gzip", "placement": "siblings", "arm": "SMT on", "metric": METRIC, "workers": 2}
PROGRESS = {"phase": "measuring", "block": 3, "fraction": 0.416, "seconds_left": 175, "last": LAST}
SO_FAR = " 42 %, block 3, about 2:55 left"
SHOWN = f"{SO_FAR}, last: gzip throughput (two on one core, SMT on): 78.04 MB/s"
NASTY = "\x1b[2J\n\u202e\x9b" + "x" * 200


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, SHOWN),
        ({"next": "SMT off\x1b[31m"}, f"{SHOWN}, next: SMT off\\x1b[31m"),
        ({"phase": "preparing", "last": None}, f"{SO_FAR}, preparing"),
    ],
)
def test_a_line_tells_how_far_and_what_was_measured_last(changed, line):
    assert progress.line(progress.parse(json.dumps({**PROGRESS, **changed}))) == line


NUMBERS = ("Infinity", "NaN", "1e400", "1" + "0" * 15, "-" + "9" * 5000)
ODD = ["", "{", "[]", "null", "[" * 5000, json.dumps(PROGRESS) + " " * progress.MAX_BYTES]
ODD += [f'{{"phase": "x", "fraction": {number}, "block": 1}}' for number in NUMBERS]
ODD += [json.dumps({**PROGRESS, **more}) for more in ({"block": "3"}, {"last": {}}, {"more": 1}, {"phase": None})]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_what_is_no_progress_is_none(text):
    assert progress.parse(text) is None


def test_hostile_words_make_one_harmless_line():
    last = {**LAST, "workload": NASTY, "placement": NASTY, "arm": NASTY, "metric": {**METRIC, "name": NASTY}}
    line = progress.line(progress.parse(json.dumps({**PROGRESS, "phase": NASTY, "last": last})))
    assert line.isprintable() and len(line) < 400


@pytest.mark.parametrize(
    ("lines", "fractions", "expected"),
    [
        (3, [0.0, 0.1, 0.26, 0.3, 0.55, 0.6, 0.8, 0.99, 1.0], [0.26, 0.55, 0.8]),
        # What was not seen in time gets no line later.
        (3, [0.1, 0.9, 0.95, UNSET], [0.9]),
    ],
)
def test_each_part_of_a_plan_gets_a_line_once(lines, fractions, expected):
    shown = progress.Shown(lines)
    assert [one for one in fractions if shown.is_due(progress.Progress(phase="measuring", fraction=one))] == expected


def test_a_call_without_an_answer_is_given_up_with_its_process_also_when_it_tries_anew():
    error = AnsibleConnectionFailure
    with subprocess.Popen(["sleep", "100"]) as other:
        with pytest.raises(error, match="no answer within"), time_limits.within(0.5):
            with contextlib.suppress(error):
                subprocess.run(["sleep", "100"], check=False)
            waiting = subprocess.Popen(["sleep", "100"])
            try:
                waiting.wait()
            finally:
                # On a busy machine the next alarm comes before it has ended.
                while waiting.returncode is None:
                    with contextlib.suppress(error):
                        waiting.wait()
        assert waiting.returncode == -signal.SIGTERM and other.poll() is None
        other.kill()
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0) and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    with time_limits.within(60):
        assert subprocess.run(["true"], check=False).returncode == 0


@pytest.mark.parametrize("first", time_limits.ENDS)
def test_a_second_signal_does_not_keep_a_host_from_being_restored(first):
    before = [signal.getsignal(number) for number in time_limits.ENDS]
    with time_limits.until_ended():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(first)
        for number in time_limits.ENDS:
            signal.raise_signal(number)
    assert [signal.getsignal(number) for number in time_limits.ENDS] == before
