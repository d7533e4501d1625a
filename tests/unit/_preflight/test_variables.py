# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables as users misspell them, of which each gets a sentence; and programs that a controller does not have."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import transport, variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight.transport import Connection
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight.variables import Setting

ROOT = pathlib.Path(__file__).resolve().parents[3]
SPECS = variables.known()


def sentences(name, value="x", where=None):
    if not variables.is_ours(name, SPECS):
        return []
    return variables.problems([Setting("h1", name, value, where)], SPECS, 1)


MISSPELT = yaml.safe_load("""
{smt_eval_runs: smt_eval_run, smt_eval_arm: smt_eval_arms, smt_eval_buget: smt_eval_budget, smt_eval-run: smt_eval_run,
SMT_EVAL_RUN: smt_eval_run, smt_evalrun: smt_eval_run, smt_eval_samples: smt_eval_sample,
smt_eval_sample_second: smt_eval_sample_seconds, smt_policy_scop: smt_policy_scope,
smt_polcy_scope: smt_policy_scope, smt_runtime_threads: smt_runtime_threads_per_core, smt_polcy: smt_policy,
smt_report_licence: smt_report_licence_per, smt_survey_file: smt_survey_page, smt_pull_uri: smt_pull_url}
""")
# A variable, what is set, and what is said after both; where a part of the value itself is wrong, which.
MALFORMED = yaml.safe_load("""
- [smt_eval_boots, zwei, "it must be a whole number"]
- [smt_eval_run, [a], "it must be a text"]
- [smt_boot_maxcpus, one_per_cpu, "maxcpus is 'one_per_cpu'"]
- [smt_runtime_rollback_after, 604801, "it must be from 0 to 604800"]
- [smt_eval_margin, 1 %, "it must be a number"]
- [smt_eval_probe, sometimes, "it must be auto, always or never"]
- [smt_eval_sample, 0, "it must be 1 or more"]
- [smt_eval_install, maybe, "it must be true or false"]
- [smt_enforce_waves, {a: 1}, "it must be a list"]
- [smt_runtime_cores, node_0, "it must be a mapping"]
- [smt_runtime_cores, {socket: 0}, "{'socket': 0} does not name cores"]
- [smt_eval_sample_seconds, short, "sample_seconds is short"]
- [smt_eval_settle_seconds, -1, "settle_seconds is -1"]
- [smt_eval_streams, 0-4, "streams has numbers"]
- [smt_eval_cpus, [[0, x]], "cpus has the entry [0, 'x']"]
- [smt_eval_response_limit, {oltp: 2 min}, "response_limit of oltp is '2 min'"]
- [smt_eval_placements, singel, "there is no placement 'singel'"]
- [smt_eval_workloads, [gzib], "there is no workload gzib"]
- [smt_eval_arms, [smt_on, nosmtt], "there is no arm 'nosmtt'"]
- [smt_eval_custom, [{name: a, argvv: ["true"]}], "argvv"]
- [smt_eval_custom, [{name: gzip, argv: [x], metric: {name: m, unit: s, better: lower, clock: wall_seconds}}], "gzip"]
- [smt_trial_most_switched, half, "smt_trial_most_switched is half"]
- [smt_trial_arms, [nosmt, smt_on], "nosmt takes a reboot"]
- [smt_trial_metrics, [{name: p99, query: p99}], "p99"]
- [smt_runtime_persist, "yes", "it must be none, tmpfiles or systemd"]
""")


@pytest.mark.parametrize(("name", "nearest"), MISSPELT.items())
def test_a_misspelt_name_gets_one_sentence_with_the_nearest(name, nearest):
    assert sentences(name) == [f"{name} is not a variable of threadwise.smt; the nearest is {nearest}"]


@pytest.mark.parametrize(("name", "value", "said"), MALFORMED)
def test_a_malformed_value_gets_one_sentence_with_what_is_allowed(name, value, said):
    (found,) = sentences(name, value)
    given, _colon, reason = found.partition(": ") if not isinstance(value, (list, dict)) else ("", "", found)
    assert said in reason and found.startswith(f"{name} is ") and given in ("", f"{name} is {value!r}")


@pytest.mark.parametrize("name", [*variables.ACCESS, "smt_pull_url"])
def test_what_may_be_a_credential_is_refused_without_its_value_and_judged_where_it_is_used(name):
    class Encrypted:
        __ENCRYPTED__ = True

        def __str__(self):
            raise AssertionError("nobody has the password of the vault here")

    for value, said in (
        (["http://u:hidden@h"], "is a list"),
        ({"hidden": 1}, "is a mapping"),
        (4242424242, "is a number"),
        (True, "is true or false"),
        ("hidden\nhidden", "has a line break"),
        (" ", "is blank"),
    ):
        (found,) = sentences(name, value)
        assert found.startswith(f"{name} {said}") and "hidden" not in found and "4242" not in found
    assert name == "smt_pull_url" or sentences(name, Encrypted()) == []


USABLE = yaml.safe_load("""
- [smt_boot_maxcpus, one_per_core]
- [smt_eval_margin, 0.02]
- [smt_eval_arms, "smt_on,maxcpus_4"]
- [smt_eval_arms, [smt_on, {smt_off_on: {node: 0}}]]
- [smt_eval_install, "yes"]
- [smt_enforce_waves, [1, 10%]]
- [smt_eval_custom, [{name: a, argv: [x], metric: {name: m, unit: 1/s, better: higher, clock: wall_seconds}}]]
- [smt_eval_run, 20260301]
- [smt_report_before, null]
- [smt_runtime_cores, {unit: db.service}]
# Each host gets a status for these.
- [smt_policy, disabledd]
- [smt_policy_scope, bot]
# Of users, of Ansible's facts, and private ones.
- [smt, {}]
- [smt_servers, [a]]
- [smtp_eval_run, x]
- [smt_team, x]
- [__smt_eval_runs, x]
- [7, x]
""")


@pytest.mark.parametrize(("name", "value"), USABLE)
def test_what_can_be_used_or_is_not_ours_gets_none(name, value):
    assert sentences(name, value) == []


def test_the_place_and_the_hosts_are_named_where_they_are_known():
    settings = [Setting(f"h{number}", "smt_policy_scop", "both", "all.yml:3") for number in range(5)]
    found = variables.problems([*settings, Setting("h9", "smt_eval_boots", "x")], SPECS, 6)
    assert [one.rpartition(" [")[2] for one in found] == ["h9]", "h0, h1, h2 and 2 more]"]
    assert found[1].startswith("smt_policy_scop (set in all.yml:3) is not a variable")
    assert variables.problems(settings, SPECS, 5)[0].endswith("the nearest is smt_policy_scope")


def test_all_that_playbooks_and_roles_use_is_known():
    patterns = ("playbooks/*.yml", "roles/*/*/*.yml", "roles/*/templates/*", "examples/**/*.yml")
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    text = "\n".join(re.sub("#.*|threadwise\\.smt\\.\\w+", "", path.read_text(encoding="utf-8")) for path in paths)
    names = set(re.findall(r"(?<![\w.-])smt_[a-z_]*[a-z](?![\w-])", text))
    used = {name for name in names if name.startswith(variables.prefixes(SPECS))}
    others = {"smt_eval_results", "smt_trial_results", "smt_proof_results", "smt_boot_args", "smt_memory_facts"}
    assert len(used) > 50 and used - others <= set(SPECS), "directories and modules"


def test_each_declared_variable_of_a_playbook_is_used_and_explained_in_it(tmp_path, monkeypatch):
    for playbook, declared in variables.PLAYBOOKS.items():
        text = (ROOT / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8")
        assert [name for name in declared if f"#   {name} " not in text] == []
    specs = [yaml.safe_load(path.read_text()) for path in ROOT.glob("roles/*/meta/argument_specs.yml")]
    roles = {name for spec in specs for name in spec["argument_specs"]["main"]["options"]}
    twice = [name for declared in variables.PLAYBOOKS.values() for name in declared if name in roles]
    assert twice == [], "a name has one declaration"
    monkeypatch.setattr(variables, "_ROLES", tmp_path)
    with pytest.raises(variables.VariablesError, match="install the collection again"):
        variables.known()


BY_BOOTS = yaml.safe_load("""
- [{smt_eval_arms: [smt_on, nosmt]}, "smt_eval_boots is 0: nosmt takes a reboot: set smt_eval_boots"]
- [{smt_eval_arms: "smt_on,nosmt", smt_eval_boots: "2"}, "allow it with smt_boot_reboot_ok=true"]
- [{smt_eval_boots: 1}, "smt_eval_arms is smt_on, smt_off and smt_eval_boots is 1"]
- [{smt_eval_boots: 1, smt_boot_reboot_ok: "yes"}, null]
- [{smt_eval_boots: 1, smt_boot_reboot_ok: "yes", smt_eval_goal: recheck}, "smt_eval_goal is recheck"]
- [{smt_eval_boots: 1, smt_boot_reboot_ok: "yes", smt_eval_goal: precision}, null]
- [{smt_eval_boots: 4, smt_boot_reboot_ok: true, smt_eval_factors: [[smt_on, smt_off], [thp_always, thp_never]]},
  "smt_eval_factors is set"]
- [{smt_eval_arms: [smt_on, mitigations_off], smt_eval_boots: 4, smt_boot_reboot_ok: true},
  smt_eval_allow_mitigations_off=true]
- [{smt_eval_arms: [smt_on, mitigations_off], smt_eval_boots: 4, smt_boot_reboot_ok: true,
  smt_eval_allow_mitigations_off: true}, null]
# What `problems` says, or what is not known yet.
- [{smt_eval_arms: [nope], smt_eval_boots: 1}, null]
- [{smt_eval_boots: null}, null]
""")


@pytest.mark.parametrize(("values", "expected"), BY_BOOTS)
def test_arms_that_take_a_reboot_are_judged_by_all_their_variables(values, expected):
    found = variables.boot_problems([Setting("h1", name, value) for name, value in values.items()], 2)
    assert found == [] if expected is None else expected in found[0] and found[0].endswith(" [h1]")


def test_a_slot_is_judged_by_all_its_variables():
    slot = {"fleetlock": "https://lock.example.com"}
    given = [Setting(host, "smt_slot", slot) for host in ("h1", "h 2")] + [Setting("h1", "smt_policy_group", "db_1")]
    found = variables.slot_problems(given, 3)
    assert [one.rpartition(" [")[2] for one in found] == ["h1]", "h 2]"] and "FleetLock" in found[0]
    assert variables.slot_problems([Setting("h1", "smt_policy_group", "db_1")], 1) == []
    window = [Setting("h1", "smt_reboot_window", {"from": 2, "to": 5})]
    assert "smt_reboot_window: its from" in variables.slot_problems(window, 1)[0]


def test_what_all_hosts_have_alike_is_not_set_host_by_host():
    written = [Setting(f"h{number}", "smt_eval_run", value) for number, value in ((1, "a"), (2, "b"), (2, "a"))]
    (found,) = variables.differing([*written[:2], Setting("h1", "smt_eval_boots", 1)], ["h1", "h2"])
    assert "smt_eval_run is 'a' [h1] but 'b' [h2]" in found
    (found,) = variables.differing(written[:1], ["h1", "h2"])
    assert "'a' [h1] but not set [h2]" in found
    assert variables.differing(written[::2], ["h1", "h2"]) == []


def test_hosts_that_need_a_program_which_the_controller_lacks_are_named_and_it_is_looked_for_once():
    ways = [Connection("a", "ssh", "ssh"), Connection("b", "ansible.builtin.ssh", "/opt/ssh")]
    ways += [Connection("c", "local", "ssh"), Connection("d", "smart", "ssh")]
    for installed, lost in (("ssh", {"b": "/opt/ssh"}), ("/opt/ssh", {"a": "ssh", "d": "ssh"})):
        assert transport.unreachable(ways, lambda name, own=installed: name if name == own else None) == lost
    asked = []
    lost = transport.unreachable([Connection(f"h{number}", "ssh", "ssh") for number in range(9)], asked.append)
    assert asked == ["ssh"] and transport.sentence({}, 3) is None
    assert transport.sentence(lost, 20) == (
        "this controller has no ssh, which 9 of 20 hosts need for their connection (h0, h1, h2, h3, h4 and 4 more):"
        " install it (Debian: package openssh-client), or set ansible_ssh_executable"
    )
