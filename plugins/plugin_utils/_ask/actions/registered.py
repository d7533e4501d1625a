# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task that failed has registered."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text

# With these words Ansible introduces an error from ansible-core 2.19 on.
_INTRODUCTION = re.compile("^((Task|Action) failed: )+")


def why(registered: t.Mapping[str, t.Any], most: int = 500) -> str | None:
    """Return what a task that failed says, as one line of at most ``most`` characters and in the words that all
    releases of Ansible use; None if it says nothing.
    """
    message = registered.get("msg")
    return text.line(_INTRODUCTION.sub("", message), most) or None if isinstance(message, str) else None
