# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables as users misspell them: each gets a sentence, and what the collection itself uses gets none."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight.variables import Setting

ROOT = pathlib.Path(__file__).resolve().parents[3]
SPECS = variables.known()


def sentences(name, value="x", where=None):
    if not variables.is_ours(name, SPECS):
        return []
    return variables.problems([Setting("h1", name, value, where)], SPECS, 1)


MISSPELT = {
    "smt_eval_runs": "smt_eval_run",
    "smt_eval_name": "smt_eval_sample",
    "smt_eval_arm": "smt_eval_arms",
    "smt_eval_boot": "smt_eval_boots",
    "smt_eval_workload": "smt_eval_workloads",
    "smt_eval_placement": "smt_eval_placements",
    "smt_eval_buget": "smt_eval_budget",
    "smt_eval_host": "smt_eval_hosts",
    "smt_eval_serail": "smt_eval_serial",
    "smt_eval_samples": "smt_eval_sample",
    "smt_eval_sample_second": "smt_eval_sample_seconds",
    "smt_eval_affinity_conflict": "smt_eval_affinity_conflicts",
    "smt_eval-run": "smt_eval_run",
    "SMT_EVAL_RUN": "smt_eval_run",
    "smt_evalrun": "smt_eval_run",
    "smt_policy_scop": "smt_policy_scope",
    "smt_policy_reboot": "smt_policy_reboot_ok",
    "smt_policy_result": "smt_policy_results",
    "smt_policy_class": "smt_policy_classes",
    "smt_polcy": "smt_policy",
    "smt_polcy_scope": "smt_policy_scope",
    "smt_runtime_states": "smt_runtime_state",
    "smt_runtime_threads": "smt_runtime_threads_per_core",
    "smt_boot_reboot": "smt_boot_reboot_ok",
    "smt_memory_overcomit": "smt_memory_overcommit",
    "smt_report_licence": "smt_report_licence_per",
    "smt_survey_file": "smt_survey_page",
    "smt_compliance_html": "smt_compliance_hosts",
    "smt_enforce_wave": "smt_enforce_waves",
    "smt_enforce_healthcheck": "smt_enforce_health_check",
    "smt_pull_uri": "smt_pull_url",
}

MALFORMED = [
    ("smt_eval_boots", "zwei", "smt_eval_boots is 'zwei': it must be a whole number"),
    ("smt_eval_boots", True, "smt_eval_boots is True: it must be a whole number"),
    ("smt_eval_run", ["a"], "smt_eval_run is ['a']: it must be a text"),
    (
        "smt_boot_maxcpus",
        "one_per_cpu",
        (
            "smt_boot_maxcpus is 'one_per_cpu': maxcpus is 'one_per_cpu': it must be a whole number from 1 to 8192, in"
            " digits only, or one_per_core"
        ),
    ),
    ("smt_runtime_rollback_after", 604801, "smt_runtime_rollback_after is 604801: it must be from 0 to 604800"),
    ("smt_eval_margin", "1 %", "smt_eval_margin is '1 %': it must be a number"),
    ("smt_eval_probe", "sometimes", "smt_eval_probe is 'sometimes': it must be auto, always or never"),
    ("smt_eval_sample", "all", "smt_eval_sample is 'all': it must be a whole number"),
    ("smt_eval_install", "maybe", "smt_eval_install is 'maybe': it must be true or false"),
    ("smt_survey_probe", False, "smt_survey_probe is False: it must be auto, always or never"),
    ("smt_survey_usage_seconds", -1, "smt_survey_usage_seconds is -1: it must be from 0 to 86400"),
    ("smt_compliance_usage_seconds", "long", "smt_compliance_usage_seconds is 'long': it must be a number"),
    ("smt_memory_overcommit", "strickt", "smt_memory_overcommit is 'strickt': it must be heuristic, always or strict"),
    ("smt_memory_nr_hugepages", "1G", "smt_memory_nr_hugepages is '1G': it must be a whole number"),
    ("smt_enforce_max_fail_percentage", "10%", "smt_enforce_max_fail_percentage is '10%': it must be a number"),
    ("smt_enforce_waves", {"a": 1}, "smt_enforce_waves is {'a': 1}: it must be a list"),
    ("smt_policy_reboot_ok", "ja", "smt_policy_reboot_ok is 'ja': it must be true or false"),
    ("smt_runtime_cores", "node_0", "smt_runtime_cores is 'node_0': it must be a mapping"),
    (
        "smt_runtime_cores",
        {"socket": 0},
        (
            "smt_runtime_cores is {'socket': 0}: {'socket': 0} does not name cores: give one of cpus, node, package and"
            " unit"
        ),
    ),
    (
        "smt_eval_sample_seconds",
        "short",
        "smt_eval_sample_seconds is 'short': sample_seconds is short: it must be auto, or seconds from 0.05 to 600",
    ),
    (
        "smt_eval_settle_seconds",
        -1,
        "smt_eval_settle_seconds is -1: settle_seconds is -1: it must be auto, or seconds from 0 to 600",
    ),
    ("smt_eval_streams", "0-4", "smt_eval_streams is '0-4': streams has numbers that are not from 1 to 1024"),
    ("smt_eval_streams", "many", "smt_eval_streams is 'many': streams is not a list of numbers of streams:"),
    (
        "smt_eval_cpus",
        [[0, "x"]],
        "smt_eval_cpus is [[0, 'x']]: cpus has the entry [0, 'x']: give the CPUs of one placement",
    ),
    (
        "smt_eval_response_limit",
        {"oltp": "2 min"},
        "smt_eval_response_limit is {'oltp': '2 min'}: response_limit of oltp is '2 min': give a time with its unit",
    ),
    (
        "smt_eval_placements",
        "singel",
        "smt_eval_placements is 'singel': there is no placement 'singel': choose from single,",
    ),
    (
        "smt_eval_workloads",
        ["gzib"],
        "smt_eval_workloads is ['gzib']: there is no workload gzib: choose from array_columns,",
    ),
    (
        "smt_eval_custom",
        [
            {
                "name": "gzip",
                "argv": ["true"],
                "metric": {"name": "m", "unit": "s", "better": "lower", "clock": "wall_seconds"},
            }
        ],
        "smt_eval_custom is ",
    ),
    (
        "smt_trial_most_switched",
        "half",
        (
            "smt_trial_most_switched is 'half': smt_trial_most_switched is half: it must be a number of hosts, 1 or"
            " more, or a share"
        ),
    ),
    ("smt_trial_arms", ["nosmt", "smt_on"], "smt_trial_arms is ['nosmt', 'smt_on']: nosmt takes a reboot"),
    ("smt_trial_metrics", [{"name": "p99", "query": "p99"}], "smt_trial_metrics is "),
    ("smt_trial_period", 1, "smt_trial_period is 1: it must be from 10 to 604800"),
    ("smt_runtime_persist", "yes", "smt_runtime_persist is 'yes': it must be none, tmpfiles or systemd"),
]


@pytest.mark.parametrize(("name", "nearest"), MISSPELT.items())
def test_a_misspelt_name_gets_one_sentence_with_the_nearest(name, nearest):
    assert sentences(name) == [f"{name} is not a variable of threadwise.smt; the nearest is {nearest}"]


@pytest.mark.parametrize(("name", "value", "sentence"), MALFORMED)
def test_a_malformed_value_gets_one_sentence_with_what_is_allowed(name, value, sentence):
    (found,) = sentences(name, value)
    assert found.startswith(sentence)


@pytest.mark.parametrize("name", [*variables.ACCESS, "smt_pull_url"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["http://u:hidden@h"], "is a list: it must be a text, in quotes (its value is not shown)"),
        ({"hidden": 1}, "is a mapping: it must be a text, in quotes (its value is not shown)"),
        (4242424242, "is a number: it must be a text, in quotes (its value is not shown)"),
        (True, "is true or false: it must be a text, in quotes (its value is not shown)"),
        (
            "hidden\nhidden",
            "has a line break or another character in it that cannot be printed (its value is not shown)",
        ),
        (" ", "is blank: is the file that it comes from empty?"),
    ],
)
def test_what_may_be_a_credential_is_refused_without_its_value(name, value, said):
    assert sentences(name, value) == [f"{name} {said}"]


def test_a_credential_that_is_encrypted_is_judged_where_it_is_used():
    class Encrypted:
        __ENCRYPTED__ = True

        def __str__(self):
            raise AssertionError("nobody has the password of the vault here")

    assert sentences("smt_trial_metrics_token", Encrypted()) == []


def test_the_tables_are_as_long_as_promised():
    assert len(MISSPELT) + len(MALFORMED) >= 40


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("smt_boot_maxcpus", "one_per_core"),
        ("smt_boot_maxcpus", 4),
        ("smt_eval_boots", "2"),
        ("smt_eval_margin", 0.02),
        ("smt_eval_arms", "smt_on,smt_off"),
        ("smt_eval_install", "yes"),
        ("smt_enforce_waves", [1, "10%"]),
        (
            "smt_eval_custom",
            [
                {
                    "name": "a",
                    "argv": ["true"],
                    "metric": {"name": "m", "unit": "1/s", "better": "higher", "clock": "wall_seconds"},
                }
            ],
        ),
        ("smt_eval_run", 20260301),
        ("smt_report_before", None),
        ("smt_runtime_cores", {}),
        ("smt_runtime_cores", {"unit": "db.service"}),
        # Each host gets a status for these.
        ("smt_policy", "disabledd"),
        ("smt_policy_scope", "bot"),
        # Of users, of Ansible's facts, and private ones.
        ("smt", {}),
        ("smt_memory", {}),
        ("smt_servers", ["a"]),
        ("smtp_eval_run", "x"),
        ("smt_team", "x"),
        ("__smt_eval_runs", "x"),
        ("eval_run", "x"),
        (7, "x"),
    ],
)
def test_what_can_be_used_or_is_not_ours_gets_none(name, value):
    assert sentences(name, value) == []


def test_the_place_and_the_hosts_are_named_where_they_are_known():
    settings = [Setting(f"h{number}", "smt_policy_scop", "both", "all.yml:3") for number in range(5)] + [
        Setting("h9", "smt_eval_boots", "x")
    ]
    assert variables.problems(settings, SPECS, 6) == [
        "smt_eval_boots is 'x': it must be a whole number [h9]",
        (
            "smt_policy_scop (set in all.yml:3) is not a variable of threadwise.smt; the nearest is smt_policy_scope"
            " [h0, h1, h2 and 2 more]"
        ),
    ]
    assert variables.problems(settings[:5], SPECS, 5)[0].endswith("the nearest is smt_policy_scope")


def test_a_nested_value_says_which_part_is_wrong():
    (sentence,) = sentences("smt_eval_custom", [{"name": "a", "argvv": ["true"]}])
    assert sentence.startswith("smt_eval_custom is ") and "argvv" in sentence


def used():
    """Each variable of the collection that playbooks, roles and examples use."""
    paths = [
        *ROOT.glob("playbooks/*.yml"),
        *ROOT.glob("roles/*/*/*.yml"),
        *ROOT.glob("roles/*/templates/*"),
        *ROOT.glob("examples/**/*.yml"),
    ]
    text = "\n".join(re.sub("#.*|threadwise\\.smt\\.\\w+", "", path.read_text(encoding="utf-8")) for path in paths)
    return {
        name
        for name in re.findall(r"(?<![\w.-])smt_[a-z_]*[a-z](?![\w-])", text)
        if name.startswith(variables.prefixes(SPECS))
    }


def test_all_that_playbooks_and_roles_use_is_known():
    assert len(used()) > 50
    others = {
        "smt_eval_results",
        "smt_trial_results",
        "smt_proof_results",
        "smt_boot_args",
        "smt_memory_facts",
    }  # directories and modules
    assert used() - others <= set(SPECS)


def test_each_declared_variable_of_a_playbook_is_used_and_explained_in_it():
    for playbook, declared in variables.PLAYBOOKS.items():
        text = (ROOT / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8")
        assert [name for name in declared if f"#   {name} " not in text] == []
    roles = {
        name
        for path in ROOT.glob("roles/*/meta/argument_specs.yml")
        for name in yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]
    }
    assert [name for declared in variables.PLAYBOOKS.values() for name in declared if name in roles] == [], (
        "a name has one declaration"
    )


def test_the_prefixes_are_those_of_roles_and_playbooks():
    names = (
        "boot",
        "compare",
        "compliance",
        "enforce",
        "eval",
        "exposure",
        "history",
        "memory",
        "policy",
        "proof",
        "pull",
        "reboot",
        "report",
        "runtime",
        "slot",
        "survey",
        "trial",
        "usage",
    )
    assert variables.prefixes(SPECS) == tuple(f"smt_{name}_" for name in names)


def test_without_the_roles_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(variables, "_ROLES", tmp_path)
    with pytest.raises(variables.VariablesError, match="install the collection again"):
        variables.known()


BY_BOOTS = [
    (
        {"smt_eval_arms": ["smt_on", "nosmt"]},
        "smt_eval_arms is smt_on, nosmt and smt_eval_boots is 0: nosmt takes a reboot: set smt_eval_boots",
    ),
    (
        {"smt_eval_arms": "smt_on,nosmt", "smt_eval_boots": "2"},
        "rebooted 4 times to compare boots: allow it with smt_boot_reboot_ok=true",
    ),
    (
        {"smt_eval_boots": 1},
        "smt_eval_arms is smt_on, smt_off and smt_eval_boots is 1: the host would be rebooted 3 times",
    ),
    ({"smt_eval_boots": 1, "smt_boot_reboot_ok": "yes"}, None),
    (
        {"smt_eval_boots": 1, "smt_boot_reboot_ok": "yes", "smt_eval_goal": "recheck"},
        "smt_eval_goal is recheck and smt_eval_boots is 1: a re-check takes two looks at what is switched at run time",
    ),
    ({"smt_eval_boots": 1, "smt_boot_reboot_ok": "yes", "smt_eval_goal": "precision"}, None),
    (
        {"smt_eval_arms": ["smt_on", "mitigations_off"], "smt_eval_boots": 4, "smt_boot_reboot_ok": True},
        "smt_eval_allow_mitigations_off=true",
    ),
    (
        {
            "smt_eval_arms": ["smt_on", "mitigations_off"],
            "smt_eval_boots": 4,
            "smt_boot_reboot_ok": True,
            "smt_eval_allow_mitigations_off": True,
        },
        None,
    ),
    # What `problems` says, or what is not known yet.
    ({"smt_eval_arms": ["nope"], "smt_eval_boots": 1}, None),
    ({"smt_eval_boots": "x"}, None),
    ({"smt_eval_boots": -1}, None),
    ({"smt_eval_boots": None}, None),
]


@pytest.mark.parametrize(("values", "expected"), BY_BOOTS)
def test_arms_that_take_a_reboot_are_judged_by_all_their_variables(values, expected):
    found = variables.boot_problems([Setting("h1", name, value) for name, value in values.items()], 2)
    assert found == [] if expected is None else expected in found[0] and found[0].endswith(" [h1]")


def test_arms_that_do_not_exist_are_told_before_any_host_is_contacted():
    assert "there is no arm 'nosmtt': choose from as_found" in sentences("smt_eval_arms", ["smt_on", "nosmtt"])[0]
    assert sentences("smt_eval_arms", "smt_on,maxcpus_4") == []


def test_factors_are_not_booted_and_wrong_ones_are_named_before_any_host_is_contacted():
    factors = [["smt_on", "smt_off"], ["thp_always", "thp_never"]]
    given = {"smt_eval_factors": factors, "smt_eval_boots": 4, "smt_boot_reboot_ok": True}
    settings = [variables.Setting("h1", name, value) for name, value in given.items()]
    (problem,) = variables.boot_problems(settings, 1)
    assert "smt_eval_factors is set and smt_eval_boots is 4: factors are switched at run time" in problem
    wrong = [variables.Setting("h1", "smt_eval_factors", [["smt_on", "nosmt"], ["thp_always", "thp_never"]])]
    (problem,) = variables.problems(wrong, SPECS, 1)
    assert "nosmt and thp_always cannot be combined" in problem


def test_a_slot_is_judged_by_all_its_variables():
    slot = {"fleetlock": "https://lock.example.com"}
    given = [Setting(host, "smt_slot", slot) for host in ("h1", "h 2")] + [Setting("h1", "smt_policy_group", "db_1")]
    found = variables.slot_problems(given, 3)
    assert len(found) == 2 and "FleetLock takes letters, digits, dots and hyphens" in found[0]
    assert found[0].endswith(" [h1]") and found[1].startswith("the host's name") and found[1].endswith(" [h 2]")
    assert variables.slot_problems([Setting("h1", "smt_policy_group", "db_1")], 1) == []
    window = [Setting("h1", "smt_reboot_window", {"from": 2, "to": 5})]
    assert "smt_reboot_window: its from must be a time of UTC" in variables.slot_problems(window, 1)[0]
