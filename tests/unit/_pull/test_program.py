# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which commit a pull enforces, with real repositories: whatever the newest one is,
and wherever a pull is killed or finds no room.
"""

from __future__ import annotations

import errno
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._pull import commands, metrics, program, repository
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import metrics as names
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files import metrics as of_check
from containers import UNSHARE, why_none
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from pulling import Place, git

MODULE = "ansible_collections.threadwise.smt.plugins.module_utils._pull.program"


@pytest.fixture(name="place")
def _place(tmp_path):
    return Place(tmp_path)


def test_a_newer_commit_is_kept_and_one_that_gives_no_verdict_is_not(place):
    assert f"Commit {place.first[:12]} is in use" in place.pull(now=1e9)
    second = place.commit("drifted")
    place.pull(now=2e9)
    assert place.enforced() == [place.first, second] and place.record()["kept"] == second
    # The policy is a good one: what the host makes of it is no reason to go back to another.
    assert (place.value("pull_success"), place.value("compliant")) == (1, 0)
    for policy in ("broken", "bad_policy", "unknown", "unreachable"):
        broken = place.commit(policy)
        said = place.pull(now=3e9)
        assert (
            f"Commit {broken[:12]} is refused: " in said and f". The policy of commit {second[:12]} is enforced" in said
        )
        assert place.enforced()[-1] == second and place.record() | {"judged_at": 0} == {
            "schema": "threadwise.smt/pull",
            "schema_version": 1,
            "kept": second,
            "judged_at": 0,
            "newest": None,
            "last_success": 2e9,
        }
        assert (
            place.value("pull_success"),
            place.value("pull_last_success_timestamp_seconds"),
            place.value("pull_run_timestamp_seconds"),
        ) == (0, 2e9, 3e9)


def test_a_host_that_never_had_a_commit_that_can_be_used_is_unknown(place):
    place.commit("broken")
    said = place.pull()
    assert "No earlier commit was in use here, so no policy is enforced" in said and place.enforced() == []
    text = place.metrics.read_text()
    assert 'threadwise_smt_compliant{host="h1",hardware_class=""} 0\n' in text and 'status="unknown"} 1\n' in text
    assert (
        place.value("pull_success") == 0
        and place.value("pull_last_success_timestamp_seconds") is None
        and "enforced" not in text
    )


def test_the_metrics_of_an_unknown_host_are_those_of_compliance(place):
    text = metrics.text("h1", metrics.Outcome(1e9, False, 5e8, "a" * 40, "b" * 40, None))
    for parse in (parser.text_string_to_metric_families, openmetrics_parser.text_string_to_metric_families):
        families = {family.name: family for family in parse(text)}
        judged = {name: family.documentation for name, family in families.items() if "_pull_" not in name}
        assert judged == dict(names.HELP) == {name: of_check.METRICS[name] for name in names.HELP}
        (said,) = families[names.STATUS_TIME].samples
        assert (said.labels["status"], said.value) == ("unknown", 1e9)
        assert {
            sample.labels["use"]: sample.labels["commit"][0]
            for sample in families["threadwise_smt_pull_commit_info"].samples
        } == {
            "enforced": "a",
            "refused": "b",
        }


def test_a_file_of_somebody_else_is_no_metrics_file(place):
    place.metrics.write_text("somebody_elses 1\n")
    assert "smt.prom is there, and smt_pull did not write it" in place.pull()
    assert place.metrics.read_text() == "somebody_elses 1\n" and place.enforced() == [place.first]


@pytest.mark.parametrize("harm", ["changed", "deleted", "gone", "locked"])
def test_what_happened_to_the_files_of_the_kept_commit_is_put_right(place, harm):
    place.pull()
    copy = place.directory / "state/pulled/commits" / place.first
    if harm == "gone":
        shutil.rmtree(copy)
    elif harm == "deleted":
        (copy / "policy").unlink()
    else:
        (copy / "policy").write_text("broken")
        if harm == "locked":
            (copy / ".git/index.lock").touch()
    place.commit("broken")
    place.pull()
    assert place.enforced() == [place.first, place.first] and (copy / "policy").read_text() == "compliant\n"


@pytest.mark.parametrize("lost", ["objects/??/*", "config", "HEAD", "refs/smt-pull/*"])
def test_a_repository_that_a_power_cut_left_empty_files_in_is_fetched_anew(place, lost):
    place.pull()
    files = [path for path in (place.directory / "state/pulled/repository.git").glob(lost) if path.is_file()]
    assert files
    for path in files:
        path.chmod(0o644)
        path.write_bytes(b"\0" * 40)
    second = place.commit("compliant")
    place.pull()
    assert place.enforced() == [place.first, second] and place.value("pull_success") == 1


def test_a_record_that_cannot_be_used_is_what_git_knows(place):
    place.pull()
    (place.directory / "state/pulled/record.json").write_text("{")
    place.commit("broken")
    said = place.pull()
    assert "record.json cannot be used" in said and place.enforced() == [place.first, place.first]


def test_submodules_come_with_a_commit(place, monkeypatch):
    other = place.directory / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "x").write_text("y")
    git(other, "add", ".")
    git(other, "commit", "-qm", "x")
    git(place.repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "roles")
    place.commit("compliant")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "protocol.file.allow")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "always")
    place.pull()
    assert (place.directory / "state/pulled/commits" / place.record()["kept"] / "roles/x").read_text() == "y"


def test_a_command_that_never_ends_is_ended_and_its_commit_refused(place, monkeypatch):
    place.pull()
    place.commit("compliant")
    stand_in = place.directory / "bin/ansible-playbook"
    waiting = place.directory / "waiting"
    hangs = (
        f"import os, sys, time\nif not any('{place.first}' in word for word in sys.argv):\n"
        f"    open('{waiting}', 'w').write(str(os.getpid()))\n    time.sleep(1e5)\n"
    )
    stand_in.write_text(stand_in.read_text().replace("import json", hangs + "import json", 1))
    monkeypatch.setattr(program, "PLAY_SECONDS", 5.0)
    assert "ansible-playbook took longer than 5 s and was ended" in place.pull()
    assert not pathlib.Path(f"/proc/{waiting.read_text()}").exists()
    assert place.enforced()[-1] == place.first


def test_a_process_that_a_command_leaves_running_keeps_nothing_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "TERM_SECONDS", 0.2)
    done = commands.run(["sh", "-c", "sleep 30 & echo $!; echo fatal: it is so; exit 3"], 20, str(tmp_path), {})
    still_running = pathlib.Path(f"/proc/{done.output[0]}/stat").read_text().split()[2]
    os.kill(int(done.output[0]), 9)
    assert still_running == "S"
    assert done.reason == "fatal: it is so (exit status 3)"


@pytest.mark.parametrize("child", ["sleep 60", "trap '' TERM; sleep 60"])
@pytest.mark.parametrize("leader", ["wait", "trap 'exit 0' TERM; wait", "trap '' TERM; wait; wait"])
def test_a_command_that_takes_too_long_ends_with_its_children(tmp_path, monkeypatch, leader, child):
    monkeypatch.setattr(commands, "TERM_SECONDS", 1.0)
    script = f'sh -c "{child}; :" & echo $! >child; {leader}'
    with pytest.raises(commands.PullError, match=r"\Ash took longer than 1 s and was ended\Z"):
        commands.run(["sh", "-c", script], 1, str(tmp_path), {})
    pid = (tmp_path / "child").read_text().strip()
    seen = subprocess.run(["ps", "-o", "stat=", "-p", pid], stdout=subprocess.PIPE, text=True, check=False)
    assert seen.stdout.strip() in ("", "Z")


def test_what_a_command_says_steers_no_terminal(tmp_path):
    assert (
        commands.run(["printf", r"error: \033[31m\342\200\256x"], 20, str(tmp_path), {}).reason
        == "error: \\x1b[31m\\u202ex (exit status 0)"
    )


# ---- signatures ------------------------------------------------------------------------------------------------------


@pytest.fixture(name="signed")
def _signed(place, monkeypatch):
    """Options of git that sign, by the name of the key: `trusted` is."""
    home = place.directory / "home"
    home.mkdir()
    for name in ("trusted", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(home / name)], check=True)
    (home / "signers").write_text("x@example.com " + (home / "trusted.pub").read_text())
    (home / ".gitconfig").write_text(f'[gpg "ssh"]\nallowedSignersFile = {home}/signers\n')
    monkeypatch.setenv("HOME", str(home))
    return {
        name: ("-c", "gpg.format=ssh", "-c", f"user.signingkey={home / name}.pub", "-c", "commit.gpgsign=true")
        for name in ("trusted", "other")
    }


def test_only_what_a_trusted_key_signed_is_run_and_only_forward(place, signed):
    assert "git verify-commit failed" in place.pull("--verify") and place.enforced() == []
    assert place.value("compliant") == 0, "not even its inventory is read"
    good = place.commit("compliant", *signed["trusted"])
    place.pull("--verify")
    assert place.enforced() == [good] and place.value("pull_success") == 1
    for options in ((), signed["other"]):
        place.commit("drifted", *options)
        said = place.pull("--verify")
        assert (
            "is refused: git verify-commit failed: " in said
            and place.enforced() == [good]
            and place.value("compliant") == 1
        )
        git(place.repository, "reset", "-q", "--hard", good)
    # One that is accepted and cannot be used is not kept, and nothing older than it is accepted any more.
    between = place.commit("drifted", *signed["trusted"])
    broken = place.commit("broken", *signed["trusted"])
    place.pull("--verify")
    assert place.enforced() == [good] and (place.record("signed")["kept"], place.record("signed")["newest"]) == (
        good,
        broken,
    )
    git(place.repository, "reset", "-q", "--hard", between)
    assert f"does not descend from commit {broken[:12]}, the newest one with a good signature so far" in place.pull(
        "--verify"
    )
    assert place.enforced() == [good]
    # Also where the repository on the host is lost.
    shutil.rmtree(place.directory / "state/signed/repository.git")
    assert "does not descend from commit" in place.pull("--verify") and place.enforced() == [good]
    git(place.repository, "reset", "-q", "--hard", broken)
    mended = place.commit("compliant", *signed["trusted"])
    place.pull("--verify")
    assert place.enforced() == [mended] and place.value("pull_success") == 1


def test_what_was_pulled_without_signatures_is_not_used_with_them(place, signed):
    place.pull()
    assert place.enforced() == [place.first]
    assert "No earlier commit was in use here" in place.pull("--verify") and place.enforced() == []


def test_an_upgrade_from_1_0_0_goes_only_forward(place, signed):
    old = place.commit("compliant", *signed["trusted"])
    checkout = place.directory / "state/verified"
    new = place.commit("compliant", *signed["trusted"])
    git(place.directory, "clone", "-q", str(place.repository), str(checkout))
    git(place.repository, "reset", "-q", "--hard", old)
    assert f"does not descend from commit {new[:12]}" in place.pull("--verify") and place.enforced() == []


def test_a_key_of_the_keyring_that_nobody_trusts_is_not_trusted(place, monkeypatch):
    """What `git verify-commit` alone takes and `git pull --verify-signatures` does not."""
    # Its agent has a socket there, whose path has 107 characters at most.
    home = tempfile.TemporaryDirectory(dir="/tmp")
    monkeypatch.setenv("GNUPGHOME", home.name)
    quietly = {"capture_output": True, "text": True}
    generate = [
        "gpg",
        "--batch",
        "--pinentry-mode",
        "loopback",
        "--passphrase",
        "",
        "--quick-generate-key",
        "x@example.com",
        "ed25519",
        "sign",
    ]
    subprocess.run(generate, check=True, **quietly)
    try:
        place.commit("compliant", "-c", "user.signingkey=x@example.com", "-c", "commit.gpgsign=true")
        place.pull("--verify")
        assert len(place.enforced()) == 1, "its own key is"
        listed = subprocess.run(["gpg", "--export-ownertrust"], check=True, **quietly).stdout
        subprocess.run(["gpg", "--import-ownertrust"], input=re.sub(":6:", ":2:", listed), check=True, **quietly)
        shutil.rmtree(place.directory / "state/signed")
        said = place.pull("--verify")
        assert "is refused: git verify-commit failed" in said and place.enforced() == []
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], check=False)
        home.cleanup()


# ---- kills, and disks without room -----------------------------------------------------------------------------------

# Ends a pull at its operation number N: what opens a file to write, changes a name, or starts a command.
HOOK = """
import itertools, os, signal, sys
number = int(sys.argv.pop(1))
seen, names = itertools.count(1), ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link",
    "os.symlink", "subprocess.Popen")
def hook(event, arguments):
    if event in names or (event == "open" and isinstance(arguments[2], int)
        and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        if next(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)
import MODULE
sys.addaudithook(hook)
status = sys.modules["MODULE"].main(*sys.argv[1:])
print("operations", next(seen) - 1)
sys.exit(status)
""".replace("MODULE", MODULE)


def hooked(place, number):
    return subprocess.run(
        [sys.executable, "-c", HOOK, str(number), *place.arguments()], capture_output=True, text=True, check=False
    )


def copied(place, target):
    """The place at another path."""
    shutil.copytree(place.directory, target, symlinks=True)
    found = object.__new__(Place)
    found.__dict__.update(
        place.__dict__,
        directory=target,
        repository=target / "repository",
        log=target / "log",
        metrics=target / "smt.prom",
    )
    for path in [target / "bin/ansible-playbook", *target.glob("state/pulled/commits/*/.git/objects/info/alternates")]:
        path.write_text(path.read_text().replace(str(place.directory), str(target)))
    return found


# In how many places it is killed, spread over all of them; at night in each.
KILLS = night.number(3, 1000)


@pytest.mark.night(after=3)
@pytest.mark.parametrize(("policy", "is_gone"), [("compliant", False), ("broken", False), ("broken", True)])
def test_a_pull_that_is_killed_at_any_point_leaves_a_commit_that_can_be_used(place, tmp_path_factory, policy, is_gone):
    place.pull()
    place.enforced()
    newer = place.commit(policy)
    if is_gone:
        # Its files have to be had anew, and what is killed is that.
        shutil.rmtree(place.directory / "state/pulled/commits" / place.first)
    top = tmp_path_factory.mktemp("killed")
    done = hooked(copied(place, top / "whole"), 0)
    operations = int(done.stdout.split()[-1])
    assert operations > 20
    for number in range(operations, 0, -max(1, operations // KILLS)):
        killed = copied(place, top / str(number))
        assert hooked(killed, number).returncode == -9, number
        kept = killed.record()["kept"]
        assert kept in (place.first, newer) if policy == "compliant" else kept == place.first, number
        killed.enforced()
        # The next pull, without a repository to pull from, and one with it.
        shutil.move(killed.repository, killed.directory / "gone")
        killed.pull()
        assert killed.enforced() == [kept] and killed.value("compliant") == 1, number
        shutil.move(killed.directory / "gone", killed.repository)
        killed.pull()
        assert (
            killed.enforced()[-1] == (newer if policy == "compliant" else place.first)
            and killed.value("compliant") == 1
        ), number
        assert killed.value("pull_success") == (policy == "compliant"), number


def test_a_copy_that_was_half_made_when_all_was_killed_is_made_anew(place, monkeypatch):
    """Of the commit that is kept, whose files somebody had removed."""
    place.pull()
    place.enforced()
    shutil.rmtree(place.directory / "state/pulled/commits" / place.first)
    git_itself = shutil.which("git")
    wrapper = place.directory / "bin/git"
    wrapper.write_text(
        '#!/bin/sh\ncase " $* " in *" clone "*)\nfor last; do :; done; mkdir -p "$last/.git"; kill -9 $PPID; exit;;'
        f' esac\nexec {git_itself} "$@"\n'
    )
    wrapper.chmod(0o755)
    environment = dict(os.environ, PATH=f"{wrapper.parent}:{os.environ['PATH']}")
    assert subprocess.run([*place.program(), *place.arguments()], env=environment, check=False).returncode == -9
    place.pull()
    assert place.enforced() == [place.first]


# A file system of its own for what the host keeps, with so many bytes left.
FULL = """
state=$1 kept=$2 left=$3; shift 3
mount -t tmpfs -o size=8m tmpfs "$state" && cp -a "$kept/." "$state"
free=$(($(stat -f -c %a "$state") * $(stat -f -c %S "$state")))
head -c $((free - left)) /dev/zero >"$state/full"
"$@"; status=$?
cat "$state/pulled/record.json" "$state/smt.prom"
exit $status
"""


@pytest.mark.skipif(why_none() is not None, reason=f"this machine makes no file system for a test: {why_none()}")
@pytest.mark.parametrize(
    "policy", [*(pytest.param(one, marks=pytest.mark.night) for one in ("compliant", "broken")), "drifted"]
)
def test_a_full_disk_ends_neither_enforcement_nor_truth(place, policy):
    state, kept = place.directory / "state", place.directory / "kept"
    place.metrics = state / "smt.prom"
    place.pull("--metrics=" + str(place.metrics))
    place.enforced()
    shutil.copytree(state, kept, symlinks=True)
    newer = place.commit(policy)
    program_of = [*place.program(), *place.arguments("--metrics=" + str(place.metrics))]
    seen = set()
    for left in (0, 1, 4096, *(4096 * pages for pages in range(2, 80, 3))):
        command = [*UNSHARE, "sh", "-c", FULL, "sh", state, kept, str(left), *program_of]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        enforced = place.enforced()
        # The newer one where there was room for it, else the one that was kept: never none.
        last = enforced[-1]
        assert last in (place.first, newer) and (policy != "broken" or last == place.first), (
            f"{left}: {done.stdout} {done.stderr}"
        )
        assert done.returncode == (2 if last == newer and policy == "drifted" else 0), (
            f"{left}: {done.stdout} {done.stderr}"
        )
        assert re.search(f'"kept": "({place.first}|{last})"', done.stdout), left
        found = re.search(r"^threadwise_smt_pull_run_timestamp_seconds\S* (\d+)$", done.stdout, re.MULTILINE)
        # What there is of metrics is of this pull.
        assert found is None or int(found[1]) > 1.5e9, left
        assert (found is None) == ("so there are no metrics" in done.stdout), left
        seen.add((last == newer, found is None))
    assert seen >= {(False, False)} and (policy == "broken" or (True, False) in seen), (
        "both an empty and a full disk were seen"
    )


def test_metrics_that_cannot_be_replaced_are_removed(place, monkeypatch):
    place.pull()
    assert place.value("compliant") == 1

    def full(_fs, _path, _text, mode=0o644):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(metrics.files.HostFs, "write", full)
    assert "so there are no metrics" in place.pull() and not place.metrics.exists()


@pytest.mark.parametrize(("code", "success"), [("exited", 1.0), ("killed", 0.0), ("dumped", 0.0)])
def test_after_a_kill_the_metrics_are_unknown(place, monkeypatch, code, success):
    place.pull()
    monkeypatch.setenv("EXIT_CODE", code)
    assert program.main(*place.arguments("--ended")) == 0
    assert (place.value("pull_success"), place.value("compliant")) == (success, success)
    assert place.value("pull_last_success_timestamp_seconds") == 1e9


def test_an_error_that_nobody_thought_of_leaves_no_metrics_of_an_earlier_pull(place, monkeypatch):
    place.pull()
    monkeypatch.setattr(repository.Repository, "fetch", lambda _self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        program.main(*place.arguments())
    assert (place.value("pull_success"), place.value("compliant")) == (0, 0)


def test_temporary_files_go_to_where_there_is_room(place, monkeypatch):
    options = program._options(place.arguments())
    found = program.Pull(options, 1e9)
    assert found._temporary() == {}
    monkeypatch.setenv("HOME", str(pathlib.Path("/nonexistent")))
    assert set(found._temporary().values()) == {options.scratch}
