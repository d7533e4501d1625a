# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a plan waits after each switch, until the host has settled: as long as is asked for,
or as the first block shows to be needed.
"""

import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import runner

# The wait in the first block, which shows how long one is needed; before that nothing is known of this host.
FIRST_SECONDS = 1.0
# Limits of what is chosen for the blocks after it, and the factor that keeps it clear of what was seen.
MIN_SECONDS, MAX_SECONDS = 0.2, 5.0
SAFETY = 1.5
# The kernel counts CPU time in ticks of 10 ms (proc(5)), so shorter windows show nothing.
WINDOW_SECONDS = 0.1
WINDOWS_BEFORE = 10
WINDOWS_QUIET = 3


def busy_cpus() -> float:
    """Return how many CPUs were busy, on average, during a window."""
    before = runner.cpu_times()
    time.sleep(WINDOW_SECONDS)
    usage, _steal = runner.cpu_usage(before, runner.cpu_times())
    return sum(usage.values())


class Settling:
    """The waits after the switches of a plan.

    A switch leaves work behind: the kernel moves tasks and interrupts, udev and daemons react to CPUs that come and go.
    The host has settled when its CPUs are no busier than they were before the first switch.

    Args:
        seconds: of each wait, or None to choose them by the first block.
        busy: returns how many CPUs were busy during the window that it waits for.

    Attributes:
        seconds: of each wait as far as it is known; ``FIRST_SECONDS`` until it is chosen.
    """

    def __init__(self, seconds: "float | None", busy: "t.Callable[[], float]" = busy_cpus) -> None:
        self.seconds = FIRST_SECONDS if seconds is None else seconds
        self._is_chosen = seconds is not None
        self._busy = busy
        self._quiet: t.Optional[float] = None
        self._longest = 0.0

    def before_switch(self) -> None:
        """See how busy the host is by itself, once, where a wait is still to be chosen."""
        if not self._is_chosen and self._quiet is None:
            self._quiet = max(self._busy() for _window in range(WINDOWS_BEFORE))

    def wait(self) -> None:
        """Wait after a switch."""
        if self._is_chosen:
            time.sleep(self.seconds)
            return
        started = quiet_since = time.monotonic()
        quiet = 0
        while quiet < WINDOWS_QUIET and time.monotonic() - started < MAX_SECONDS:
            if self._busy() <= (self._quiet or 0.0):
                quiet += 1
            else:
                quiet, quiet_since = 0, time.monotonic()
        # The windows that show it are no part of what is needed, however long a busy machine takes over them.
        self._longest = max(self._longest, quiet_since - started)
        time.sleep(max(0.0, FIRST_SECONDS - (time.monotonic() - started)))

    def choose(self) -> bool:
        """Choose the wait of all later switches, after the first block.

        Returns:
            Whether it was chosen now.
        """
        if self._is_chosen or self._quiet is None:
            return False
        self._is_chosen = True
        self.seconds = round(min(max(SAFETY * self._longest, MIN_SECONDS), MAX_SECONDS), 1)
        return True
