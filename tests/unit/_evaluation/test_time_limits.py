# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A call that is never answered is given up, with what waited for it; one that is answered is left alone."""

from __future__ import annotations

import contextlib
import signal
import subprocess

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import time_limits


@pytest.fixture(name="other_process")
def process_from_before():
    with subprocess.Popen(["sleep", "100"]) as process:
        yield process
        process.kill()


def test_a_call_without_an_answer_is_given_up_with_its_process(other_process):
    with pytest.raises(AnsibleConnectionFailure, match="no answer within 2 s"), time_limits.within(2):
        waiting = subprocess.Popen(["sleep", "100"])
        try:
            waiting.wait()
        finally:
            # On a busy machine the next alarm comes before it has ended.
            while waiting.returncode is None:
                with contextlib.suppress(AnsibleConnectionFailure):
                    waiting.wait()
    assert waiting.returncode == -signal.SIGTERM and other_process.poll() is None
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0) and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_call_that_tries_anew_is_given_up_again():
    with pytest.raises(AnsibleConnectionFailure, match="no answer"), time_limits.within(1):
        for _attempt in range(2):
            try:
                subprocess.run(["sleep", "100"], check=False)
            except AnsibleConnectionFailure:
                continue
        subprocess.run(["sleep", "100"], check=False)


def test_an_answer_in_time_is_an_answer():
    with time_limits.within(60):
        assert subprocess.run(["true"], check=False).returncode == 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.fixture(name="task_timeout")
def timeout_of_a_task():
    """Set the timer as Ansible does for a task with `timeout`."""

    def late(_number, _frame):
        raise TimeoutError("the task's own")

    before = signal.signal(signal.SIGALRM, late)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_task_with_a_clock_of_its_own_keeps_it(task_timeout):
    task_timeout(2)
    with pytest.raises(TimeoutError, match="the task's own"), time_limits.within(60):
        subprocess.run(["sleep", "100"], check=False)


def test_a_task_with_much_time_of_its_own_does_not_wait_for_a_call_so_long(task_timeout):
    task_timeout(30)
    with pytest.raises(AnsibleConnectionFailure, match="no answer"), time_limits.within(0.5):
        subprocess.run(["sleep", "100"], check=False)
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 30
    task_timeout(0.1)
    with pytest.raises(TimeoutError, match="the task's own"):
        subprocess.run(["sleep", "100"], check=False)


@pytest.mark.parametrize("first", time_limits.ENDS)
def test_a_second_signal_does_not_keep_a_host_from_being_restored(first):
    before = [signal.getsignal(number) for number in time_limits.ENDS]
    with time_limits.until_ended():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(first)
        try:
            for number in time_limits.ENDS:
                signal.raise_signal(number)
        except KeyboardInterrupt:
            pytest.fail("it was interrupted again")
    assert [signal.getsignal(number) for number in time_limits.ENDS] == before
