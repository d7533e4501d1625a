# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for the collection as a whole: versions that agree, documentation that says what there is."""

from __future__ import annotations

import collections
import pathlib
import re

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import BOOLEANS_FALSE, BOOLEANS_TRUE
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import states
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary.version import COLLECTION_VERSION
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.modules import smt_benchmark, smt_boot_args, smt_state
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def options_of(role):
    return load(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]


def test_versions_agree():
    """That of a role, because antsibull-changelog names it in the release in which it was added."""
    assert load("galaxy.yml")["version"] == COLLECTION_VERSION
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        added = load(path)["argument_specs"]["main"]["version_added"]
        assert Version(added) <= Version(COLLECTION_VERSION), path
    floor = load("meta/runtime.yml")["requires_ansible"].removeprefix(">=").removesuffix(".0")
    assert {load(path)["galaxy_info"]["min_ansible_version"] for path in ROOT.glob("roles/*/meta/main.yml")} == {floor}
    assert f"ansible-core {floor} or later" in (ROOT / "README.md").read_text(encoding="utf-8")
    files = {path.stem.removeprefix("core-"): path.name for path in ROOT.glob("requirements/core-*.lock")}
    locks = {name: pinned(f"requirements/{file}")["ansible-core"] for name, file in files.items()}
    assert min(locks) == floor and all(version.startswith(f"{name}.") for name, (version,) in locks.items())


def documented_modules():
    """Name of each module -> its documentation."""
    form = re.compile(r'^DOCUMENTATION = r"""\n(.*?)^"""', re.DOTALL | re.MULTILINE)
    paths = (ROOT / "plugins/modules").glob("*.py")
    return {path.stem: yaml.safe_load(form.search(path.read_text(encoding="utf-8"))[1]) for path in paths}


OF_ROLES = (
    "boot_visit decisions fail_host node preflight program proof_host proof_report restart rollback sample status"
    " trial_design trial_host trial_workers user_values waves yields"
)
NOT_FOR_USERS = {f"smt_{name}" for name in OF_ROLES.split()}


def test_modules_that_only_roles_and_playbooks_use_say_so_first_and_defaults_of_the_group_reach_all_others():
    modules = documented_modules()
    first = {name: module["description"][0] for name, module in modules.items()}
    form = re.compile("Used by the .*; not to be called directly[.]")
    say_so = {name for name, line in first.items() if form.fullmatch(line)}
    assert say_so == NOT_FOR_USERS
    # As `ansible-doc -l` lists them.
    assert say_so == {name for name, module in modules.items() if module["short_description"].startswith("(internal) ")}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in NOT_FOR_USERS if re.search(rf"\b{name}\b", readme)] == []
    assert load("meta/runtime.yml")["action_groups"] == {"smt": sorted(modules.keys() - NOT_FOR_USERS)}


def anchors(page):
    """The names of a page's headings, as GitHub and the documentation site make them, down to the fourth level."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    names = [
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#{1,4} +(.+?) *$", text, re.MULTILINE)
    ]
    return {f"{name}-{earlier}" if (earlier := names[:place].count(name)) else name for place, name in enumerate(names)}


def test_links_between_pages_lead_somewhere_and_files_that_they_name_are_there():
    forms = ("*.md", "docs/*.md", "roles/*/README.md", "examples/*/README.md")
    places = "docs|examples|molecule|playbooks|plugins|roles|tests|tools"
    named = re.compile(rf"(?<![\w/.{{-])((?:{places})/[\w./*-]+\.[a-z]{{1,4}})\b")
    lost, with_anchor, names = [], 0, 0
    for page in [page for form in forms for page in ROOT.glob(form)]:
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
            there = page.parent / target if target else page
            with_anchor += bool(anchor)
            if not there.exists() or (anchor and anchor not in anchors(there)):
                lost.append(f"{page.relative_to(ROOT)} -> {target}{anchor and '#'}{anchor}")
        # A name in capitals is any.
        found = named.findall(text)
        names += len(found)
        lost += [(page, path) for path in found if not list(ROOT.glob(re.sub("[A-Z]{4,}", "*", path)))]
    assert lost == [] and with_anchor > 10 and names > 50


def pinned(lock):
    """Package -> the versions that a lock file pins, for one Python or another."""
    found = collections.defaultdict(list)
    text = (ROOT / lock).read_text(encoding="utf-8")
    for name, version in re.findall(r"^([a-z0-9-]+)==([^ ;]+)", text, re.MULTILINE):
        found[name].append(version)
    return found


def wanted(file):
    """Yield the requirements of a file and of those that it includes."""
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("-r "):
            yield from wanted((ROOT / file).parent / line.removeprefix("-r "))
        elif line.strip() and not line.startswith("#"):
            yield Requirement(line)


def test_what_the_set_up_installs_is_what_the_requirements_allow():
    locked = pinned("requirements/dev.lock")
    for one in wanted("requirements/dev.txt"):
        assert all(one.specifier.contains(version) for version in locked[one.name]), one
    assert "--hash=sha256:" in (ROOT / "requirements/dev.lock").read_text(encoding="utf-8")


def test_a_role_takes_the_states_that_its_module_takes():
    """Of all words for true and false only on and off are among them: Ansible then takes YAML's booleans for these."""
    for module, option, role in ((smt_state, "state", "smt_runtime"), (smt_boot_args, "smt", "smt_boot")):
        choices = yaml.safe_load(module.DOCUMENTATION)["options"][option]["choices"]
        assert options_of(role)[f"{role}_{option}"]["choices"] == choices
        assert set(choices) & (BOOLEANS_TRUE | BOOLEANS_FALSE) == {"on", "off"}
        spec = ArgumentSpecValidator({option: {"type": "str", "choices": choices}})
        asked = {True: "enabled", False: "disabled", "on": "enabled", "off": "disabled", "enabled": "enabled"}
        taken = {one: states.named(spec.validate({option: one}).validated_parameters[option]) for one in asked}
        assert taken == asked


def test_each_workload_and_arm_is_named_where_it_is_asked_for():
    options = yaml.safe_load(smt_benchmark.DOCUMENTATION)["options"]
    spec = options_of("smt_eval")
    for text in (options["workloads"], spec["smt_eval_workloads"]):
        assert [one for one in BUILT_IN if f"V({one})" not in " ".join(text["description"])] == []
    # What is named is written by tools/registries.py where the sentence is there.
    for kind in catalogue.kinds():
        for text in (spec["smt_eval_arms"], *(() if kind.takes_reboot else (options["arms"],))):
            assert [one for one in catalogue.shown(kind) if f"V({one})" not in " ".join(text["description"])] == []
