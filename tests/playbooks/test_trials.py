# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trials on simulated hosts: what is refused before any switch, and credentials, of which nothing is said anywhere."""

import base64
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import textwrap
import threading

import prometheus_server
import pytest
from simulated_fleet import COMMON, SHEBANG, Fleet
from this_machine import line

# The shell of a host: what it runs finds these programs first.
SHELL = '#!/bin/sh\nPATH={place}/bin:$PATH SMT_HOST={place} exec /bin/sh "$@"\n'
PROGRAMS = {
    "cat": r"""#!/bin/sh
[ "$*" = /sys/devices/system/cpu/online ] || exec /bin/cat "$@"
if grep -q '"smt": false' "$SMT_HOST/host.json"; then echo 0-1; else echo 0-3; fi
""",
    "systemctl": r"""#!/bin/sh
timer=$SMT_HOST/timer
case "$*" in
  "kill --kill-who=main --signal=USR1 threadwise-smt-rollback.service")
    sed -i 's/"smt": false/"smt": true/' "$SMT_HOST/host.json"; rm -f "$timer" ;;
  "kill --kill-who=main --signal=HUP threadwise-smt-rollback.service" | \
  "is-active --quiet threadwise-smt-rollback.service"*) [ -e "$timer" ] ;;
  *) false ;;
esac
""",
}
SMT_STATE = r"""
module = AnsibleModule({"state": {}, "affinity_conflicts": {}, "affinity_conflicts_of": {"type": "list"},
    "rollback_after": {"type": "int"}, "consumers": {"type": "dict"}, "consumers_custom": {"type": "list"}},
                       supports_check_mode=True)
wanted = module.params["state"] == "enabled"
if not module.check_mode:
    open(os.environ["SMT_HOST"] + "/timer", "w").close()
now = {"control": "on" if host["smt"] else "off", "active": host["smt"], "online": "0-3" if host["smt"] else "0-1"}
after = {"control": "on" if wanted else "off", "active": wanted, "online": "0-3" if wanted else "0-1"}
end(module, "smt", wanted, before=now, after=after, affinity_conflicts=[], not_restored=[], consumers=[],
    rollback_pending=True, rollback_started=True, diff=[])
"""


class TrialFleet(Fleet):
    """Simulated hosts that a trial can switch."""

    def __init__(self, directory: pathlib.Path, hosts: dict[str, dict]):
        places = {name: directory / "hosts" / name for name in hosts}
        shells = {name: {"ansible_shell_executable": str(place / "sh")} for name, place in places.items()}
        super().__init__(directory, {name: {**shells[name], **variables} for name, variables in hosts.items()})
        modules = directory / "collections/ansible_collections/threadwise/smt/plugins/modules"
        head = (modules / "smt_state.py").read_text().partition("if __name__")[0]
        assert head.startswith(SHEBANG)
        (modules / "smt_state.py").write_text(
            head + 'if __name__ == "__main__":\n' + textwrap.indent(COMMON + SMT_STATE, "    ")
        )
        for place in places.values():
            (place / "bin").mkdir()
            programs = {f"bin/{name}": text for name, text in PROGRAMS.items()}
            for path, text in {"sh": SHELL.format(place=place), **programs}.items():
                (place / path).write_text(text)
                (place / path).chmod(0o755)


def test_a_trial_whose_periods_count_each_others_samples_is_refused_before_any_switch(tmp_path):
    """The server does not know how its rule is made: the user says how far it looks back."""
    fleet = TrialFleet(tmp_path, {"web0": {}, "web1": {}})
    number = json.dumps({"status": "success", "data": {"resultType": "scalar", "result": [1e9, "5"]}})
    metric = {"name": "requests", "query": "vector(5)", "looks_back": "25s", "better": "higher", "primary": True}
    times = {"smt_trial_period": 30, "smt_trial_settle": 20, "smt_trial_check": 2, "smt_trial_periods": 6}
    with prometheus_server.serving(lambda handler: prometheus_server.send(handler, number)) as url:
        asked = {"smt_trial_run": "one", "smt_trial_metrics": [metric], "smt_trial_metrics_url": url, **times}
        code, said = fleet.play("smt_trial", **asked, smt_trial_after_switch=["true"])
    assert code != 0 and "smt_trial_settle is 20, and requests counts samples from up to 25 s before" in line(said)
    assert "Set smt_trial_settle to 25 or more" in line(said), said
    assert not (tmp_path / "smt_trial_results").exists() and fleet.changes() == {}


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
    "number": ({"token": "4242424242"}, "smt_trial_metrics_token is a number: it must be a text"),
    "blank": ({"token": '" \\n"'}, "smt_trial_metrics_token is blank"),
    "return": ({"token": '"hidden-return\\rhidden-return2"'}, f"smt_trial_metrics_token {BROKEN}"),
    "key": ({"key": '"-----BEGIN\\nhidden-key"'}, f"smt_trial_metrics_key {BROKEN}"),
}
NOT_ASCII = "smt_trial_metrics_token has a blank in it, or a letter that is not ASCII"
ADDRESS = "smt_trial_metrics_url has a part in it that begins with ? or #"
# Only whoever asks the server sees these.
LATER = {
    "unicode": ({"token": '"hidden-unicode\\u20ac"'}, NOT_ASCII),
    "userinfo": ({"url": "http://u:hidden-userinfo@127.0.0.1:1"}, "smt_trial_metrics_url has a user or a password"),
    "userquery": ({"url": "'http://127.0.0.1:1/?token=hidden-userquery'"}, ADDRESS),
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
            whole = value.replace("TOKEN_FILE", str(token)).replace("VAULTED", vaulted)
            written.append(f"smt_trial_metrics_{variable}: {whole}\n")
        path = found.directory / "host_vars" / f"{name}.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("---\n" + "".join(written))
    return found


def encrypted(directory, text):
    program = pathlib.Path(sys.executable).with_name("ansible-vault")
    command = [program, "encrypt", "--vault-password-file", str(directory / "vault"), "--output", "-"]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    return "".join(f"  {line}\n" for line in done.stdout.splitlines())


@contextlib.contextmanager
def watched_processes(seen):
    """Look at the arguments and the environment of all processes again and again."""
    ended = threading.Event()

    def watch():
        while not ended.is_set():
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                for path in (process / "cmdline", process / "environ"):
                    with contextlib.suppress(OSError):
                        seen.update(MARK.findall(path.read_bytes().decode(errors="replace")))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


TRIAL = {
    "smt_trial_metrics": [{"name": "load", "query": "load", "better": "lower", "primary": True}],
    "smt_trial_settle": 1, "smt_trial_check": 2, "smt_trial_period": 10, "smt_trial_most_switched": "100%",
    "smt_trial_after_switch": ["true"],
}  # fmt: skip


def play(found, directory, playbook, **variables):
    """Run a playbook with all that Ansible can be made to say."""
    seen, log = set(), directory / "ansible.log"
    words = ("-f", "30", "-vvvv", "--diff", "--vault-password-file", str(directory / "vault"))
    with pytest.MonkeyPatch.context() as patched, watched_processes(seen):
        for name, value in {"LOG_PATH": log, "DISPLAY_ARGS_TO_STDOUT": 1, "LOCAL_TEMP": directory / "tmp"}.items():
            patched.setenv(f"ANSIBLE_{name}", str(value))
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
    assert said.count("refuses the query (status 400): not you: ") >= len(ACCEPTED)
    assert "not you: Bearer (a secret)" in said


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
