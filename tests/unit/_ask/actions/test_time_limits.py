# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A call that is never answered is given up, with what waited for it; one that is answered is left alone."""

from __future__ import annotations

import contextlib
import signal
import subprocess

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import time_limits

NO_ANSWER = (AnsibleConnectionFailure, "no answer within")
OWN = (TimeoutError, "the task's own")


def wait():
    subprocess.run(["sleep", "100"], check=False)


@pytest.fixture(name="other_process")
def process_from_before():
    with subprocess.Popen(["sleep", "100"]) as process:
        yield process
        process.kill()


@pytest.fixture(name="task_timeout")
def timeout_of_a_task():
    """Set the timer as Ansible does for a task with `timeout`."""

    def late(_number, _frame):
        raise TimeoutError("the task's own")

    before = signal.signal(signal.SIGALRM, late)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_call_without_an_answer_is_given_up_with_its_process_also_when_it_tries_anew(other_process):
    error, said = NO_ANSWER
    with pytest.raises(error, match=said), time_limits.within(0.5):
        with contextlib.suppress(error):
            wait()
        waiting = subprocess.Popen(["sleep", "100"])
        try:
            waiting.wait()
        finally:
            # On a busy machine the next alarm comes before it has ended.
            while waiting.returncode is None:
                with contextlib.suppress(error):
                    waiting.wait()
    assert waiting.returncode == -signal.SIGTERM and other_process.poll() is None
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0) and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    with time_limits.within(60):
        assert subprocess.run(["true"], check=False).returncode == 0


@pytest.mark.parametrize(("of_task", "seconds", "expected"), [(0.3, 60, OWN), (30, 0.3, NO_ANSWER)])
def test_the_shorter_of_a_tasks_own_time_and_a_calls_ends_it_and_the_tasks_goes_on(
    task_timeout, of_task, seconds, expected
):
    task_timeout(of_task)
    error, said = expected
    with pytest.raises(error, match=said), time_limits.within(seconds):
        wait()
    if expected is NO_ANSWER:
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 30
        task_timeout(0.1)
        with pytest.raises(TimeoutError, match="the task's own"):
            wait()


@pytest.mark.parametrize("first", time_limits.ENDS)
def test_a_second_signal_does_not_keep_a_host_from_being_restored(first):
    before = [signal.getsignal(number) for number in time_limits.ENDS]
    with time_limits.until_ended():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(first)
        for number in time_limits.ENDS:
            signal.raise_signal(number)
    assert [signal.getsignal(number) for number in time_limits.ENDS] == before
