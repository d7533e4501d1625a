# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for all tests: by day a few cases of each kind, and none fails for being slow."""

import collections
import signal

import hypothesis
import night
import pytest

# A machine is shared, and how long an example takes says nothing of the code.
hypothesis.settings.register_profile("shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("shared")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave what is for the night out by day."""
    if night.NIGHT:
        return
    before = collections.Counter()
    kept, left_out = [], []
    for item in items:
        markers = list(item.iter_markers("night"))
        # The case's own marker has no number; that of its test says how many of its cases are for the day.
        after = min((marker.kwargs.get("after", 0) for marker in markers), default=None)
        test = item.path, item.originalname
        (left_out if after is not None and before[test] >= after else kept).append(item)
        before[test] += 1
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


# Of this process at its begin.
SIGNALS = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}


@pytest.fixture(autouse=True)
def _signals_as_they_were():
    """Undo what a plan does that has ended, also one of a fixture: it ignores signals, as would what it starts."""
    for turn in range(2):
        for number, handler in SIGNALS.items():
            signal.signal(number, handler)
        if not turn:
            yield
