# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What real modules answer: recorded from playbooks that run for real."""

import dataclasses
import json
import pathlib
import shutil
import sys

import arena
import boot_maker
import memory_tree
import sysfs_tree
import this_machine
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.rollback import change as rollback_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import change as smt_change

# The shortest evaluation, in a run of its own.
SHORT = {
    **this_machine.SHORT,
    # A survey is asked the same.
    "smt_eval_probe": "auto",
    "smt_eval_run": arena.RUN,
    "smt_eval_dest": "out/results",
}
POLICY = {"smt_policy": "disabled", "smt_policy_scope": "both"}
POLICY |= {"smt_memory_on_oom": "panic", "smt_memory_panic_reboot_after": "10"}
KINDS = {"json": "json", "metrics": "prom", "page": "html"}
FILES = {f"smt_compliance_{name}": f"out/smt.{kind}" for name, kind in KINDS.items()}

PROBE = ("-e", "smt_survey_probe=auto")
SURVEY = arena.Play("survey", "threadwise.smt.smt_survey", PROBE, {"smt_survey_page": "out/survey.html"})
COMPLIANCE = arena.Play("compliance", "threadwise.smt.smt_compliance", variables={**POLICY, **FILES})
# Whoever is first is changed first and alone: the honest ones do not wait for others.
WAVES = {**POLICY, "smt_enforce_waves": [1, 1, "100%"]}
ENFORCE = arena.Play("enforce", "threadwise.smt.smt_enforce", ("--check",), WAVES)
EVALUATION = arena.Play("eval", "threadwise.smt.smt_eval", variables=SHORT)
RATE = {"name": "rate", "command": ["cat", "/run/rate"], "better": "higher", "primary": True}
DESIGN = {"smt_trial_run": arena.RUN, "smt_trial_dest": "out/trials", "smt_trial_metrics": [RATE], "smt_trial_seed": 1}
# What a trial asks before it draws its design. So many forks as hosts take part.
TRIAL = arena.Play("trial", "threadwise.smt.smt_trial", ("--check",), DESIGN, forks=40)
PLAYS = (SURVEY, COMPLIANCE, ENFORCE, EVALUATION, TRIAL)


@dataclasses.dataclass(frozen=True)
class Recordings:
    """Folders of answers by key, one a playbook."""

    directory: pathlib.Path

    @classmethod
    def of(cls, directory: pathlib.Path):
        """Fill an empty folder."""
        _record(directory)
        return cls(directory)

    def folder(self, play: arena.Play) -> pathlib.Path:
        return self.directory / "answers" / play.name.split()[0]

    def keys(self, play: arena.Play) -> list[str]:
        """What modules are asked in this playbook, in this order."""
        return json.loads((self.directory / f"{play.name}.json").read_text())

    def text(self, play: arena.Play, key: str) -> str:
        """What the real module answered first, as it was printed."""
        paths = [self.folder(play) / name for name in (f"{key}.1", key)]
        return next(path for path in paths if path.exists()).read_text().strip()

    def answer(self, play: arena.Play, key: str) -> dict:
        """The same as data."""
        return json.loads(self.text(play, key).partition("\n")[0])


def _record(directory):
    tree = directory / "tree"
    tree.mkdir()
    boot_maker.grub_tree(tree)
    sysfs_tree.write(tree, sysfs_tree.files(sysfs_tree.Machine(packages=2, cores=2, numbering="adjacent")))
    memory_tree.tree(tree)
    seen = smt_facts.gather(host_files.HostFs(str(tree)))
    # A tree cannot be switched; a running system with these files can.
    seen["methods"] = {
        "runtime": {"chosen": "smt_control", "possible": ["smt_control", "cpu_online"], "impossible": {}},
        "boot": {"chosen": "grub_debian", "possible": ["grub_debian"], "impossible": {}},
    }
    # These change the running system, or read it, and take no tree: their rooms do.
    switched = smt_change.RuntimeChange(smt_change.Request(state="disabled", check=True), None, str(tree)).run()
    booted = boot_change.run(host_files.HostFs(str(tree)), boot_change.Request("disabled", None, False, True))
    booted.pop("warnings")
    request = rollback_change.Request("saved", rollback_change.PARTS, rollout=True, check=True)
    saved = rollback_change.Rollback(request, _no_command, str(tree)).run()
    facts = {"changed": False, "ansible_facts": {"smt": seen}}
    made = {"smt_facts": facts, "smt_state": switched, "smt_boot_args": booted, "smt_rollback": saved}
    _play(directory, ENFORCE, {"smt_facts_sysroot": str(tree)}, made)
    with this_machine.this_machine():
        evaluated = _play(directory, EVALUATION, {}, {})
    for play in (SURVEY, COMPLIANCE, TRIAL):
        shutil.copytree(directory / "answers/enforce", directory / "answers" / play.name)
    # An evaluation of a sample reads the facts first.
    shutil.copy(directory / "answers/enforce/smt_facts", evaluated)
    for name in evaluated.glob("smt_probe*"):
        shutil.copy(name, directory / "answers/survey")
    # No rollback is pending.
    (directory / "answers/trial/rollback").write_bytes(b"")
    (directory / "answers/trial/rollback.how").write_text(json.dumps({"exit": 3}))
    for play, more in ((TRIAL, "smt_state"), (SURVEY, "smt_probe"), (COMPLIANCE, "smt_memory_facts")):
        (directory / f"{play.name}.json").write_text(json.dumps(["smt_facts", more]))


def _no_command(command, *_arguments, **_options):
    raise AssertionError(f"what is recorded on a tree calls no command: {command}")


def _play(directory, play, variables, made):
    """Run a playbook for real on one host, and keep what its modules answered. Returns the folder of the answers."""
    answers = directory / "answers" / play.name
    answers.mkdir(parents=True)
    replies = {key: arena.of(dict(result, invocation={"module_args": {}})) for key, result in made.items()}
    host = arena.Host("real", replies, variables, sys.executable)
    run = arena.play(directory / f"of-{play.name}", answers, play, [host])
    assert run.killed is None and "unreachable=0" in run.text() and "rescued=0" in run.text(), run.text()
    (directory / f"{play.name}.json").write_text(json.dumps([line.split(" ")[0] for line in run.logs["real"]]))
    for path in (run.directory / "hosts/real/said").iterdir():
        shutil.copy(path, answers)
    for key, answer in replies.items():
        (answers / key).write_bytes(answer.body)
    # Whoever asks more often hears the last again.
    for path in answers.glob("*.*"):
        name, _dot, number = path.name.rpartition(".")
        if number.isdigit() and not (answers / f"{name}.{int(number) + 1}").exists():
            shutil.copy(path, answers / name)
    return answers
