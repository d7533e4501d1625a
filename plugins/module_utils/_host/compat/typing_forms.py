# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`Protocol` and `TypedDict` of `typing`, which Python 3.6 does not have."""

import typing as t

__all__ = ["Protocol", "TypedDict"]

if t.TYPE_CHECKING:
    from typing import Protocol, TypedDict
else:

    class Protocol:
        """The base of a class that only describes methods and attributes."""

    class TypedDict(dict):
        """The base of a class that only describes the keys of a dict: calling it makes a plain dict."""

        def __init_subclass__(cls, total=True):
            """Accept whether all keys are required."""

        def __new__(cls, *fields, **more):
            """Return a plain dict."""
            return dict(*fields, **more)
