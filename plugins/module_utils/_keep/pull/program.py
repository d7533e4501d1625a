# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of smt_pull: one pull, which a systemd unit of the host runs.

It fetches the fleet's repository and runs its playbook. A commit under which the host gets a verdict is kept. One under
which it gets none, whatever is wrong with it, is refused, and the policy is enforced by the commit that is kept. So a
host never has less than it had, and a kill or a full disk at any point leaves the commit that was kept before.
"""

import argparse
import contextlib
import fcntl
import json
import os
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files, state_file, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import commands
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull import metrics, repository
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull.errors import PullError

PLAY_SECONDS = 3600.0
# The statuses of compliance that judge a host: the policy of the commit is valid, and the host was compared with it.
VERDICTS = ("compliant", "waived", "drifted")
# The extra variable that smt_status knows.
STATUS_FILE = "__smt_pull_status_file"
# The one that smt_restart knows: it makes the file where the host has its slot, and is to be rebooted.
REBOOT_FILE = "__smt_pull_reboot_file"
REBOOT_SECONDS = 60.0
CHECK = "threadwise.smt.smt_compliance"
# What a run of Ansible needs for its temporary files.
_ROOM_BYTES, _ROOM_FILES = 16 << 20, 256
_SCHEMA = "threadwise.smt/pull"
_MAX_BYTES = 8 << 20
_STATUS, _REBOOT = "status.json", "reboot"
_DOCUMENT, _PAGE, _METRICS = "smt_compliance.json", "smt_compliance.html", "smt_compliance.prom"
# Where version 1.0.0 had its checkout.
_VERIFIED_BEFORE = "verified"


class PullRecord(t.NamedTuple):
    """What is known from earlier pulls.

    Attributes:
        kept: the last commit under which the host was judged.
        judged_at: when that was last, in seconds since 1970.
        newest: the newest commit with a good signature, usable or not: only what descends from it is accepted.
        last_success: when a pull last succeeded, in seconds since 1970.
    """

    kept: "str | None" = None
    judged_at: "float | None" = None
    newest: "str | None" = None
    last_success: "float | None" = None


class Verdict(t.NamedTuple):
    """How a host was found: its status and the sentence of compliance."""

    status: str
    sentence: str


class Pull:
    """One pull.

    Args:
        options: of the command line.
        now: seconds since 1970.
    """

    def __init__(self, options: argparse.Namespace, now: float) -> None:
        self._options, self._now = options, now
        self._state, self._scratch = files.HostFs(options.state), files.HostFs(options.scratch)
        # What was pulled without a look at signatures is never used with it.
        directory = "signed" if options.verify else "pulled"
        self._repository = repository.Repository(self._state.path(directory), options.url)
        self._file = state_file.StateFile(f"{directory}/record.json", _SCHEMA, mode=0o644)
        self._record = self._load()
        # What the repository offers, and what of it may be run here.
        self._offered: t.Optional[str] = None
        self._accepted: t.Optional[str] = None

    def run(self) -> int:
        """Pull, enforce, judge; return the exit status: 0 where the host complies with the policy in use."""
        self._repository.remove_copies(self._record.kept)
        used = self._use_offered()
        is_newest = used is not None
        if used is None and self._record.kept not in (None, self._accepted):
            used = self._use_kept()
        status, judged = self._judge(used or self._record.kept or self._accepted)
        is_success = is_newest and judged is not None
        if used is not None and judged is not None:
            self._keep(judged_at=self._now, last_success=self._now if is_success else self._record.last_success)
        self._write_metrics(used, None if is_newest else self._offered, judged, is_success)
        return self._reboot() if self._scratch.status(_REBOOT) is not None else status

    def end(self) -> None:
        """Say in the metrics that a pull did not come to its end."""
        self._write_metrics(None, None, None, False)

    def _use_offered(self) -> "str | None":
        """Enforce the policy of what the repository offers; return that commit, None where it cannot be used."""
        try:
            self._accepted = commit = self._fetch()
            self._enforce(commit)
        except HostError as error:
            what = "No newer commit can be had" if self._offered is None else f"Commit {self._offered[:12]} is refused"
            self._say(f"{what}: {error}. {self._instead()}")
            return None
        if commit != self._record.kept:
            self._keep(kept=commit)
            with contextlib.suppress(HostError):
                self._repository.mark(repository.KEPT, commit)
            self._say(f"Commit {commit[:12]} is in use")
        return commit

    def _instead(self) -> str:
        kept = self._record.kept
        if kept is None:
            return "No earlier commit was in use here, so no policy is enforced"
        if kept == self._accepted:
            return "It is the one that was in use, so no policy is enforced"
        when = (
            ""
            if self._record.judged_at is None
            else time.strftime(f" on {host_text.UTC_FORMAT}", time.gmtime(self._record.judged_at))
        )
        return f"The policy of commit {kept[:12]} is enforced, under which this host was judged{when}"

    def _use_kept(self) -> "str | None":
        kept = t.cast(str, self._record.kept)
        try:
            self._enforce(kept)
        except HostError as error:
            self._say(f"The policy of commit {kept[:12]}, which was in use, cannot be enforced any more: {error}")
            return None
        return kept

    def _fetch(self) -> str:
        """Return the commit that the repository offers, and that may be run here; raise PullError."""
        self._offered = commit = self._repository.fetch()
        if not self._options.verify:
            return commit
        newest = self._record.newest
        if newest is not None and not self._repository.descends(commit, newest):
            raise PullError(
                f"it does not descend from commit {newest[:12]}, the newest one with a good signature so far"
            )
        self._repository.check_signature(commit)
        if commit != newest:
            self._repository.mark(repository.NEWEST, commit)
            if not self._keep(newest=commit):
                raise PullError("what was accepted cannot be recorded")
        return commit

    def _enforce(self, commit: str) -> None:
        """Run the playbook of a commit; raise PullError where the host gets no verdict by it."""
        copy = self._repository.copy(commit)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._scratch.path(_REBOOT))
        done = self._play(
            copy,
            copy,
            os.path.join(copy, self._options.playbook),
            {STATUS_FILE: self._scratch.path(_STATUS), REBOOT_FILE: self._scratch.path(_REBOOT)},
        )
        verdict = self._verdict(_STATUS)
        if verdict is None:
            if done.status == 0:
                raise PullError(
                    f"its inventory {self._options.inventory} does not have {self._options.host}, or its playbook"
                    f" {self._options.playbook} does not apply the role smt_policy to it"
                )
            raise PullError(
                f"its playbook {self._options.playbook} gave {self._options.host} no verdict: {done.reason}"
            )
        if verdict.status not in VERDICTS:
            raise PullError(f"{self._options.host} cannot be judged by it: {verdict.status}: {verdict.sentence}")

    def _judge(self, commit: "str | None") -> "tuple[int, str | None]":
        """Check the host against the policy of a commit, and publish what is found.

        Return the exit status and the metrics, None where there are none.
        """
        if commit is None:
            return 1, None
        wanted = {
            f"smt_compliance_{name}": self._scratch.path(file)
            for name, file in (("json", _DOCUMENT), ("metrics", _METRICS), ("page", _PAGE))
        }
        try:
            done = self._play(self._repository.copy(commit), self._state.sysroot, CHECK, wanted)
            if self._verdict(_DOCUMENT) is None:
                raise PullError(done.reason)
            judged = self._scratch.text(_METRICS, metrics.MAX_BYTES)
        except (HostError, OSError, ValueError) as error:
            self._say(
                f"It is not known whether {self._options.host} complies with the policy of commit {commit[:12]}:"
                f" {error}"
            )
            return 1, None
        for name in (_DOCUMENT, _PAGE):
            try:
                self._state.write(name, self._scratch.text(name, _MAX_BYTES))
            except (OSError, ValueError) as error:
                self._say(f"{self._state.path(name)} is still of an earlier check: {error}")
        return done.status, judged

    def _reboot(self) -> int:
        """Reboot the host, which holds a slot for that; the pull after the boot gives it back."""
        try:
            done = commands.run(["systemctl", "reboot"], REBOOT_SECONDS, "/", {})
            why = None if done.status == 0 else done.reason
        except HostError as error:
            why = str(error)
        if why is not None:
            self._say(f"{self._options.host} cannot be rebooted, and keeps its slot until the next pull: {why}")
            return 1
        self._say(f"{self._options.host} reboots, as its policy asks for")
        return 0

    def _play(self, copy: str, directory: str, playbook: str, variables: "dict[str, str]") -> commands.Done:
        for name in (_STATUS, _DOCUMENT, _METRICS, _PAGE):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._scratch.path(name))
        argv = [
            os.path.join(self._options.bin, "ansible-playbook"),
            f"--inventory={os.path.join(copy, self._options.inventory)}",
            f"--limit={self._options.host}",
            "--connection=local",
            f"--extra-vars={json.dumps(variables)}",
            playbook,
        ]
        # By default Ansible goes on without any host where it cannot read the inventory, and ends with status 0.
        return commands.run(
            argv, PLAY_SECONDS, directory, {"ANSIBLE_INVENTORY_UNPARSED_FAILED": "true", **self._temporary()}
        )

    def _temporary(self) -> "dict[str, str]":
        """Return where Ansible puts its temporary files, if their usual place has no room."""
        try:
            filesystem = os.statvfs(os.path.expanduser("~"))
        except OSError:
            has_room = False
        else:
            has_room = (
                not filesystem.f_flag & os.ST_RDONLY
                and filesystem.f_bfree * filesystem.f_frsize >= _ROOM_BYTES
                and (not filesystem.f_files or filesystem.f_ffree >= _ROOM_FILES)
            )
        return (
            {}
            if has_room
            else dict.fromkeys(("ANSIBLE_LOCAL_TEMP", "ANSIBLE_REMOTE_TEMP", "TMPDIR"), self._scratch.sysroot)
        )

    def _verdict(self, name: str) -> "Verdict | None":
        """Return what a document of compliance says of this host, None where there is none."""
        try:
            hosts = host_text.parse_json(self._scratch.text(name, _MAX_BYTES))["hosts"]
            (result,) = (host for host in hosts if host["host"] == self._options.host)
            return Verdict(result["status"], host_text.printable(result["sentence"], 400))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def _load(self) -> PullRecord:
        try:
            record = self._file.load(self._state, _checked)
        except state_file.StateFileError as error:
            self._say(f"{error}. What git knows is used instead")
            record = None
        if record is not None:
            return record
        newest = (
            (
                self._repository.marked(repository.NEWEST)
                or repository.commit(self._state.path(_VERIFIED_BEFORE), "HEAD")
            )
            if self._options.verify
            else None
        )
        return PullRecord(kept=self._repository.marked(repository.KEPT), newest=newest)

    def _keep(self, **changed: t.Any) -> bool:
        """Change the record; return whether it could be written."""
        record = self._record._replace(**changed)
        try:
            self._file.save(self._state, record._asdict())
        except OSError as error:
            self._say(f"{self._state.path(self._file.path)} cannot be written: {error}")
            return False
        self._record = record
        return True

    def _write_metrics(self, used: "str | None", refused: "str | None", judged: "str | None", is_success: bool) -> None:
        outcome = metrics.Outcome(
            self._now, is_success, self._now if is_success else self._record.last_success, used, refused, judged
        )
        try:
            metrics.write(self._options.metrics, metrics.text(self._options.host, outcome))
        except HostError as error:
            self._say(str(error))

    @staticmethod
    def _say(sentence: str) -> None:
        commands.show(f"threadwise-smt-pull: {host_text.printable(sentence, 1500)}")


def _checked(document: "dict[str, t.Any]") -> PullRecord:
    record = PullRecord(*(document[name] for name in PullRecord._fields))
    for commit in (record.kept, record.newest):
        if commit is not None and not repository.COMMIT.fullmatch(commit):
            raise ValueError("it names something that is no commit")
    for moment in (record.judged_at, record.last_success):
        if moment is not None and not 0 <= moment < 1e11:
            raise ValueError("it has a time that is none")
    return record


def _options(arguments: "t.Sequence[str]") -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("state", "scratch", "url", "playbook", "inventory", "host", "bin", "metrics"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--ended", action="store_true")
    return parser.parse_args(arguments)


def main(*arguments: str) -> int:
    """What the unit runs, and with --ended what it runs when it has stopped."""
    options = _options(arguments)
    # systemd.exec(5): an end of its own, with whatever status, has written its metrics.
    if options.ended and os.environ.get("EXIT_CODE") == "exited":
        return 0
    # One at a time, also one that was started by hand.
    descriptor = os.open(options.state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    pull = Pull(options, time.time())
    if options.ended:
        pull.end()
        return 0
    try:
        return pull.run()
    except Exception:
        # Whatever it is: what the metrics say of an earlier pull is not true any more.
        pull.end()
        raise
