# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which commit a pull enforces, with real repositories: whatever the newest one is, and wherever it is killed."""

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
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import commands
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull import metrics, program, repository
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import metrics as names
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import metrics as of_check
from containers import UNSHARE, why_none
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from pulling import Place, git

MODULE = "ansible_collections.threadwise.smt.plugins.module_utils._keep.pull.program"
COPIES = "state/pulled/commits"


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
    for policy in ("broken", "bad_policy"):
        broken = place.commit(policy)
        said = place.pull(now=3e9)
        assert f"Commit {broken[:12]} is refused: " in said
        assert f". The policy of commit {second[:12]} is enforced, under which this host was judged on " in said
        record = place.record()
        assert place.enforced()[-1] == second and (record["kept"], record["last_success"]) == (second, 2e9)
        times = ("pull_last_success_timestamp_seconds", "pull_run_timestamp_seconds")
        assert [place.value(name) for name in ("pull_success", *times)] == [0, 2e9, 3e9]


def test_a_host_that_never_had_a_commit_that_can_be_used_is_unknown_by_the_metrics_of_compliance(place):
    place.commit("broken")
    assert "No earlier commit was in use here, so no policy is enforced" in place.pull() and place.enforced() == []
    text = place.metrics.read_text()
    assert 'threadwise_smt_compliant{host="h1",hardware_class=""} 0\n' in text and 'status="unknown"} 1\n' in text
    assert place.value("pull_success") == 0 and "last_success" not in text and "enforced" not in text
    text = metrics.text("h1", metrics.Outcome(1e9, False, 5e8, "a" * 40, "b" * 40, None))
    for parse in (parser.text_string_to_metric_families, openmetrics_parser.text_string_to_metric_families):
        families = {family.name: family for family in parse(text)}
        judged = {name: family.documentation for name, family in families.items() if "_pull_" not in name}
        assert judged == dict(names.HELP) == {name: of_check.METRICS[name] for name in names.HELP}
        (said,) = families[names.STATUS_TIME].samples
        assert (said.labels["status"], said.value) == ("unknown", 1e9)
        commits = [sample.labels for sample in families["threadwise_smt_pull_commit_info"].samples]
        assert {one["use"]: one["commit"][0] for one in commits} == {"enforced": "a", "refused": "b"}


@pytest.mark.night(after=1)
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


def test_a_record_that_cannot_be_used_is_what_git_knows_and_submodules_come_with_a_commit(place, monkeypatch):
    place.pull()
    (place.directory / "state/pulled/record.json").write_text("{")
    place.commit("broken")
    assert "record.json cannot be used" in place.pull() and place.enforced() == [place.first, place.first]
    other = place.directory / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "x").write_text("y")
    git(other, "add", ".")
    git(other, "commit", "-qm", "x")
    for name, value in (("COUNT", "1"), ("KEY_0", "protocol.file.allow"), ("VALUE_0", "always")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    git(place.repository, "submodule", "--quiet", "add", str(other), "roles")
    place.commit("compliant")
    place.pull()
    assert (place.directory / COPIES / place.record()["kept"] / "roles/x").read_text() == "y"


def test_a_command_that_never_ends_is_ended_and_its_commit_refused(place, monkeypatch):
    place.pull()
    place.commit("compliant")
    stand_in, waiting = place.directory / "bin/ansible-playbook", place.directory / "waiting"
    hangs = f"import os, sys, time\nif not any('{place.first}' in word for word in sys.argv):\n"
    hangs += f"    open('{waiting}', 'w').write(str(os.getpid()))\n    time.sleep(1e5)\n"
    stand_in.write_text(stand_in.read_text().replace("import json", hangs + "import json", 1))
    monkeypatch.setattr(program, "PLAY_SECONDS", 3.0)
    assert "ansible-playbook took longer than 3 s and was ended" in place.pull()
    assert not pathlib.Path(f"/proc/{waiting.read_text()}").exists()
    assert place.enforced()[-1] == place.first


@pytest.mark.night(after=2)
@pytest.mark.parametrize(
    ("leader", "child"),
    [
        ("wait", "trap '' TERM; sleep 60"),
        ("trap '' TERM; wait; wait", "sleep 60"),
        ("trap 'exit 0' TERM; wait", "trap '' TERM; sleep 60"),
    ],
)
def test_a_command_that_takes_too_long_ends_with_its_children(tmp_path, monkeypatch, leader, child):
    monkeypatch.setattr(commands, "TERM_SECONDS", 0.5)
    script = f'sh -c "{child}; :" & echo $! >child; {leader}'
    with pytest.raises(commands.CommandError, match=r"\Ash took longer than 1 s and was ended\Z"):
        commands.run(["sh", "-c", script], 1, str(tmp_path), {})
    pid = (tmp_path / "child").read_text().strip()
    seen = subprocess.run(["ps", "-o", "stat=", "-p", pid], stdout=subprocess.PIPE, text=True, check=False)
    assert seen.stdout.strip()[:1] in ("", "Z")
    # What one leaves running keeps nothing waiting, and what it says steers no terminal.
    script = r"sleep 30 & echo $!; printf 'fatal: \033[31mred\n'; echo later; exit 3"
    done = commands.run(["sh", "-c", script], 20, str(tmp_path), {})
    still_running = pathlib.Path(f"/proc/{done.output[0]}/stat").read_text().split()[2]
    os.kill(int(done.output[0]), 9)
    assert still_running == "S" and done.reason == "fatal: \\x1b[31mred (exit status 3)"


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
    sign = ("-c", "gpg.format=ssh", "-c", "commit.gpgsign=true", "-c")
    return {name: (*sign, f"user.signingkey={home / name}.pub") for name in ("trusted", "other")}


def test_only_what_a_trusted_key_signed_is_run_and_only_forward(place, signed):
    place.pull()
    place.enforced()
    # What was pulled without signatures is not used with them: not even its inventory is read.
    said = place.pull("--verify")
    assert "git verify-commit failed" in said and "No earlier commit was in use here" in said
    assert place.enforced() == [] and place.value("compliant") == 0
    good = place.commit("compliant", *signed["trusted"])
    place.pull("--verify")
    assert place.enforced() == [good] and place.value("pull_success") == 1
    for options in ((), signed["other"]):
        place.commit("drifted", *options)
        assert "is refused: git verify-commit failed: " in place.pull("--verify")
        assert place.enforced() == [good] and place.value("compliant") == 1
        git(place.repository, "reset", "-q", "--hard", good)
    # One that is accepted and cannot be used is not kept, and nothing older than it is accepted any more.
    between = place.commit("drifted", *signed["trusted"])
    broken = place.commit("broken", *signed["trusted"])
    place.pull("--verify")
    record = place.record("signed")
    assert place.enforced() == [good] and (record["kept"], record["newest"]) == (good, broken)
    git(place.repository, "reset", "-q", "--hard", between)
    older = f"does not descend from commit {broken[:12]}, the newest one with a good signature so far"
    assert older in place.pull("--verify") and place.enforced() == [good]
    # Also where the repository on the host is lost.
    shutil.rmtree(place.directory / "state/signed/repository.git")
    assert "does not descend from commit" in place.pull("--verify") and place.enforced() == [good]
    git(place.repository, "reset", "-q", "--hard", broken)
    mended = place.commit("compliant", *signed["trusted"])
    place.pull("--verify")
    assert place.enforced() == [mended] and place.value("pull_success") == 1


def test_an_upgrade_from_1_0_0_goes_only_forward(place, signed):
    old = place.commit("compliant", *signed["trusted"])
    new = place.commit("compliant", *signed["trusted"])
    git(place.directory, "clone", "-q", str(place.repository), str(place.directory / "state/verified"))
    git(place.repository, "reset", "-q", "--hard", old)
    assert f"does not descend from commit {new[:12]}" in place.pull("--verify") and place.enforced() == []


def test_a_key_of_the_keyring_that_nobody_trusts_is_not_trusted(place, monkeypatch):
    """What `git verify-commit` alone takes and `git pull --verify-signatures` does not."""

    def gpg(*words, **how):
        done = subprocess.run(["gpg", "--batch", *words], check=True, capture_output=True, text=True, **how)
        return done.stdout

    # Its agent has a socket there, whose path has 107 characters at most.
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        monkeypatch.setenv("GNUPGHOME", home)
        unlocked = ("--pinentry-mode", "loopback", "--passphrase", "")
        gpg(*unlocked, "--quick-generate-key", "x@example.com", "ed25519", "sign")
        try:
            place.commit("compliant", "-c", "user.signingkey=x@example.com", "-c", "commit.gpgsign=true")
            place.pull("--verify")
            assert len(place.enforced()) == 1, "its own key is"
            gpg("--import-ownertrust", input=re.sub(":6:", ":2:", gpg("--export-ownertrust")))
            shutil.rmtree(place.directory / "state/signed")
            assert "is refused: git verify-commit failed" in place.pull("--verify") and place.enforced() == []
        finally:
            subprocess.run(["gpgconf", "--kill", "all"], check=False)


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
    words = [sys.executable, "-c", HOOK, str(number), *place.arguments()]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def copied(place, target):
    """The place at another path."""
    shutil.copytree(place.directory, target, symlinks=True)
    found = object.__new__(Place)
    paths = {"repository": target / "repository", "log": target / "log", "metrics": target / "smt.prom"}
    found.__dict__.update(place.__dict__, directory=target, **paths)
    for path in [target / "bin/ansible-playbook", *target.glob(f"{COPIES}/*/.git/objects/info/alternates")]:
        path.write_text(path.read_text().replace(str(place.directory), str(target)))
    return found


@pytest.mark.night(after=2)
@pytest.mark.parametrize(("policy", "is_gone"), [("compliant", False), ("broken", True), ("broken", False)])
def test_a_pull_that_is_killed_at_any_point_leaves_a_commit_that_can_be_used(place, tmp_path_factory, policy, is_gone):
    place.pull()
    place.enforced()
    newer = place.commit(policy)
    if is_gone:
        # Its files have to be had anew, and what is killed is that.
        shutil.rmtree(place.directory / COPIES / place.first)
    top = tmp_path_factory.mktemp("killed")
    operations = int(hooked(copied(place, top / "whole"), 0).stdout.split()[-1])
    assert operations > 20
    # In how many places it is killed, spread over all of them; at night in each.
    for number in range(operations - 1, 0, -max(1, operations // night.number(2, 1000))):
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
        assert killed.enforced()[-1] == (newer if policy == "compliant" else place.first), number
        assert (killed.value("compliant"), killed.value("pull_success")) == (1, policy == "compliant"), number


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
@pytest.mark.night(after=1)
@pytest.mark.parametrize("policy", ["drifted", "compliant", "broken"])
def test_a_full_disk_ends_neither_enforcement_nor_truth(place, policy):
    state, kept = place.directory / "state", place.directory / "kept"
    place.metrics = state / "smt.prom"
    place.pull("--metrics=" + str(place.metrics))
    place.enforced()
    shutil.copytree(state, kept, symlinks=True)
    newer = place.commit(policy)
    program_of = [*place.program(), *place.arguments("--metrics=" + str(place.metrics))]
    seen = set()
    for left in (0, *([1] * night.NIGHT), *(4096 * pages for pages in range(1, 80, night.number(39, 3)))):
        command = [*UNSHARE, "sh", "-c", FULL, "sh", state, kept, str(left), *program_of]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        came = f"{left}: {done.stdout} {done.stderr}"
        # The newer one where there was room for it, else the one that was kept: never none.
        last = place.enforced()[-1]
        assert last in (place.first, newer) and (policy != "broken" or last == place.first), came
        assert done.returncode == (2 if last == newer and policy == "drifted" else 0), came
        assert re.search(f'"kept": "({place.first}|{last})"', done.stdout), came
        found = re.search(r"^threadwise_smt_pull_run_timestamp_seconds\S* (\d+)$", done.stdout, re.MULTILINE)
        # What there is of metrics is of this pull.
        assert found is None or int(found[1]) > 1.5e9, came
        assert (found is None) == ("so there are no metrics" in done.stdout), came
        seen.add((last == newer, found is None))
    assert policy == "broken" or (True, False) in seen, "an empty disk was seen"


def test_metrics_are_of_no_earlier_pull_and_no_file_of_somebody_else(place, monkeypatch):
    place.pull()
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(repository.Repository, "fetch", lambda _self: 1 / 0)
        program.main(*place.arguments())
    assert (place.value("pull_success"), place.value("compliant")) == (0, 0)

    def full(_fs, _path, _text, mode=0o644):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(metrics.files.HostFs, "write", full)
        assert "so there are no metrics" in place.pull() and not place.metrics.exists()
    place.metrics.write_text("somebody_elses 1\n")
    assert "smt.prom is there, and smt_pull did not write it" in place.pull()
    assert place.metrics.read_text() == "somebody_elses 1\n" and place.enforced() == [place.first] * 3


def test_after_a_kill_the_metrics_are_unknown_and_temporary_files_go_to_where_there_is_room(place, monkeypatch):
    place.pull()
    for code, success in (("exited", 1.0), ("killed", 0.0)):
        monkeypatch.setenv("EXIT_CODE", code)
        assert program.main(*place.arguments("--ended")) == 0
        assert (place.value("pull_success"), place.value("compliant")) == (success, success)
        assert place.value("pull_last_success_timestamp_seconds") == 1e9
    options = program._options(place.arguments())
    assert program.Pull(options, 1e9)._temporary() == {}
    monkeypatch.setenv("HOME", "/nonexistent")
    assert set(program.Pull(options, 1e9)._temporary().values()) == {options.scratch}
