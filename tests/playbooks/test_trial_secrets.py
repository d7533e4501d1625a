# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials in every form in which people write them, and nothing of them in what is printed, written,
or an argument of a process; with -vvvv, too.

Each host has its own form in one inventory, so that one play has all of them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import prometheus_server
import pytest
from simulated_trial import TrialFleet

VAULT_PASSWORD = "of the vault"
# Each form has a word that is nowhere else.
MARK = re.compile(r"hidden-[a-z0-9]+")
LONG = "hidden-long" + "x" * 3000
# Name of a host -> its variables as they are written, and what the server gets as Authorization.
ACCEPTED = {
    "newline": ({"token": '"hidden-newline\\n"'}, "Bearer hidden-newline"),
    "quote": ({"token": "'hidden-quote\"x''y'"}, "Bearer hidden-quote\"x'y"),
    "file": ({"token": "\"{{ lookup('file', 'TOKEN_FILE', rstrip=false) }}\""}, "Bearer hidden-file"),
    "vaulted": ({"token": "!vault |\nVAULTED"}, "Bearer hidden-vaulted"),
    "braces": ({"token": "!unsafe 'hidden-braces{{oops}}'"}, "Bearer hidden-braces{{oops}}"),
    "long": ({"token": LONG}, f"Bearer {LONG}"),
    "basic": (
        {"user": "trial", "password": '!unsafe "hidden-basic: \\xFC{%\\n"'},
        "Basic " + base64.b64encode("trial:hidden-basic: \xfc{%".encode()).decode(),
    ),
}
BROKEN = "has a line break or another character in it"
REFUSED = {
    "list": ({"token": "[hidden-list]"}, "smt_trial_metrics_token is a list: it must be a text"),
    "mapping": ({"token": "{a: hidden-mapping}"}, "smt_trial_metrics_token is a mapping: it must be a text"),
    "number": ({"token": "4242424242"}, "smt_trial_metrics_token is a number: it must be a text"),
    "blank": ({"token": '" \\n"'}, "smt_trial_metrics_token is blank"),
    "return": ({"token": '"hidden-return\\rhidden-return2"'}, f"smt_trial_metrics_token {BROKEN}"),
    "lines": ({"password": '"hidden-lines\\nhidden-l2"', "user": "x"}, f"smt_trial_metrics_password {BROKEN}"),
    "listed": ({"url": "['http://u:hidden-listed@127.0.0.1:1']"}, "smt_trial_metrics_url is a list: it must be a text"),
    "key": ({"key": '"-----BEGIN\\nhidden-key"'}, f"smt_trial_metrics_key {BROKEN}"),
}
NOT_ASCII = "smt_trial_metrics_token has a blank in it, or a letter that is not ASCII"
ADDRESS = "smt_trial_metrics_url has a part in it that begins with ? or #"
# Only whoever asks the server sees these.
LATER = {
    "unicode": ({"token": '"hidden-unicode\\u20ac"'}, NOT_ASCII),
    "latin": ({"token": '"hidden-latin\\xE9"'}, NOT_ASCII),
    "words": ({"token": "Bearer hidden-words"}, NOT_ASCII),
    "userinfo": ({"url": "http://u:hidden-userinfo@127.0.0.1:1"}, "smt_trial_metrics_url has a user or a password"),
    "userquery": ({"url": "'http://127.0.0.1:1/?token=hidden-userquery'"}, ADDRESS),
    "fragment": ({"url": "'http://127.0.0.1:1/#hidden-fragment'"}, ADDRESS),
    "scheme": ({"url": "'u:hidden-scheme@127.0.0.1:1'"}, "smt_trial_metrics_url is no address such as"),
    "path": ({"url": "http://127.0.0.1:1/hidden-path/x"}, "the metrics server http://127.0.0.1:1 cannot be reached"),
    "undefined": ({"token": '"hidden-undefined{{oops}}"'}, "smt_trial_metrics_token has a variable in it that is not"),
    "template": ({"token": '"hidden-template{{oops hidden-t2"'}, "smt_trial_metrics_token is no valid template"),
    "otherkey": ({"key": "hidden-otherkey"}, "smt_trial_metrics_key names no file that can be read here"),
}


class Server:
    """What looks like a Prometheus, and repeats what it got wherever it can."""

    def __init__(self):
        self.got = set()
        self.fails = False

    def answer(self, handler):
        said = handler.headers.get("Authorization")
        self.got.add(said)
        of_period = "/query_range?" in handler.path
        points = {"values": []} if of_period else {"value": [1.0, "7"], "values": [[1.0, "7"], [2.0, "7"]]}
        data = {"resultType": "matrix" if of_period else "vector", "result": [{"metric": {"a": said}, **points}]}
        if "/rules?" in handler.path:
            rule = {"type": "recording", "name": said, "query": said}
            data = {"groups": [{"name": said, "interval": 1, "rules": [rule]}]}
        well = {"status": "success", "warnings": [said], "data": data}
        failed = {"status": "error", "error": f"not you: {said}"}
        prometheus_server.send(handler, json.dumps(failed if self.fails else well), 400 if self.fails else 200)


@pytest.fixture(name="server")
def a_server():
    server = Server()
    with prometheus_server.serving(server.answer) as server.url:
        yield server


def fleet(directory, forms, url):
    """Hosts with one form each."""
    (directory / "f").mkdir()
    found = TrialFleet(directory / "f", {name: {} for name in forms})
    token = directory / "token"
    token.write_text("hidden-file\n")
    (directory / "vault").write_text(VAULT_PASSWORD)
    for name, (variables, _expected) in forms.items():
        written = []
        for variable, value in {"url": url, **variables}.items():
            vaulted = encrypted(directory, "hidden-vaulted\n") if "VAULTED" in value else ""
            written.append(
                f"smt_trial_metrics_{variable}: {value.replace('TOKEN_FILE', str(token)).replace('VAULTED', vaulted)}\n"
            )
        path = found.directory / "host_vars" / f"{name}.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("---\n" + "".join(written))
    return found


def encrypted(directory, text):
    command = ["ansible-vault", "encrypt", "--vault-password-file", str(directory / "vault"), "--output", "-"]
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command, input=text, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ, PATH=path)
    )
    return "".join(f"  {line}\n" for line in done.stdout.splitlines())


@contextlib.contextmanager
def watched_processes(seen):
    """Look at the arguments and the environment of all processes again and again."""
    ended = threading.Event()

    def watch():
        while not ended.is_set():
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    with contextlib.suppress(OSError):
                        seen.update(
                            found for found in MARK.findall((process / name).read_bytes().decode(errors="replace"))
                        )

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


TRIAL = {
    "smt_trial_metrics": [{"name": "load", "query": "load", "better": "lower", "primary": True}],
    "smt_trial_settle": 1,
    "smt_trial_check": 2,
    "smt_trial_period": 10,
    "smt_trial_most_switched": "100%",
    "smt_trial_after_switch": ["true"],
}


def play(found, directory, playbook, **variables):
    """Run a playbook with all that Ansible can be made to say.

    Returns what a person sees of it, after a look for marks in all of it and in all files.
    """
    seen, log = set(), directory / "ansible.log"
    words = ("-f", "30", "-vvvv", "--diff", "--vault-password-file", str(directory / "vault"))
    with pytest.MonkeyPatch.context() as patched, watched_processes(seen):
        patched.setenv("ANSIBLE_LOG_PATH", str(log))
        patched.setenv("ANSIBLE_DISPLAY_ARGS_TO_STDOUT", "1")
        patched.setenv("ANSIBLE_LOCAL_TEMP", str(directory / "tmp"))
        _code, said = found.play(playbook, *words, **TRIAL, **variables)
    given = {"host_vars", "token", "collections"}
    for path in directory.rglob("*"):
        if path.is_file() and not given.intersection(path.relative_to(directory).parts):
            assert not marks(path.read_text(errors="replace")), path
    assert log.stat().st_size > 1000
    assert not marks(said) and not seen
    return said


def marks(text):
    """What is in a text of the credentials, also as base64 and without its first letters."""
    return MARK.findall(text) + re.findall(r"4242424242|hidden-\\|dHJpYWw6aGlkZGVu|x{200}", text)


@pytest.mark.night
def test_credentials_that_can_be_used_are_used_and_nothing_else(tmp_path, server):
    found = fleet(tmp_path, ACCEPTED, server.url)
    said = play(found, tmp_path, "smt_trial", smt_trial_run="one", smt_trial_periods=4)
    assert server.got == {authorization for _variables, authorization in ACCEPTED.values()}
    assert "failed=0" in said and "smt_trial_results/one" in said
    # What a server repeats in its errors is in no reason of a host.
    server.fails = True
    said = play(found, tmp_path, "smt_trial", smt_trial_run="two", smt_trial_periods=4)
    assert (
        said.count("refuses the query (status 400): not you: ") >= len(ACCEPTED)
        and "not you: Bearer (a secret)" in said
    )


OWN_PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: threadwise.smt.smt_trial}
      vars: {smt_trial_run: one, smt_trial_periods: 4}
      register: result
      ignore_errors: true
    - ansible.builtin.debug: {var: __smt_trial_described}
"""


@pytest.mark.night
def test_a_play_of_ones_own_refuses_them_for_each_host(tmp_path, server):
    found = fleet(tmp_path, {**REFUSED, **LATER}, server.url)
    (found.directory / "own.yml").write_text(OWN_PLAY)
    said = play(found, tmp_path, "own.yml")
    for name, (_variables, sentence) in {**REFUSED, **LATER}.items():
        reason = re.escape(sentence)
        failed = rf'\[{name}\]: FAILED! => {{\s*"changed": false,\s*"msg": "(?:{name}: )?{reason}'
        left_out = rf'(?s:\[{name}\].*"obstacle": "it cannot be measured, because {reason})'
        assert re.search(f"{failed}|{left_out}", said), name
    assert not server.got
