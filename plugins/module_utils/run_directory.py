# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan leaves on the host while it runs, so that no sample is lost with the controller, the connection or the plan itself.

A run is a folder of files: ``header.json`` (what is known before the first sample), ``samples.jsonl``, ``observations.jsonl`` and
``events.jsonl`` (one line each, written through before the next sample begins), ``progress.json`` (for the controller to show),
``pid.json`` and ``boot.json`` (the plan's process and the boot it lives in, for the controller to see that it is still there), ``ending.json``
(how it ended).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time

RUN_NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
# What a workload reads: large, and of no use after the run.
INPUT = ".input"
# Search permission for all: a path below can be opened, names cannot be listed.
WAY_THROUGH = 0o011
ROOT_BASE = "/var/lib/threadwise-smt/runs"

# The ending of a plan that could not write one.
KILLED = {"outcome": "interrupted", "message": "the plan ended without a word: it was killed, or the host went down", "finished": None, "restored": None,
          "skipped": []}


class RunDirectoryError(Exception):
    """A run's folder cannot be made, read or removed; the text says which and why."""


def base_directory():
    """Where runs are kept: below /var/lib for root, below the user's state directory (XDG base directories) for others."""
    if os.geteuid() == 0:
        return ROOT_BASE
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "threadwise-smt", "runs")


def utc_now():
    """The time as ISO 8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def kept_runs(base):
    """The names of the runs that are kept on this host, oldest name first."""
    try:
        return sorted(name for name in os.listdir(base) if RUN_NAME.match(name))
    except OSError:
        return []


def _private(path, flags):
    return os.open(path, flags, 0o600)


class RunDirectory:
    """One run's folder.

    Args:
        base: the folder that holds all runs.
        run: the run's name: letters, digits, ``.``, ``_`` and ``-``, at most 100.
    """

    def __init__(self, base, run):
        if not RUN_NAME.match(run):
            raise RunDirectoryError("a run cannot be called %r: only letters, digits, '.', '_' and '-', at most 100, the first a letter or digit" % run[:120])
        self.run = run
        self.path = os.path.join(base, run)

    def file(self, name):
        return os.path.join(self.path, name)

    def create(self):
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            raise RunDirectoryError("%s exists: a run never overwrites another" % self.path) from None
        except OSError as error:
            raise RunDirectoryError("cannot keep a run's samples: %s" % error) from error

    def write(self, name, data, durable=True):
        """Write a JSON file so that a reader sees the old or the new one, never a half.

        Args:
            durable: whether it has to outlive a crash of the host.

        Raises:
            RunDirectoryError: it cannot be written; the old one, where there is one, is still there.
        """
        with self._writing(name), tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self.path, delete=False) as fresh:
            try:
                json.dump(data, fresh)
                fresh.flush()
                if durable:
                    os.fsync(fresh.fileno())
                os.replace(fresh.name, self.file(name))
            except OSError:
                os.unlink(fresh.name)
                raise
        if durable:
            self._keep_names()

    def append(self, name, data):
        """Add one line of JSON and have it on the disk before returning.

        Raises:
            RunDirectoryError: it cannot be written; the lines before it are still there.
        """
        with self._writing(name):
            first = not os.path.exists(self.file(name))
            with open(self.file(name), "a", encoding="utf-8", opener=_private) as lines:
                lines.write(json.dumps(data) + "\n")
                lines.flush()
                os.fsync(lines.fileno())
            if first:
                self._keep_names()

    @contextlib.contextmanager
    def _writing(self, name):
        try:
            yield
        except OSError as error:
            raise RunDirectoryError("cannot write %s: %s" % (self.file(name), error.strerror or error)) from error

    def _keep_names(self):
        """Have the names of new files on the disk: a file that was written through may still be lost with its name (fsync(2))."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def folder(self, name, uid, gid):
        """A folder within the run's in which another user may work: the way to it is opened, what else lies there is not.

        Returns:
            Its path (str).

        Raises:
            OSError: it cannot be made.
        """
        for parent in (os.path.dirname(os.path.dirname(self.path)), os.path.dirname(self.path), self.path):
            if os.geteuid() == 0:
                os.chmod(parent, os.stat(parent).st_mode | WAY_THROUGH)
        path = self.file(name)
        os.mkdir(path, 0o700)
        os.chown(path, uid, gid)
        return path

    def amend(self, **sections):
        """Add to sections of the header what is known only once the plan is under way."""
        header = self.read("header.json", {})
        for section, known in sections.items():
            header.setdefault(section, {}).update(known)
        self.write("header.json", header)

    def event(self, event, detail=None):
        self.append("events.jsonl", {"at": utc_now(), "event": event, "detail": detail})

    def read(self, name, default=None):
        try:
            with open(self.file(name), encoding="utf-8") as text:
                return json.load(text)
        except (OSError, ValueError):
            return default

    def read_lines(self, name):
        """The lines that are whole: a plan that was killed, or a full disk, may have left a half one at the end."""
        whole = []
        try:
            with open(self.file(name), encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    try:
                        whole.append(json.loads(line))
                    except ValueError:
                        continue
        except OSError:
            pass
        return whole

    def result(self):
        """The result of the run, whole: what the header says, each sample taken, and how it ended.

        Raises:
            RunDirectoryError: there is no such run on this host.
        """
        header = self.read("header.json")
        if header is None:
            raise RunDirectoryError("there is no run %s on this host" % self.run)
        result = dict(header, **self.read("ending.json", KILLED))
        result["samples"] = self.read_lines("samples.jsonl")
        result["observations"] = self.read_lines("observations.jsonl")
        result["events"] = self.read_lines("events.jsonl")
        result["plan"]["blocks_done"] = 1 + max((sample["block"] for sample in result["samples"]), default=-1)
        return result

    def remove_inputs(self):
        """Remove what only the measuring needed: the workloads' input, which can be large."""
        for name in os.listdir(self.path):
            if name.endswith(INPUT):
                os.unlink(self.file(name))

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)
