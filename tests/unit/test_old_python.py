# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs on managed hosts runs with the oldest Python that hosts have: read from the text, and tried where there is
one. The command of vermin does not do for the first: it does not see `isascii()` or `int | None`, and counts the
annotations that no Python evaluates.
"""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
import sys

import boot_maker
import memory_tree
import old_python
import pytest
import sysfs_tree
import vermin

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
FILES = [
    str(path.relative_to(PLUGINS))
    for part in ("module_utils", "modules")
    for path in sorted((PLUGINS / part).rglob("*.py"))
]
# Methods of built-in types that came later: vermin sees them only where it knows the type.
LATER_METHODS = {"isascii", "removeprefix", "removesuffix", "as_integer_ratio", "bit_count", "fromisoformat"}


# ---- read from the text ----------------------------------------------------------------------------------------------


def executed(tree):
    """A file without what only type checkers read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "t.TYPE_CHECKING":
            node.body = [ast.copy_location(ast.Pass(), node)]
    return tree


def found_by_vermin(tree):
    """What vermin knows to be newer."""
    config = vermin.Config()
    config.set_verbose(3)
    config.add_target(old_python.OLDEST)
    config.set_only_show_violations(True)
    visitor = vermin.SourceVisitor(config=config)
    visitor.set_no_lines(set())
    visitor.tour(tree)
    visitor.minimum_versions()
    return visitor.output_text().splitlines()


def evaluated_annotations(tree):
    """The annotations that Python evaluates: not those of a function's own variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.annotation
        elif isinstance(node, ast.FunctionDef):
            yield node.returns
        elif isinstance(node, (ast.Module, ast.ClassDef)):
            yield from (line.annotation for line in node.body if isinstance(line, ast.AnnAssign))


def is_old(annotation):
    """Whether an old Python can evaluate it: a plain name, or a generic of `typing`, which the files call `t`."""
    if isinstance(annotation, ast.Subscript):
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        return ast.unparse(annotation.value).startswith("t.") and all(map(is_old, parts))
    return isinstance(annotation, (type(None), ast.Constant, ast.Name, ast.Attribute))


def newer(text):
    """What in a text needs a newer Python, one sentence each."""
    try:
        tree = executed(ast.parse(text, feature_version=old_python.OLDEST))
    except SyntaxError as error:
        return [f"L{error.lineno}: {error.msg}"]
    found = [
        f"L{one.lineno}: write the annotation as a string: {ast.unparse(one)}"
        for one in evaluated_annotations(tree)
        if not is_old(one)
    ]
    found += [
        f"L{node.lineno}: the method {node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in LATER_METHODS
    ]
    return found + found_by_vermin(tree)


def test_files_for_hosts_need_nothing_newer():
    found = {name: newer((PLUGINS / name).read_text(encoding="utf-8")) for name in FILES}
    assert {name: needed for name, needed in found.items() if needed} == {}, "these run with Python 3.6"


@pytest.mark.parametrize(
    "line",
    [
        "from __future__ import annotations",
        "from typing import Protocol",
        "if t.TYPE_CHECKING:\n    pass\nelse:\n    from typing import Protocol",
        "def f(one, /): pass",
        "print(one := 1)",
        "with (open(one) as two, open(three) as four): pass",
        "import subprocess\nsubprocess.run([], capture_output=True)",
        "one.isascii()",
        "def f(one: list[int]): pass",
        "def f(*, one: int | None = None): pass",
        "def f() -> list[int]: pass",
        "class One:\n    two: dict[str, int]",
        "one: tuple[int, ...] = ()",
    ],
)
def test_what_is_newer_is_found(line):
    assert newer(line)


# ---- tried -----------------------------------------------------------------------------------------------------------

# The oldest ansible-core that the tests have no longer runs with this Python: what a module uses of it, without its
# checks of arguments.
ANSIBLE = """
import json
import subprocess
import sys


class AnsibleModule:
    check_mode = True

    def __init__(self, argument_spec, **_more):
        self.params = {name: spec.get("default") for name, spec in argument_spec.items()}
        self.params.update(json.loads(sys.argv[1]))

    def run_command(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        return done.returncode, done.stdout, done.stderr

    def warn(self, text):
        pass

    def exit_json(self, **result):
        print(json.dumps(result, sort_keys=True))
        sys.exit(0)

    def fail_json(self, **result):
        self.exit_json(failed=True, **result)
"""
URLS = """
def open_url(url, **how):
    raise OSError("nothing is asked here")
"""
IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module("ansible_collections.threadwise.smt.plugins." + name)
"""
# One sample of one worker, and one round of the measurement of siblings: processes, pinning, clocks, signals.
MEASURE = """
import json, os
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import runner
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings import workers
cpu = min(os.sched_getaffinity(0))
sample = runner.run(["sh", "-c", "echo done"], [[cpu], []])
with workers.Workers([cpu]) as alone:
    alone.check_pins()
    sample["rounds"] = sum(1 for _round in range(3) for pace in alone.measure({cpu}, 0.05).values() if pace is None
        or pace > 0)
print(json.dumps(sample))
"""


@pytest.fixture
def run(tmp_path):
    """Returns what a program prints with an interpreter that finds the collection and the part of Ansible above."""
    packages = tmp_path / "packages"
    for place in ("ansible/module_utils", "ansible_collections/threadwise"):
        (packages / place).mkdir(parents=True)
    ansible = {"__init__": "", "module_utils/__init__": "", "module_utils/basic": ANSIBLE, "module_utils/urls": URLS}
    for name, text in ansible.items():
        (packages / f"ansible/{name}.py").write_text(text, encoding="utf-8")
    (packages / "ansible_collections/threadwise/smt").symlink_to(ROOT)

    # A locale that says nothing of the encoding, as where a service starts the module.
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "LC_ALL": "C"}

    def run_program(python, *arguments):
        call = [python, "-B", *map(str, arguments)]
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run_program


@old_python.needed
def test_all_files_for_hosts_can_be_imported(run):
    run(old_python.PYTHON, "-c", IMPORT_ALL, *(name.removesuffix(".py").replace("/", ".") for name in FILES))


@old_python.needed
@pytest.mark.parametrize("module", ["smt_facts", "smt_memory_facts"])
def test_facts_of_a_recorded_host_are_those_that_a_newer_python_reads(run, tmp_path, module):
    boot_maker.grub_tree(tmp_path / "host")
    sysfs_tree.write(tmp_path / "host", sysfs_tree.files(sysfs_tree.Machine(packages=2, cores=2, offline=(7,))))
    memory_tree.tree(tmp_path / "host")
    old, new = (
        run(python, PLUGINS / f"modules/{module}.py", json.dumps({"sysroot": str(tmp_path / "host")}))
        for python in (old_python.PYTHON, sys.executable)
    )
    assert json.loads(old)["ansible_facts"] and old == new


@old_python.needed
@pytest.mark.night(after=1)
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("smt_benchmark", {"run": "old", "arms": ["as_found", "smt_on", "smt_off"], "workloads": ["gzip"]}),
        ("smt_state", {"state": "disabled"}),
        ("smt_boot_args", {"smt": "enabled"}),
        ("smt_memory", {"overcommit": "heuristic"}),  # strict is refused where most of the memory is committed
    ],
)
def test_in_check_mode_a_module_answers_for_this_machine_as_with_a_newer_python(run, module, arguments):
    old, new = (
        json.loads(run(python, PLUGINS / f"modules/{module}.py", json.dumps(arguments)))
        for python in (old_python.PYTHON, sys.executable)
    )
    assert old and set(old) == set(new)


@old_python.needed
def test_samples_are_measured(run):
    sample = json.loads(run(old_python.PYTHON, "-c", MEASURE))
    assert [worker["output"] for worker in sample["workers"]] == ["done\n", "done\n"] and sample["rounds"] == 3
