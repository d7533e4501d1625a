# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the call says: extra variables that are whole lines, as they were typed, and what it is about.

Ansible splits ``-e name='a b c'`` into words: the shell has taken the quotes, so the variable is ``a``, and a word with
``=`` is another variable (parse_kv in ansible/parsing/splitter.py).
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.parsing.splitter import parse_kv
from ansible.utils.vars import load_extra_vars
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text

# Ansible's own functions and object have no type hints.
_PARSE: t.Callable[[str], dict[str, t.Any]] = parse_kv
_EXTRA: t.Callable[[t.Any], dict[str, t.Any]] = load_extra_vars
_ARGUMENTS: t.Any = context
_SETTING: t.Callable[[str], t.Any] = constants.config.get_config_value

# The options of smt_benchmark that are lines, by the variables that users set.
LINES = {"smt_eval_command": "command", "smt_eval_metric": "metric"}
# The beginnings of variables that no playbook reads which mends what a check finds; some have credentials in them.
NOT_PASSED = ("smt_compliance_", "smt_history_", "smt_pull_", "smt_trial_")
# As whom and how a call connects: the option, its name in Ansible, and the setting that it has the value of where it is
# not given.
CONNECTING = (
    ("--user", "remote_user", "DEFAULT_REMOTE_USER"),
    ("--private-key", "private_key_file", "DEFAULT_PRIVATE_KEY_FILE"),
    ("--connection", "connection", "DEFAULT_TRANSPORT"),
    ("--ssh-common-args", "ssh_common_args", None),
    ("--ssh-extra-args", "ssh_extra_args", None),
    ("--become-user", "become_user", "DEFAULT_BECOME_USER"),
    ("--become-method", "become_method", "DEFAULT_BECOME_METHOD"),
    ("--vault-id", "vault_ids", "DEFAULT_VAULT_IDENTITY_LIST"),
    ("--vault-password-file", "vault_password_files", None),
    ("--connection-password-file", "connection_password_file", None),
    ("--become-password-file", "become_password_file", None),
    ("--ask-pass", "ask_pass", "DEFAULT_ASK_PASS"),
    ("--ask-become-pass", "become_ask_pass", "DEFAULT_BECOME_ASK_PASS"),
    ("--ask-vault-pass", "ask_vault_pass", "DEFAULT_ASK_VAULT_PASS"),
)
MAX_OWN, MAX_SHOWN = 10, 60
# Linux takes no longer argument.
MAX_ARGUMENT = 128 * 1024
_NEXT = re.compile(r"\s+smt_[a-z_]+=")


def whole(name: str, value: t.Any) -> t.Any:
    """Return a variable with all of its line, where Ansible has only the first word of it; else as it is.

    Args:
        name: of the variable.
        value: of the variable, as Ansible has it.
    """
    given = [argument for argument in _ARGUMENTS.CLIARGS.get("extra_vars") or () if isinstance(argument, str)]
    for argument in reversed(given):
        match = re.search(rf"(?:^|\s){name}=(?!['\"])(.*)", argument, re.DOTALL)
        if match and not argument.lstrip().startswith(("{", "[", "@")):
            line = _NEXT.split(match[1], maxsplit=1)[0].strip()
            try:
                is_of_it = _PARSE(argument).get(name) == value
            except AnsibleError:
                return value
            return line if is_of_it else value
    return value


class Said(t.NamedTuple):
    """What a call says.

    Attributes:
        limit: ``--limit``; None without it.
        inventory: the sources of its inventory.
        variables: its extra variables that other playbooks of the collection read too.
        own: names of its other extra variables, of which a template may make a policy.
        connecting: its words that say as whom and how it connects.
    """

    limit: str | None
    inventory: tuple[str, ...]
    variables: dict[str, t.Any]
    own: tuple[str, ...]
    connecting: tuple[str, ...]


def call(loader: t.Any) -> Said:
    """Return what the call says.

    Args:
        loader: Ansible's loader of files.
    """
    limit = _ARGUMENTS.CLIARGS.get("subset")
    sources = tuple(_from_here(source) for source in _ARGUMENTS.CLIARGS.get("inventory") or ())
    extra = _EXTRA(loader)
    passed = {
        name: value for name, value in extra.items() if name.startswith("smt_") and not name.startswith(NOT_PASSED)
    }
    own = tuple(text.line(name, MAX_SHOWN) for name in sorted(extra) if not name.startswith("smt_"))
    connecting = tuple(word for parameters in CONNECTING for word in _given(*parameters))
    return Said(text.line(limit, MAX_ARGUMENT) if limit else None, sources, passed, own[:MAX_OWN], connecting)


def _given(option: str, name: str, default: str | None) -> t.Iterator[str]:
    """Give the words of an option of the call; none where it has the value of its setting, or of no call."""
    value = _ARGUMENTS.CLIARGS.get(name)
    usual = _SETTING(default) if default else None
    if not value or value == usual or (isinstance(value, tuple) and list(value) == usual):
        return
    for argument in value if isinstance(value, (tuple, list)) else [value]:
        yield option
        if argument is not True:
            yield str(argument)


def _from_here(source: str) -> str:
    """Return a source of an inventory, of which Ansible has the whole path, as it is found from the working
    directory.
    """
    here = os.path.join(os.path.realpath(os.curdir), "")
    return os.path.relpath(source) if "," not in source and source.startswith(here) else source
