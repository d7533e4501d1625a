# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that answers with facts named like settings, before the collection's own play, fails alone."""

import contextlib
import json

import pytest
import yaml
from prometheus_server import send, serving
from simulated_fleet import Fleet
from test_policy_fleet import recap
from this_machine import line

HOSTILE, HONEST = "a", ["b", "c"]
HOSTS = [HOSTILE, *HONEST]
# As INTERPRETER of the fleet, of a host that answers by itself when it is asked for its facts.
COMPROMISED = r"""#!{python}
import os, subprocess, sys
payload = sys.stdin.buffer.read() if len(sys.argv) < 2 else b""
asks_setup = b"setup" in payload and b"ansible_facts" not in payload
if asks_setup and os.path.exists({place!r} + "/facts.json") and b"smt_facts" not in payload:
    print(open({place!r} + "/facts.json").read())
    sys.exit(0)
environment = dict(os.environ, SMT_HOST={place!r}, PYTHONPATH={loaded!r})
sys.exit(subprocess.run([{python!r}, *sys.argv[1:]], input=payload if payload else None, env=environment).returncode)
"""
# What the honest hosts say takes time, and is of no interest.
LITTLE = {"gather_subset": ["!all", "!min"]}
GATHERED = [{"hosts": "all", "gather_facts": True, **LITTLE, "tasks": []}]
BY_SETUP = [{"hosts": "all", "gather_facts": False, "tasks": [{"name": "Ask", "ansible.builtin.setup": LITTLE}]}]


def by_set_fact(facts, cacheable):
    """A play of the user that passes on what a host said."""
    when = {"when": f"inventory_hostname == '{HOSTILE}'"}
    said = {"argv": ["cat", "{{ smt_facts_sysroot }}/facts.json"]}
    given = {name: f"{{{{ (said.stdout | from_json).ansible_facts.{name} }}}}" for name in facts}
    ask = {"ansible.builtin.command": said, "register": "said", "check_mode": False, **when}
    passes_on = {"ansible.builtin.set_fact": {**given, "cacheable": cacheable}, **when}
    return [{"hosts": "all", "gather_facts": False, "tasks": [ask, passes_on]}]


class World:
    """A fleet whose first host is compromised."""

    def __init__(self, directory, of_inventory, facts):
        self.fleet = Fleet(directory, {host: {} for host in HOSTS})
        self.directory, self.facts = directory, facts
        self.inventory(of_inventory)
        place = directory / "hosts" / HOSTILE
        (place / "facts.json").write_text(json.dumps({"changed": False, "ansible_facts": facts}))
        known = {"python": self.fleet.python, "place": str(place), "loaded": str(directory / "loaded")}
        (place / "python").write_text(COMPROMISED.format(**known))

    def inventory(self, of_all):
        """Give all hosts variables."""
        path = self.directory / "inventory.yml"
        document = yaml.safe_load(path.read_text())
        document["all"]["vars"] = of_all
        path.write_text(yaml.safe_dump(document, sort_keys=False))

    def play(self, playbook, means, monkeypatch, *arguments):
        """Let the host's facts become known by some means, then call a playbook of the collection."""
        if means == "cache":
            monkeypatch.setenv("ANSIBLE_CACHE_PLUGIN", "jsonfile")
            monkeypatch.setenv("ANSIBLE_CACHE_PLUGIN_CONNECTION", str(self.directory / "cache"))
            (self.directory / "before.yml").write_text(yaml.safe_dump(GATHERED))
            code, seen = self.fleet.play("before.yml")
            assert code == 0, seen
            known = next((self.directory / "cache").glob(f"*{HOSTILE}")).read_text()
            assert next(iter(self.facts)) in known, "the facts are not known: the test shows nothing"
            return self.fleet.play(playbook, *arguments)
        before = {"gather_facts": GATHERED, "setup": BY_SETUP}.get(means) or by_set_fact(self.facts, "cache" in means)
        plays = [*before, {"ansible.builtin.import_playbook": f"threadwise.smt.{playbook}"}]
        (self.directory / "site.yml").write_text(yaml.safe_dump(plays))
        return self.fleet.play("site.yml", *arguments)


@pytest.mark.night
@pytest.mark.parametrize("means", ["cache", "set_fact"])
def test_no_fact_names_the_files_of_compliance(tmp_path, monkeypatch, means):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    facts = {f"smt_compliance_{name}": str(elsewhere / name) for name in ("json", "metrics", "page")}
    facts.update(smt_policy_group="everybody", smt_policy_results=str(tmp_path))
    world = World(tmp_path, {"smt_policy": "enabled", "smt_compliance_page": "mine.html"}, facts)
    code, seen = world.play("smt_compliance", means, monkeypatch)
    assert code == 2 and recap(seen, "failed") == {HOSTILE}, seen
    assert f"{HOSTILE} is refused: " in line(seen) and "smt_compliance_json" in line(seen), seen
    assert list(elsewhere.iterdir()) == [] and (tmp_path / "mine.html").exists(), seen
    hosts = {one["host"]: one["status"] for one in json.loads((tmp_path / "smt_compliance.json").read_text())["hosts"]}
    assert hosts == {HOSTILE: "unknown", **dict.fromkeys(HONEST, "compliant")}


@pytest.mark.parametrize("means", [pytest.param("setup", marks=pytest.mark.night), "set_fact, cacheable"])
def test_no_fact_has_a_file_of_the_controller_run_or_makes_one_wave_of_all(tmp_path, monkeypatch, means):
    for name in ("mine", "theirs"):
        file = {"path": f"{tmp_path}/{name}-{{{{ inventory_hostname }}}}", "state": "touch", "mode": "0600"}
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump([{"ansible.builtin.file": file}]))
    facts = {"smt_enforce_health_check": str(tmp_path / "theirs.yml"), "smt_policy_group": "b"}
    facts |= {"smt_enforce_waves": ["100%"], "smt_enforce_max_fail_percentage": 100}
    mine = {"smt_policy": "disabled", "smt_enforce_health_check": "mine.yml", "smt_enforce_waves": [1, 1, 1]}
    code, seen = (world := World(tmp_path, mine, facts)).play("smt_enforce", means, monkeypatch)
    assert code == 2 and recap(seen, "failed") == {HOSTILE}, seen
    assert f"{HOSTILE} is refused: " in line(seen) and "wave 1: b\nwave 2: c\n" in seen, seen
    assert sorted(path.name for path in tmp_path.glob("*-?")) == ["mine-b", "mine-c"]
    assert world.fleet.changes() == {host: ["smt false"] for host in HONEST}


@pytest.mark.night
def test_odd_facts_stop_the_playbook_for_their_host_alone(tmp_path, monkeypatch):
    odd = ["smt_policy_x", "smt_eval_boots", "smt_facts_sysroot", "__smt_policy_rollout", "smt_policy_judged"]
    world = World(tmp_path, {"smt_policy": "enabled"}, {name: {"compliance": {"status": "compliant"}} for name in odd})
    code, seen = world.play("smt_survey", "gather_facts", monkeypatch)
    assert code == 2 and recap(seen, "failed") == {HOSTILE}, seen
    names = "__smt_policy_rollout, smt_eval_boots, smt_facts_sysroot and 2 more"
    assert f"{HOSTILE} is refused: it has the facts {names}" in line(seen), seen


@pytest.mark.night(after=1)
@pytest.mark.parametrize("place", ["extra", "play"])
@pytest.mark.parametrize(
    ("playbook", "name", "others", "written"),
    [
        ("smt_survey", "smt_survey_page", {}, True),
        # The files of a call that no host matches are written before there is any task.
        ("smt_compliance", "smt_compliance_page", {"smt_compliance_hosts": "nobody"}, True),
        # Ansible itself reads these.
        ("smt_enforce", "smt_enforce_max_fail_percentage", {"smt_policy": "disabled"}, False),
        ("smt_survey", "smt_survey_hosts", {}, False),
    ],
)
def test_no_fact_decides_by_way_of_hostvars(tmp_path, monkeypatch, place, playbook, name, others, written):
    mine, theirs = {"page": ("mine", "theirs"), "percentage": (0, 100), "hosts": ("b,c", "all")}[name.split("_")[-1]]
    world = World(tmp_path, {"root": mine}, {"root": theirs})
    given = {name: f"{{{{ hostvars['{HOSTILE}'].root }}}}{'.html' if written else ''}", **others}
    of_play = {"ansible.builtin.import_playbook": f"threadwise.smt.{playbook}", "vars": given}
    (tmp_path / "site.yml").write_text(yaml.safe_dump([of_play]))
    named = [playbook, "cache", monkeypatch, "-e", json.dumps(given)]
    _code, seen = world.play(*(named if place == "extra" else ["site.yml", "cache", monkeypatch]))
    assert not (tmp_path / "theirs.html").exists(), seen
    refused = f"{name} cannot be worked out without facts of hosts" in line(seen)
    assert (tmp_path / "mine.html").exists() == written and refused != written, seen
    assert world.fleet.changes() == {}, seen


@contextlib.contextmanager
def servers():
    """A metrics server that knows one number, and one that only keeps what it is asked."""
    sent = []
    number = json.dumps({"status": "success", "data": {"resultType": "scalar", "result": [1e9, "5"]}})
    with (
        serving(lambda handler: send(handler, number)) as mine,
        serving(lambda handler: (sent.append(str(handler.headers)), send(handler, number))) as theirs,
    ):
        yield mine, theirs, sent


TOKEN = "the-token-of-the-metrics-server"


@pytest.mark.night(after=1)
@pytest.mark.parametrize(
    ("means", "direct"), [("set_fact", True), ("cache", False)], ids=["direct", "by another variable"]
)
def test_no_fact_sends_the_token_elsewhere(tmp_path, monkeypatch, means, direct):
    with servers() as (mine, theirs, sent):
        metric = {"name": "latency", "query": "vector(5)", "unit": "ms", "better": "lower", "primary": True}
        trial = {"smt_trial_metrics": [metric], "smt_trial_metrics_token": TOKEN, "metrics": mine}
        trial["smt_trial_metrics_url"] = mine if direct else "{{ metrics }}"
        facts = (
            {"smt_trial_metrics_url": theirs, "smt_trial_dest": f"{tmp_path}/theirs"} if direct else {"metrics": theirs}
        )
        world = World(tmp_path, trial, facts)
        _code, seen = world.play("smt_trial", means, monkeypatch, "--check", "-f", "5")
    assert sent == [] and not (tmp_path / "theirs").exists() and TOKEN not in seen, seen
    assert (f"{HOSTILE} is refused: " in line(seen)) == direct, seen


# Of each role a variable with a valid value, and what its play needs.
FACTS = {
    "smt_eval_dest": "theirs", "smt_policy_scope": "both", "smt_pull_url": "https://example.com/theirs.git",
    "smt_runtime_method": "cpu_online", "smt_boot_force": True, "smt_memory_margin": 5, "smt_trial_dest": "theirs",
}  # fmt: skip
ROLES = ["_".join(name.split("_")[:2]) for name in FACTS]
NEEDED = {
    "smt_trial_run": "r", "smt_eval_run": "r", "smt_policy": "enabled", "smt_runtime_state": "enabled",
    "smt_boot_smt": "enabled", "smt_pull_url": "https://example.com/x.git",
    "smt_trial_metrics": [{"name": "x", "command": ["echo", "5"], "unit": "ms", "better": "lower", "primary": True}],
}  # fmt: skip


@pytest.mark.night
def test_each_role_in_a_play_of_ones_own_refuses_the_host_too(tmp_path):
    world = World(tmp_path, NEEDED, FACTS)
    tasks = []
    for role in ROLES:
        goes = {"ansible.builtin.import_role": {"name": f"threadwise.smt.{role}"}}
        word = {"ansible.builtin.debug": {"msg": f"{role} ended: {{{{ ansible_failed_result.msg }}}}"}}
        tasks.append({"block": [goes, {"ansible.builtin.meta": "end_play"}], "rescue": [word]})
    (tmp_path / "site.yml").write_text(yaml.safe_dump([{"hosts": HOSTILE, "gather_facts": True, "tasks": tasks}]))
    _code, seen = world.fleet.play("site.yml")
    for role in ROLES:
        assert f"{role} ended: {HOSTILE} is refused: it has the facts smt_" in line(seen), seen
    assert world.fleet.changes() == {} and not (tmp_path / "theirs").exists()
