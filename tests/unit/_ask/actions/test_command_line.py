# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines in extra variables: all of what was typed, where Ansible keeps the first word."""

from __future__ import annotations

import pytest
from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.splitter import parse_kv
from ansible.utils import vars as ansible_vars
from ansible.utils.context_objects import CLIArgs
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import command_line

COMMAND, METRIC = command_line.LINES


@pytest.mark.parametrize(
    ("given", "name", "line"),
    [
        # What is left of -e smt_eval_command='fio --name=r job' in a shell.
        (["smt_eval_command=fio --name=r job"], COMMAND, "fio --name=r job"),
        (["smt_eval_metric=Requests/sec: +(\\S+)\\b"], METRIC, "Requests/sec: +(\\S+)\\b"),
        (["smt_eval_command=one two", "smt_eval_command=three four"], COMMAND, "three four"),
        (["smt_eval_budget=60 smt_eval_command=wrk -d2 URL smt_eval_run=x"], COMMAND, "wrk -d2 URL"),
        (["smt_eval_command=sh -c 'a b'"], COMMAND, "sh -c 'a b'"),
        (["smt_eval_command='wrk -d2 URL'"], COMMAND, "wrk -d2 URL"),
        (['smt_eval_command="wrk -d2 URL" smt_eval_run=x'], COMMAND, "wrk -d2 URL"),
    ],
)
def test_a_line_is_whole(given, name, line, monkeypatch):
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"extra_vars": tuple(given)}))
    known = [parse_kv(one)[name] for one in given if name in parse_kv(one)][-1]
    assert command_line.whole(name, known) == line


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ([], "wrk URL"),
        (['{"smt_eval_command": "wrk URL"}'], "wrk URL"),
        (["@file.yml"], "wrk URL"),
        (["other_smt_eval_command=x y"], "wrk URL"),
        # A later -e with a file has the last word.
        (["smt_eval_command=one two", "@file.yml"], "wrk URL"),
        (["smt_eval_command=it's {{ broken"], "wrk URL"),
    ],
)
def test_what_does_not_come_from_such_a_line_stays(given, value, monkeypatch):
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"extra_vars": tuple(given)}))
    assert command_line.whole(COMMAND, value) == value


def test_the_call_is_whole_and_passes_on_no_credential(tmp_path, monkeypatch):
    """Whoever gives a command needs all of what the check had, but what is for the check alone."""
    hosts = ",".join(f"web{number:03d}.example.com" for number in range(100))
    (tmp_path / "in  ventory.yml").touch()
    monkeypatch.chdir(tmp_path)
    given = [
        "smt_policy=disabled",
        '{"smt_memory_overcommit": "strict", "smt_trial_metrics_token": "secret", "smt_compliance_json": "x.json"}',
        "database_password=secret",
    ]
    sources = (f"{tmp_path}/in  ventory.yml", "/etc/ansible/hosts", hosts)
    options = {"extra_vars": tuple(given), "subset": hosts, "inventory": sources, "connection": "ssh"}
    connecting = {"remote_user": "bob", "vault_password_files": ("pw",), "become_ask_pass": True}
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({**options, **connecting}))
    monkeypatch.setattr(ansible_vars.load_extra_vars, "extra_vars", None, raising=False)
    assert command_line.call(DataLoader()) == (
        hosts,
        ("in  ventory.yml", "/etc/ansible/hosts", hosts),
        {"smt_policy": "disabled", "smt_memory_overcommit": "strict"},
        ("database_password",),
        ("--user", "bob", "--vault-password-file", "pw", "--ask-become-pass"),
    )
