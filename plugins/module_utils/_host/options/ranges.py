# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a number is within the range of its option."""


def problem(value: "float | None", limits: "tuple[float | None, float | None]") -> "str | None":
    """Return what a number has to be that is out of its range, such as ``it must be from 1 to 10``.

    Args:
        value: the number; None where none is given, which is within each range.
        limits: the least and the greatest one, None for an end that is open.
    """
    least, greatest = limits
    if value is None or ((least is None or value >= least) and (greatest is None or value <= greatest)):
        return None
    return f"it must be {least:g} or more" if greatest is None else f"it must be from {least:g} to {greatest:g}"
