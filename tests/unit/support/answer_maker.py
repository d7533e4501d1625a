# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules answer, as the border makes it and as a task returns it."""

from __future__ import annotations

import json

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers, parts


def made(module, **fields):
    """The answer of a module with these fields."""
    return answers.accept(answers.OF_MODULES[module], json.dumps({"changed": False, **fields}))


def accepted(module, printed):
    """What a task returns of what a module printed: its answer, or its failure."""
    try:
        return parts.plain(answers.accept(answers.OF_MODULES[module], printed))
    except answers.ModuleFailedError as failure:
        return failure.answer
