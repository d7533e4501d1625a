# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guardrails: what sends a host back at once, and how long it has to last. By a clock that is never set."""

from __future__ import annotations


class Guard:
    """A limit of a number.

    Args:
        name: for messages.
        above: the value that it may not exceed, or None.
        below: the value that it may not fall below, or None.
        seconds: how long it has to be beyond.
        blind_seconds: how long no number may be known.
    """

    def __init__(
        self, name: str, above: float | None, below: float | None, seconds: float, blind_seconds: float
    ) -> None:
        self._name, self._above, self._below = name, above, below
        self._seconds, self._blind_seconds = seconds, blind_seconds
        self._beyond_since: float | None = None
        self._blind_since: float | None = None

    def feed(self, now: float, value: float | None, why: str = "") -> str | None:
        """Return why the host has to go back, None where it need not.

        Args:
            now: seconds of a clock that is never set.
            value: the number, None where there is none.
            why: why there is none.
        """
        if value is None:
            self._blind_since = now if self._blind_since is None else self._blind_since
            # A number that was beyond stays so until another one is known.
            if now - self._blind_since >= self._blind_seconds:
                return f"nothing was known of {self._name} for {now - self._blind_since:.0f} s: {why}"
        else:
            self._blind_since = None
            self._beyond_since = (
                None if not self._is_beyond(value) else now if self._beyond_since is None else self._beyond_since
            )
        if self._beyond_since is not None and now - self._beyond_since >= self._seconds:
            return self._breached(value)
        return None

    def _is_beyond(self, value: float) -> bool:
        return (self._above is not None and value > self._above) or (self._below is not None and value < self._below)

    def _breached(self, value: float | None) -> str:
        side, limit = ("above", self._above) if self._above is not None else ("below", self._below)
        lasted = f" for {self._seconds:g} s" if self._seconds else ""
        now = "" if value is None else f" ({value:.4g})"
        return f"the guardrail {self._name} was breached: {side} {limit:g}{lasted}{now}"
