# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer of a host that is too much or none; what the user wrote, in extra variables and beside facts of hosts."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import types
from unittest.mock import ANY

import night
import pytest
import yaml
from ansible import context
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play import Play
from ansible.utils import vars as ansible_vars
from ansible.utils.context_objects import CLIArgs
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import base, command_line, intake
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.user_variables import (
    RESULTS,
    UserVariables,
    is_for_all,
    is_reserved,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.answers import StateAnswer
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import variables

MIB = 1024 * 1024


def said_by(command):
    """What a command prints, read from two pipes as the connections `local` and `ssh` do."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            return process.communicate()[0]
        finally:
            process.kill()


def test_a_flood_is_cut_off_and_its_process_ended():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    others = processes.children()
    with pytest.raises(intake.FloodError, match="more than 9 MiB"), intake.at_most(MIB):
        # A process of its own that nobody's pipe ends.
        lasting = subprocess.Popen(["sleep", "20"])
        said_by(["head", "-c", str(1000 * MIB), "/dev/zero"])
    assert lasting.wait() != 0 and processes.children() <= others
    # Reading goes on for a moment of CPU time.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0) and signal.getsignal(signal.SIGPROF) is signal.SIG_DFL


def test_a_long_answer_is_read_and_what_the_module_reads_on_a_local_connection_is_none():
    with intake.at_most(64 * MIB):
        assert len(said_by(["head", "-c", str(60 * MIB), "/dev/zero"])) == 60 * MIB
    with intake.at_most(MIB):
        assert said_by(["sh", "-c", f"head -c {200 * MIB} /dev/zero | cat > /dev/null; echo ok"]) == b"ok\n"
        # Some CPU time, in which the timer looks.
        assert sum(range(3_000_000)) > 0
    # The limit ends with the call.
    assert len(said_by(["head", "-c", str(20 * MIB), "/dev/zero"])) == 20 * MIB


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ({"rc": 1, "stdout": "", "stderr": "Trace\x1b[31mback\n" + "x" * 9999}, "exit status 1"),
        ({"rc": 0, "stdout": json.dumps({"changed": "\x1b[31m"}), "stderr": ""}, "was refused"),
    ],
)
def test_no_answer_and_a_wrong_one_are_a_failure(printed, said):
    action = object.__new__(base.HostAction)
    action._kind, action._host, action._task = (
        StateAnswer,
        "web01",
        types.SimpleNamespace(action="smt_state"),
    )
    found = action._accepted(printed)
    assert found["failed"] is True and found["msg"].startswith("web01: ") and said in found["msg"]
    assert found["msg"].isprintable() and len(found["msg"]) < 1000


# The parent has the pipe; the child asks, as an action does, and has other descriptors.
PROGRAM = """
import subprocess, sys
print("ready", flush=True)
sys.stdin.readline()
subprocess.run([sys.executable, "-c", sys.argv[1]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
"""
CHILD = """
import pathlib
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
pathlib.Path({path!r}).write_text(str(terminal.is_read(terminal.STDOUT)))
"""


@pytest.mark.parametrize(("target", "is_read"), [("pipe", True), ("pipe", False), (os.devnull, True), ("a file", True)])
def test_only_a_pipe_whose_reader_is_gone_is_not_read(tmp_path, target, is_read):
    said = tmp_path / "said"
    with contextlib.ExitStack() as opened:
        stream = subprocess.PIPE if target == "pipe" else opened.enter_context(open(tmp_path / target, "wb"))
        command = [sys.executable, "-c", PROGRAM, CHILD.format(path=str(said))]
        parent = opened.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stream))
        if target == "pipe":
            assert parent.stdout.readline() == b"ready\n"
        if not is_read:
            parent.stdout.close()
        parent.stdin.write(b"\n")
        parent.stdin.close()
        assert parent.wait() == 0
    assert said.read_text() == str(is_read)


@pytest.mark.parametrize(
    ("given", "known", "line"),
    [
        # What is left of -e smt_eval_command='fio --name=r job' in a shell.
        (["smt_eval_command=fio --name=r job"], "fio", "fio --name=r job"),
        (["smt_eval_command=Requests/sec: +(\\S+)\\b"], "Requests/sec:", "Requests/sec: +(\\S+)\\b"),
        (["smt_eval_command=one two", "smt_eval_command=three four"], "three", "three four"),
        (["smt_eval_budget=60 smt_eval_command=wrk -d2 URL smt_eval_run=x"], "wrk", "wrk -d2 URL"),
        (["smt_eval_command=sh -c 'a b'"], "sh", "sh -c 'a b'"),
        (['smt_eval_command="wrk -d2 URL" smt_eval_run=x'], "wrk -d2 URL", "wrk -d2 URL"),
        # What does not come from such a line stays; a later -e with a file has the last word.
        *((one, "wrk URL", "wrk URL") for one in ([], ['{"smt_eval_command": "wrk URL"}'], ["@file.yml"])),
        (["other_smt_eval_command=x y"], "wrk URL", "wrk URL"),
        (["smt_eval_command=one two", "@file.yml"], "wrk URL", "wrk URL"),
        (["smt_eval_command=it's {{ broken"], "wrk URL", "wrk URL"),
    ],
)
def test_a_line_is_whole(given, known, line, monkeypatch):
    for name in command_line.LINES:
        written = tuple(one.replace("smt_eval_command", name) for one in given)
        monkeypatch.setattr(context, "CLIARGS", CLIArgs({"extra_vars": written}))
        assert command_line.whole(name, known) == line


def test_the_call_is_whole_and_passes_on_no_credential(tmp_path, monkeypatch):
    """Whoever gives a command needs all of what the check had, but what is for the check alone."""
    hosts = ",".join(f"web{number:03d}.example.com" for number in range(100))
    (tmp_path / "in  ventory.yml").touch()
    monkeypatch.chdir(tmp_path)
    of_file = (
        '{"smt_memory_overcommit": "strict", "smt_trial_metrics_token": "secret", "smt_compliance_json": "x.json"}'
    )
    given = ("smt_policy=disabled", of_file, "database_password=secret")
    sources = (f"{tmp_path}/in  ventory.yml", "/etc/ansible/hosts", hosts)
    options = {"extra_vars": given, "subset": hosts, "inventory": sources, "connection": "ssh"}
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


OF_ALL = yaml.safe_load("""
root: mine
server: http://127.0.0.1:9090
# Ansible has facts of that name, which the user's own value is not to give way to.
ansible_local: local
smt_compliance_json: "{{ root }}/compliance.json"
smt_enforce_waves: [1, 10%]
smt_enforce_health_check: "{{ root }}/{{ kind }}.yml"
smt_trial_metrics_url: "{{ server }}"
smt_policy_group: "{{ kind }}"
smt_policy_waiver: "{{ waivers[inventory_hostname] | default(omit) }}"
waivers: {a: for a}
""")
OF_HOSTS = {"a": {"kind": "web"}, "b": {"kind": "db"}, "c": {"kind": "web"}}
# Arguments of a task that decide on the controller, and what each is for a host.
ASKED = {
    "json": "{{ smt_compliance_json | default('smt_compliance.json') }}",
    "page": "{{ smt_compliance_page | default('smt_compliance.html') }}",
    "metrics": "{{ smt_compliance_metrics | default(omit) }}",
    "sizes": "{{ smt_enforce_waves }}",
    "check": "{{ smt_enforce_health_check }}",
    "url": "{{ smt_trial_metrics_url }}",
    "nested": {"left_out": "{{ smt_report_before | default(omit) }}", "kept": "{{ root }}"},
    "of_the_play": "{{ smt_trial_dest }}",
    "like_a_fact": "{{ ansible_local }}",
    "registered": "{{ __smt_before.dest }}",
}


def expected(host):
    paths = {
        "json": "mine/compliance.json",
        "page": "smt_compliance.html",
        "check": f"mine/{OF_HOSTS[host]['kind']}.yml",
    }
    lists = {"sizes": [1, "10%"], "nested": {"kept": "mine"}, "url": "http://127.0.0.1:9090"}
    return {**paths, **lists, "of_the_play": "trials", "like_a_fact": "local", "registered": "registered"}


class World:
    """Ansible's objects of a play, as an action has them."""

    def __init__(self, directory, of_all=(), of_play=()):
        path = directory / "hosts.yml"
        path.write_text(yaml.safe_dump({"all": {"vars": {**OF_ALL, **dict(of_all)}, "hosts": OF_HOSTS}}))
        self.loader = DataLoader()
        inventory = InventoryManager(self.loader, [str(path)])
        self.manager = VariableManager(self.loader, inventory)
        task = {"name": "Ask", "ansible.legacy.debug": ASKED}
        of_play = {"smt_trial_dest": "trials", **dict(of_play)}
        written = {"hosts": "all", "gather_facts": False, "vars": of_play, "tasks": [task]}
        # As a file has it: newer releases only run templates of files.
        (directory / "play.yml").write_text(yaml.safe_dump([written]))
        play = Play.load(
            self.loader.load_from_file(str(directory / "play.yml"), **_TRUSTED)[0],
            variable_manager=self.manager,
            loader=self.loader,
        )
        self.hostvars = HostVars(inventory, self.manager, self.loader)
        self.task = next(task for block in play.compile() for task in block.block if task.name == "Ask")
        for host in OF_HOSTS:
            self.manager.set_nonpersistent_facts(host, {"__smt_before": {"dest": "registered"}})

    def user(self, here="a"):
        return user_of(self.hostvars, self.loader, list(OF_HOSTS), self.task, here)


_TRUSTED = (
    {"trusted_as_template": True} if "trusted_as_template" in DataLoader.load_from_file.__code__.co_varnames else {}
)


@pytest.fixture(name="world")
def _world(tmp_path):
    return World(tmp_path)


def own(user, host, names=None):
    """The arguments of the task for a host."""
    return json.loads(json.dumps(user.arguments(names or ASKED, host)))


def user_of(hostvars, loader, hosts, task=None, here="a"):
    play = {"ansible_play_hosts_all": hosts, "ansible_play_batch": hosts}
    return UserVariables(task, {**play, "inventory_hostname": here, "hostvars": hostvars}, loader)


@pytest.mark.parametrize("behaviour", ["replace", "merge"])
def test_variables_of_hosts_are_what_ansible_says(tmp_path, monkeypatch, behaviour):
    monkeypatch.setattr("ansible.constants.DEFAULT_HASH_BEHAVIOUR", behaviour)
    groups = {"web": ["a", "b"], "db": ["b", "c"], "a": ["c", "d"]}
    of_hosts = {
        # Some of these are Ansible's own names, and some are set elsewhere as well.
        "a": {"one": "inventory", "nested": {"host": 1}, "groups": "mine", "inventory_hostname": "x", "omit": "mine"},
        "b": {"ansible_facts": {"smt": 1}, "given": "by the host", "included": "no", "set": "no", "group_names": []},
        "e.example.org": {"ansible_host": "10.0.0.1", "playbook_dir": "/", "ansible_facts": 1},
    }
    inventory = {
        "hosts": {"e.example.org": of_hosts["e.example.org"]},
        "children": {
            name: {"hosts": {host: of_hosts.get(host) for host in hosts}, "vars": {"nested": {name: 1}, "set": name}}
            for name, hosts in groups.items()
        },
    }
    inventory["children"]["db"]["vars"]["ansible_group_priority"] = 10
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": inventory}))
    for place in (tmp_path, tmp_path / "play"):
        for kind, names in {"group_vars": ["all", *groups], "host_vars": ["a", "d"]}.items():
            (place / kind).mkdir(parents=True)
            for name in names:
                value = f"{kind}/{name} of {place.name}"
                said = {"one": value, f"of_{name}": value, "ansible_facts": value}
                (place / kind / f"{name}.yml").write_text(yaml.safe_dump(said))
    loader = DataLoader()
    loader.set_basedir(str(tmp_path / "play"))
    manager = VariableManager(loader, InventoryManager(loader, [str(tmp_path / "hosts.yml")]))
    manager._extra_vars = {"given": "by -e", "nested": {"extra": 1}}
    for host in ("b", "c"):
        manager.set_host_variable(host, "included", f"for {host}")
        manager.set_nonpersistent_facts(host, {"set": f"for {host}", "nested": {"set": 1}})
    hosts = ["a", "b", "c", "d", "e.example.org", "b", "a"]
    user = user_of(HostVars(manager._inventory, manager, loader), loader, hosts)
    for host in hosts:
        own = manager.get_vars(host=manager._inventory.get_host(host), include_hostvars=False)
        assert own["one"] and user.variables_of(host) == {**own, "hostvars": ANY}


def test_files_that_cannot_be_read_are_those_of_their_hosts(tmp_path):
    hosts = {"all": {"hosts": {"a": None}, "children": {"wrong": {"hosts": {"b": None}}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(hosts))
    for kind, name, content in (("host_vars", "a", "one: 1\n"), ("group_vars", "wrong", "one: [\n")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{name}.yml").write_text(content)
    loader = DataLoader()
    manager = VariableManager(loader, InventoryManager(loader, [str(tmp_path / "hosts.yml")]))
    user = user_of(HostVars(manager._inventory, manager, loader), loader, ["a", "b"])
    for _turn in range(2):
        assert user.variables_of("a")["one"] == 1
        with pytest.raises(AnsibleActionFail, match=r"\Ab: .* cannot be read: ."):
            user.variables_of("b")


def test_without_facts_it_is_what_ansible_says(world):
    for host in OF_HOSTS:
        assert own(world.user(), host) == expected(host)
        assert world.user().refusal(host) is None
        assert world.user().value("smt_policy_group", host) == OF_HOSTS[host]["kind"]
        # What is omitted is not set.
        assert world.user().value("smt_policy_waiver", host) == ("for a" if host == "a" else None)
        own_variables = world.user().variables_of(host)
        found = world.user().templated(own_variables["smt_policy_waiver"], own_variables)
        assert found == ("for a" if host == "a" else None)


OWN = {"kind", "smt_policy_x", "__smt_before", "__smt_other", "smt", "smt_memory", "hostvars", "omit", "vars"}
NAMES = sorted({*OF_ALL, *variables.known(), *RESULTS, *OWN})
PIPE = "{{ lookup('pipe', 'touch theirs') }}"
VALUES = ["theirs", PIPE, ["100%"], {"dest": "theirs"}, 100, True, None, {"a": {"b": ["c"]}}, "\x1b[2J", ""]
SETS = night.number(20, 1000)


def test_sets_of_facts_change_nothing_for_others_and_the_controller(world):
    random_of = random.Random(35)
    shown = 0
    for _number in range(SETS):
        hostile = random_of.choice(list(OF_HOSTS))
        facts = {name: random_of.choice(VALUES) for name in random_of.sample(NAMES, random_of.randint(1, 12))}
        world.manager.clear_facts(hostile)
        world.manager.set_host_facts(hostile, facts)
        user = world.user(here=random_of.choice(list(OF_HOSTS)))
        reserved = [name for name in facts if is_reserved(name)]
        assert (user.refusal(hostile) is not None) == bool(reserved), facts
        # Also what its own arguments are that decide on the controller.
        for host in dict.fromkeys([hostile, random_of.choice(list(OF_HOSTS))]):
            assert own(user, host) == expected(host), facts
        assert user.first_of_all() != hostile or not reserved
        assert user.value("smt_policy_group", hostile) == (None if reserved else OF_HOSTS[hostile]["kind"])
        known = world.manager.get_vars(host=world.manager._inventory.get_host(hostile))
        shown += any(name in known for name in reserved)
        world.manager.clear_facts(hostile)
    assert shown > SETS / 2, "the facts did not become variables: the test shows nothing"


def test_a_play_of_refused_hosts_has_nobody_whose_variables_count_and_module_defaults_stay(world):
    # As Ansible makes them, with what facts say.
    world.task.args = {"json": "theirs", "metrics": "theirs", "of_defaults": 5}
    found = own(world.user(), "a", ["json", "metrics", "of_defaults"])
    assert found == {"json": "mine/compliance.json", "of_defaults": 5}
    for host in OF_HOSTS:
        world.manager.set_host_facts(host, {"smt_eval_dest": "theirs"})
    with pytest.raises(AnsibleActionFail, match=r"a is refused: .* smt_eval_dest"):
        world.user().first_of_all()


def test_set_fact_and_register_decide_for_nobody_else(world):
    given = {"smt_enforce_waves": ["100%"], "smt_policy": "disabled", "smt_policy_judged": {}}
    world.manager.set_nonpersistent_facts("b", given)
    assert "set_fact or register" in world.user().refusal("b") and "smt_enforce_waves" in world.user().refusal("b")
    assert own(world.user(), "b", ["sizes"])["sizes"] == [1, "10%"]
    # What is about the host alone is the word of the playbook's author, and results are the collection's own.
    world.manager._nonpersistent_fact_cache["b"].pop("smt_enforce_waves")
    assert world.user().refusal("b") is None and world.user().registered("smt_policy_judged", "b") == {}
    # A fact of the same name does not stand for what was registered.
    world.manager._nonpersistent_fact_cache["b"].clear()
    world.manager.set_host_facts("b", {"smt_policy_judged": {"compliance": {"status": "compliant"}}})
    assert world.user().registered("smt_policy_judged", "b") is None


# What a user may write in order to have what is said of another host, each with a fact of a host in it.
BY_HOSTVARS = [
    "{{ hostvars['a'].said }}",
    "{{ hostvars['a']['ansible_facts']['said'] }}",
    "{{ (hostvars['a'] | combine({})).said }}",
    "{{ hostvars.values() | map(attribute='said', default='') | select | first }}",
    "{{ vars['hostvars']['a'].said }}",
    "{{ lookup('vars', 'hostvars')['a'].said }}",
    "{{ groups.all | map('extract', hostvars, ['ansible_facts', 'said']) | select('defined') | first }}",
    "{{ (hostvars | to_json | from_json).a.said }}",
    "{{ hostvars['a'].through }}",
    "{{ between }}",
]


@pytest.mark.parametrize("place", ["inventory", "play", "extra", "include_vars"])
@pytest.mark.parametrize("means", ["set_host_facts", "set_nonpersistent_facts"])
def test_no_fact_decides_by_way_of_hostvars(tmp_path, place, means):
    asked = {f"smt_trial_{number}": form for number, form in enumerate(BY_HOSTVARS)}
    asked.update(smt_trial_own="{{ hostvars['a'].kind }}", smt_trial_both="{{ hostvars['a'].root }}")
    given = {**asked, "between": BY_HOSTVARS[0], "through": "{{ said }}"}
    world = World(tmp_path, given if place == "inventory" else (), given if place == "play" else ())
    # As a file has them.
    (tmp_path / "given.yml").write_text(yaml.safe_dump(given))
    read = world.loader.load_from_file(str(tmp_path / "given.yml"), **_TRUSTED)
    if place == "extra":
        world.manager._extra_vars = read
    elif place == "include_vars":
        for name, value in read.items():
            world.manager.set_host_variable("b", name, value)
    getattr(world.manager, means)("a", {"said": "theirs", "root": "theirs", "ansible_facts": {"said": "theirs"}})
    assert world.hostvars["a"]["said"] == "theirs", "the facts are not known: the test shows nothing"
    user = world.user(here="b")
    of_host = user.variables_of("b")
    for name in asked:
        # Each is worked out to something else, or refused.
        with contextlib.suppress(AnsibleError):
            assert "theirs" not in str(user.value(name, "b")), given[name]
        with contextlib.suppress(AnsibleError):
            assert "theirs" not in str(user.templated(of_host.get(name), of_host)), given[name]
    # What the inventory says of another host is the user's own word.
    assert (user.value("smt_trial_own", "b"), user.value("smt_trial_both", "b")) == ("web", "mine")


def test_every_variable_of_the_collection_is_reserved_and_no_other_name():
    assert [name for name in variables.known() if not is_reserved(name)] == []
    free = ["smt", "smt_memory", "smtp_server", "smt_site", "ansible_smt", "SMT_EVAL_DEST", 5, None]
    assert [name for name in free if is_reserved(name)] == []
    assert all(map(is_for_all, variables.ONE_FOR_ALL))
    assert not any(map(is_for_all, [*RESULTS, "smt_survey_result", "smt_compliance_result"]))
