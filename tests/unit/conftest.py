# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for all unit tests: none fails for being slow."""

from __future__ import annotations

import signal
import zlib

import hypothesis
import pytest

# A machine is shared, and how long an example takes says nothing of the code.
hypothesis.settings.register_profile("shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("shared")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "long: more of the same as a test that `make unit` runs: `make long` runs it, and not `make test`"
    )
    config.addinivalue_line(
        "markers", "one_in(number): of its cases `make unit` runs one in so many, the others are long"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    seen = set()
    for item in items:
        marker = item.get_closest_marker("one_in")
        # The first one always, and others by their name: each stays where it is when further cases come.
        if (
            marker is not None
            and (item.path, item.originalname) in seen
            and zlib.crc32(item.name.encode()) % marker.args[0]
        ):
            item.add_marker("long")
        seen.add((item.path, item.originalname))


# Of this process at its begin.
SIGNALS = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}


@pytest.fixture(autouse=True)
def _signals_as_they_were():
    """Undo what a plan does that has ended, also one of a fixture that several tests share: it ignores signals, and so
    would all programs that later tests start.
    """
    _signals_of_the_begin()
    yield
    _signals_of_the_begin()


def _signals_of_the_begin():
    for number, handler in SIGNALS.items():
        signal.signal(number, handler)
