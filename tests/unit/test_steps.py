# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of `make test`: which there are, how they are run side by side, counted and ended."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
SPECIFICATION = importlib.util.spec_from_file_location("threadwise_test_steps", ROOT / "tools/test.py")
steps = importlib.util.module_from_spec(SPECIFICATION)
sys.modules[SPECIFICATION.name] = steps
SPECIFICATION.loader.exec_module(steps)

# Ends when both have begun.
MEET = "touch %s/$0; until [ -e %s/a ] && [ -e %s/b ]; do sleep 0.05; done"


def shell(line, *words, packages=()):
    return steps.Step(("sh", "-c", line, *words), packages)


@pytest.fixture(name="run")
def run_steps(tmp_path, monkeypatch):
    """Runs steps, each a Step, two of them side by side. Returns the exit code."""
    monkeypatch.setattr(steps, "LOGS", steps.ROOT / ".cache" / "test" / f"of-{os.getpid()}")
    handler = signal.getsignal(signal.SIGTERM)

    def run(*given):
        named = {f"step-{place}": step for place, step in enumerate(given)}
        monkeypatch.setattr(steps, "STEPS", named)
        monkeypatch.setattr(steps, "GROUPS", {"all": steps.Group(tuple(named), side_by_side=2)})
        return steps.main(["all"])

    yield run
    signal.signal(signal.SIGTERM, handler)
    for log in steps.LOGS.glob("*"):
        log.unlink()
    if steps.LOGS.is_dir():
        steps.LOGS.rmdir()


def test_each_scenario_is_run_by_make_test_or_make_scenarios():
    scenarios = {path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml")}
    assert scenarios == set(steps.SHORT_SCENARIOS + steps.LONG_SCENARIOS)
    named = [name for group in steps.GROUPS.values() for name in group.steps]
    assert sorted(named) == sorted(steps.STEPS), "each step is in one group, once"


def test_two_steps_run_side_by_side_and_each_begins_when_one_has_ended(run, tmp_path, capsys):
    meet = MEET.replace("%s", str(tmp_path))
    alone = f"[ -e {tmp_path}/ended ]"
    assert (
        run(shell(f"{meet}; touch {tmp_path}/ended", "a"), shell(f"{meet}; touch {tmp_path}/ended", "b"), shell(alone))
        == 0
    )
    assert capsys.readouterr().out.endswith("3 passed, 0 failed, 0 skipped\n")


def test_a_step_that_fails_is_shown_and_counted_and_the_others_go_on(run, tmp_path, capsys):
    assert run(shell("echo the reason; exit 3"), shell("true"), shell(f"touch {tmp_path}/after")) == 1
    seen = capsys.readouterr().out
    assert "the reason" in seen and (tmp_path / "after").exists() and seen.endswith("2 passed, 1 failed, 0 skipped\n")
    assert "failed: step-0: exit code 3\nall steps: " in seen


def test_what_pytest_and_sanity_counted_is_added_up(run, tmp_path, capsys):
    (tmp_path / "test_three.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert False\n@pytest.mark.skip\ndef test_c(): pass\n",
        encoding="utf-8",
    )
    # Else names have what the clone's path and that of the test have in common.
    rootdir = f"--rootdir={tmp_path}"
    counted = steps.Step((sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", rootdir, str(tmp_path)))
    assert run(counted, shell("echo 'Running sanity test \"pep8\"'; echo 'Running sanity test \"pylint\"'")) == 1
    seen = capsys.readouterr().out
    assert seen.endswith("4 passed, 1 failed, 1 skipped\n")
    assert "\nfailed: step-0: test_three::test_b: assert False\nall steps: " in seen, (
        "the end of a log names what failed"
    )


def test_options_for_pytest_from_the_environment_are_kept(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "test_two.py").write_text("def test_a(): pass\ndef test_b(): assert False\n", encoding="utf-8")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k test_a")
    assert run(steps.Step((sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)))) == 0
    assert capsys.readouterr().out.endswith("2 passed, 0 failed, 0 skipped\n")


@pytest.mark.parametrize("is_room", [True, False])
def test_tests_have_their_files_in_memory_where_there_is_room_and_nothing_stays_there(
    run, tmp_path, monkeypatch, is_room
):
    memory, seen = tmp_path / "memory", tmp_path / "seen"
    memory.mkdir()
    monkeypatch.setattr(steps, "MEMORY", memory)
    monkeypatch.setattr(steps, "MIN_MEMORY", 0 if is_room else 2**60)
    monkeypatch.setenv("TMPDIR", "/on/disk")
    # A step of pytest is one whose command has that word.
    assert run(shell(f'echo "$TMPDIR" >{seen}; [ ! -d "$TMPDIR" ] || stat -c %a "$TMPDIR" >>{seen}', "pytest")) == 0
    place, *mode = seen.read_text().split()
    assert (pathlib.Path(place).parent, mode) == ((memory, ["1777"]) if is_room else (pathlib.Path("/on"), []))
    assert list(memory.iterdir()) == []


def test_packages_that_are_missing_end_it_before_any_step(run, tmp_path, monkeypatch, capfd):
    installer = tmp_path / "tools" / "debian-packages.sh"
    installer.parent.mkdir()
    installer.write_text("#!/bin/sh\necho missing: $* >&2\nexit 1\n", encoding="utf-8")
    installer.chmod(0o755)
    monkeypatch.setattr(steps, "ROOT", tmp_path)
    assert run(shell(f"touch {tmp_path}/begun", packages=("b", "a")), shell("true", packages=("a",))) == 1
    assert capfd.readouterr().err == "missing: a b\n" and not (tmp_path / "begun").exists()


def test_whoever_ends_it_ends_what_it_started(tmp_path):
    """As CI's time limit does: by SIGTERM, in the middle of a step that has children of its own."""
    program = tmp_path / "tools" / "test.py"
    program.parent.mkdir()
    for tool in ("test.py", "processes.py", "debian-packages.sh"):
        (tmp_path / "tools" / tool).write_bytes((ROOT / "tools" / tool).read_bytes())
        (tmp_path / "tools" / tool).chmod(0o755)
    text = program.read_text(encoding="utf-8")
    wanted = (
        f"STEPS['lint'] = Step(('sh', '-c', 'sleep 3600 & echo $! > {tmp_path}/pid.new; mv {tmp_path}/pid.new"
        f" {tmp_path}/pid; wait'))\n"
    )
    program.write_text(text.replace("def main(", wanted + "def main(", 1), encoding="utf-8")
    running = subprocess.Popen([sys.executable, str(program), "lint"], stdout=subprocess.DEVNULL)
    while not (tmp_path / "pid").exists():
        assert running.poll() is None
        time.sleep(0.05)
    running.terminate()
    assert running.wait() == 143
    child = int((tmp_path / "pid").read_text(encoding="ascii"))
    while (
        os.path.exists(f"/proc/{child}")
        and pathlib.Path(f"/proc/{child}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    ):
        time.sleep(0.05)
