# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet's repository on a host, and copies of single commits.

Each commit has a directory of its own, whole before it has its name: nothing that happens to a new commit touches the
files of the one that is kept.
"""

import contextlib
import os
import re
import shutil

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import commands
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull.errors import PullError

GIT_SECONDS = 600.0
# Refs: what the repository offers, the newest commit with a good signature, and the one that is kept. What has a ref is
# not cleaned up by git.
OFFERED, NEWEST, KEPT = "refs/smt-pull/offered", "refs/smt-pull/newest", "refs/smt-pull/kept"
COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_ENVIRONMENT = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
# As `git merge --verify-signatures` has it. `git verify-commit` alone takes any key of the keyring, also one that
# nobody trusts.
_TRUSTED = "gpg.minTrustLevel=marginal"


class Repository:
    """The repository.

    Args:
        directory: where it is, with the copies of commits.
        url: where it is fetched from.
    """

    def __init__(self, directory: str, url: str) -> None:
        self._place, self._copies, self._url = (
            os.path.join(directory, "repository.git"),
            os.path.join(directory, "commits"),
            url,
        )

    def fetch(self) -> str:
        """Fetch what the repository's default branch is now; return the commit.

        Raises:
            PullError: it cannot be fetched.
        """
        self._remove_locks()
        try:
            return self._fetch()
        except HostError:
            # git does not mend what a power cut left of its files. All that counts is kept elsewhere.
            if self._succeeds("fsck", "--connectivity-only", "--no-dangling"):
                raise
            shutil.rmtree(self._place, ignore_errors=True)
            return self._fetch()

    def _fetch(self) -> str:
        try:
            durable.make_folders(self._copies, 0o755)
        except OSError as error:
            raise PullError(f"{self._copies} cannot be made: {error}") from None
        git(os.path.dirname(self._place), "init", "--quiet", "--bare", self._place)
        # git's own cleaning up ends before anything else begins.
        self._git("fetch", "--quiet", "--no-tags", self._url, f"+HEAD:{OFFERED}", config="gc.autoDetach=false")
        offered = self.marked(OFFERED)
        if offered is None:
            raise PullError("git fetch got no commit")
        return offered

    def marked(self, ref: str) -> "str | None":
        """Return the commit that a ref points to, None where there is none."""
        return commit(self._place, ref)

    def check_signature(self, commit: str) -> None:
        """Check that root trusts who signed a commit; raise PullError."""
        self._git(
            "verify-commit", commit, config=None if self._succeeds("config", "--get", "gpg.minTrustLevel") else _TRUSTED
        )

    def descends(self, commit: str, earlier: str) -> bool:
        """Return whether a commit is another one or descends from it."""
        return self._succeeds("merge-base", "--is-ancestor", earlier, commit)

    def mark(self, ref: str, commit: str) -> None:
        """Point a ref to a commit; raise PullError."""
        self._git("update-ref", ref, commit)

    def copy(self, commit: str) -> str:
        """Return the directory with a commit's files; one that is there already gets what was changed in it by hand.

        Raises:
            PullError: it cannot be had.
        """
        path = os.path.join(self._copies, commit)
        if os.path.isdir(path):
            # On a full disk nothing can be put right, and most often nothing has to be.
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(path, ".git", "index.lock"))
            with contextlib.suppress(HostError):
                git(path, "reset", "--quiet", "--hard", commit)
            return path
        new = f"{path}.new"
        try:
            self._git("clone", "--quiet", "--shared", "--no-checkout", self._place, new)
            git(new, "remote", "set-url", "origin", self._url)
            git(new, "checkout", "--quiet", "--detach", commit)
            if os.path.exists(os.path.join(new, ".gitmodules")):
                git(new, "submodule", "--quiet", "update", "--init", "--recursive")
            # git does not flush the files that it writes: after a power cut they could be empty under the right name.
            os.sync()
            durable.replace(new, path)
        except OSError as error:
            raise PullError(f"its files cannot be written: {error}") from None
        return path

    def remove_copies(self, but: "str | None") -> None:
        """Remove what is left of all commits but one."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._copies):
                if name != but:
                    shutil.rmtree(os.path.join(self._copies, name), ignore_errors=True)

    def _remove_locks(self) -> None:
        """Remove the lock files of a git that was killed, which no later git would do.

        The caller's lock says that there is no other.
        """
        for folder, _folders, files in os.walk(self._place):
            for name in files:
                if name.endswith(".lock"):
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(folder, name))

    def _succeeds(self, command: str, *arguments: str) -> bool:
        try:
            self._git(command, *arguments)
        except HostError:
            return False
        return True

    def _git(self, command: str, *arguments: str, config: "str | None" = None) -> str:
        return git(self._place, command, *arguments, config=config)


def commit(directory: str, name: str) -> "str | None":
    """Return the commit that a name stands for in a directory with a repository, None where there is none."""
    try:
        revision = git(directory, "rev-parse", "--verify", f"{name}^{{commit}}")
    except HostError:
        return None
    return revision if COMMIT.fullmatch(revision) else None


def git(directory: str, command: str, *arguments: str, config: "str | None" = None) -> str:
    """Run git in a directory; return the last line that it printed, empty where it printed nothing.

    Args:
        directory: where.
        command: what git is to do.
        arguments: of the command.
        config: a setting for this call.

    Raises:
        PullError: it failed.
    """
    argv = ["git", "-C", directory, *(["-c", config] if config else []), command, *arguments]
    done = commands.run(argv, GIT_SECONDS, directory, _ENVIRONMENT, is_shown=False)
    if done.status != 0:
        raise PullError(f"git {command} failed: {done.reason}")
    return done.output[-1] if done.output else ""
