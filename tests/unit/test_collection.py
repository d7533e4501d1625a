# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for the collection as a whole: versions that agree, documentation that says what there is."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import BOOLEANS_FALSE, BOOLEANS_TRUE
from ansible_collections.threadwise.smt.plugins.module_utils._arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import states
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary.version import COLLECTION_VERSION
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.modules import smt_benchmark, smt_boot_args, smt_state
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())


def load(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_a_result_names_the_version_of_the_collection():
    assert load("galaxy.yml")["version"] == COLLECTION_VERSION


@pytest.mark.parametrize("role", ROLES)
def test_the_changelog_can_list_each_role(role):
    """antsibull-changelog names a role in the release in which it was added, and only if the role says which."""
    assert Version(load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["version_added"]) <= Version(
        COLLECTION_VERSION
    )


def documented_modules():
    """Name of each module -> its documentation."""
    found = {}
    for path in (ROOT / "plugins/modules").glob("*.py"):
        documentation = re.search(
            r'^DOCUMENTATION = r"""\n(.*?)^"""', path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
        found[path.stem] = yaml.safe_load(documentation.group(1))
    return found


NOT_FOR_USERS = {
    "smt_boot_visit",
    "smt_decisions",
    "smt_fail_host",
    "smt_node",
    "smt_preflight",
    "smt_program",
    "smt_proof_host",
    "smt_proof_report",
    "smt_restart",
    "smt_rollback",
    "smt_sample",
    "smt_status",
    "smt_trial_design",
    "smt_trial_host",
    "smt_trial_workers",
    "smt_user_values",
    "smt_waves",
    "smt_yields",
}


def test_modules_that_only_roles_and_playbooks_use_say_so_first():
    modules = documented_modules()
    first = {name: module["description"][0] for name, module in modules.items()}
    say_so = {
        name
        for name, line in first.items()
        if line.startswith("Used by the ") and line.endswith("; not to be called directly.")
    }
    assert say_so == NOT_FOR_USERS
    # As `ansible-doc -l` lists them.
    assert say_so == {name for name, module in modules.items() if module["short_description"].startswith("(internal) ")}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in NOT_FOR_USERS if re.search(rf"\b{name}\b", readme)] == []


def anchors(page):
    """The names of a page's headings, by the rule of GitHub and of the documentation site,
    which names those down to the fourth level.
    """
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    names = [
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#{1,4} +(.+?) *$", text, re.MULTILINE)
    ]
    return {f"{name}-{earlier}" if (earlier := names[:place].count(name)) else name for place, name in enumerate(names)}


def pages():
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "roles").glob("*/README.md")),
        *sorted((ROOT / "examples").glob("*/README.md")),
    ]


def test_files_that_pages_name_are_there():
    """Those that begin with a folder of the collection and end as files do; words in capitals stand for any name."""
    named = re.compile(
        r"(?<![\w/.{-])((?:docs|examples|molecule|playbooks|plugins|roles|tests|tools)/[\w./*-]+\.[a-z]{1,4})\b"
    )
    found = [(page, path) for page in pages() for path in named.findall(page.read_text(encoding="utf-8"))]
    lost = [
        f"{page.relative_to(ROOT)} -> {path}"
        for page, path in found
        if not list(ROOT.glob(re.sub("[A-Z]{4,}", "*", path)))
    ]
    assert lost == [] and len(found) > 50


def test_links_between_pages_lead_somewhere():
    lost, with_anchor = [], 0
    for page in pages():
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            there = page.parent / target if target else page
            with_anchor += bool(anchor)
            if not there.exists() or (anchor and anchor not in anchors(there)):
                lost.append(f"{page.relative_to(ROOT)} -> {target}{anchor and '#'}{anchor}")
    assert lost == []
    assert with_anchor > 10


def test_module_defaults_of_the_group_reach_each_module_for_users():
    assert load("meta/runtime.yml")["action_groups"] == {"smt": sorted(documented_modules().keys() - NOT_FOR_USERS)}


PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))


def pinned(lock):
    """Package -> the versions that a lock file pins, for one Python or another."""
    found = {}
    for name, version in re.findall(
        r"^([a-z0-9-]+)==([^ ;]+)", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE
    ):
        found.setdefault(name, []).append(version)
    return found


def wanted(file):
    """The requirements of a file and of those that it includes."""
    lines = [
        line.strip()
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    return [
        one
        for line in lines
        for one in (wanted(line.removeprefix("-r ")) if line.startswith("-r ") else [Requirement(line)])
    ]


def test_what_the_set_up_installs_is_what_the_requirements_allow():
    locked = pinned("requirements-dev.lock")
    assert all(
        requirement.specifier.contains(version)
        for requirement in wanted("requirements-dev.txt")
        for version in locked[requirement.name]
    )
    assert "--hash=sha256:" in (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")


def test_the_oldest_release_of_ansible_is_the_same_wherever_it_is_named():
    floor = load("meta/runtime.yml")["requires_ansible"].removeprefix(">=").removesuffix(".0")
    assert {load(path)["galaxy_info"]["min_ansible_version"] for path in ROOT.glob("roles/*/meta/main.yml")} == {floor}
    assert f"ansible-core {floor} or later" in (ROOT / "README.md").read_text(encoding="utf-8")
    locks = {
        path.stem.removeprefix("requirements-core-"): pinned(path.name)["ansible-core"]
        for path in ROOT.glob("requirements-core-*.lock")
    }
    assert min(locks) == floor and all(version.startswith(f"{name}.") for name, (version,) in locks.items())


@pytest.mark.parametrize(
    ("module", "option", "role", "variable"),
    [(smt_state, "state", "smt_runtime", "smt_runtime_state"), (smt_boot_args, "smt", "smt_boot", "smt_boot_smt")],
)
def test_a_role_takes_the_states_that_its_module_takes(module, option, role, variable):
    """Of all words for true and false only on and off are among them: Ansible then takes YAML's booleans for these."""
    choices = yaml.safe_load(module.DOCUMENTATION)["options"][option]["choices"]
    assert (
        load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"][variable]["choices"]
        == choices
    )
    assert set(choices) & (BOOLEANS_TRUE | BOOLEANS_FALSE) == {"on", "off"}
    spec = ArgumentSpecValidator({option: {"type": "str", "choices": choices}})
    taken = {
        given: states.named(spec.validate({option: given}).validated_parameters[option])
        for given in (True, False, "on", "off", "enabled")
    }
    assert taken == {True: "enabled", False: "disabled", "on": "enabled", "off": "disabled", "enabled": "enabled"}


def test_each_workload_and_arm_is_named_where_it_is_asked_for():
    options = yaml.safe_load(smt_benchmark.DOCUMENTATION)["options"]
    spec = load("roles/smt_eval/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    for text in (options["workloads"], spec["smt_eval_workloads"]):
        assert [one for one in BUILT_IN if f"V({one})" not in " ".join(text["description"])] == []
    # What is named is written by tools/registries.py where the sentence is there.
    for kind in catalogue.kinds():
        for text in (spec["smt_eval_arms"], *(() if kind.takes_reboot else (options["arms"],))):
            assert [one for one in catalogue.shown(kind) if f"V({one})" not in " ".join(text["description"])] == []
