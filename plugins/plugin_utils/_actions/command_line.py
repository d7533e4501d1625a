# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the call says: extra variables that are whole lines, as they were typed, and which hosts it is about.

Ansible splits ``-e name='a b c'`` into words: the shell has taken the quotes, so the variable is ``a``, and a word with
``=`` is another variable (parse_kv in ansible/parsing/splitter.py).
"""

from __future__ import annotations

import re
import typing as t

from ansible import context
from ansible.errors import AnsibleError
from ansible.parsing.splitter import parse_kv
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text

# Ansible's own function and object have no type hints.
_PARSE: t.Callable[[str], dict[str, t.Any]] = parse_kv
_ARGUMENTS: t.Any = context

# The options of smt_benchmark that are lines, by the variables that users set.
LINES = {"smt_eval_command": "command", "smt_eval_metric": "metric"}
_NEXT = re.compile(r"\s+smt_[a-z_]+=")


def whole(name: str, value: t.Any) -> t.Any:
    """Return a variable with all of its line, where Ansible has only the first word of it; else as it is.

    Args:
        name: of the variable.
        value: of the variable, as Ansible has it.
    """
    given = [one for one in _ARGUMENTS.CLIARGS.get("extra_vars") or () if isinstance(one, str)]
    for one in reversed(given):
        found = re.search(rf"(?:^|\s){name}=(?!['\"])(.*)", one, re.DOTALL)
        if found and not one.lstrip().startswith(("{", "[", "@")):
            line = _NEXT.split(found[1], maxsplit=1)[0].strip()
            try:
                is_of_it = _PARSE(one).get(name) == value
            except AnsibleError:
                return value
            return line if is_of_it else value
    return value


def hosts() -> tuple[str | None, tuple[str, ...]]:
    """Return what ``--limit`` of the call says, None without it, and the sources of its inventory."""
    limit = _ARGUMENTS.CLIARGS.get("subset")
    sources = _ARGUMENTS.CLIARGS.get("inventory") or ()
    return text.line(limit) if limit else None, tuple(map(text.line, sources))
