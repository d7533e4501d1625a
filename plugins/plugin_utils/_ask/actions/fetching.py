# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the actions that bring samples from a host:
each run is saved on the controller before the host forgets it.

The controller records where it started a run. A host names the runs that wait there, and is not trusted: only a run of
which there is a record comes to the place that it was started for, any other to one of that host's own. What one host
can have stored is limited, for each task and in its own place.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import shlex
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.options.smt_benchmark import ARGUMENTS, RANGES
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostAction, HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import (
    answers,
    host_result,
    parts,
    results,
    text,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files

# What a user says of a host, which the result keeps: its price, what its licences count, and its nominal frequency.
PRICE, LICENCE, NOMINAL = STATED = ("price_per_hour", "licence_per", "nominal_ghz")
COSTS = (PRICE, LICENCE)
MODULE = "smt_benchmark"
# In a run's directory, a file for each host that the run was started on and whose result is not here yet.
STARTED = ".started"
# And which call began the run last: the process of Ansible that all its tasks have as parent.
BEGUN = ".begun"
# In the directory of runs: runs that hosts had and this controller has no record of. No run can have this name.
COLLECTED = "_collected"
# Most runs that waited on one host, and bytes of them after which no further one is begun, in one task; and most runs
# in a host's own place.
MAX_RUNS, MAX_BYTES, MAX_KEPT = 4, 64 * 1024 * 1024, 10
# Names of runs in one message.
MAX_NAMED = 5

display = terminal.Terminal()


class Fetched(t.NamedTuple):
    """A result that was fetched, and the file on the controller."""

    result: host_result.HostResult
    path: str


class FetchingAction(HostAction):
    """An action with the option ``dest``, the directory of runs on the controller."""

    from_user = ("dest", "run")

    def directory(self, run: str) -> pathlib.Path:
        """Return the directory of a run on the controller.

        Raises:
            BorderError: the run's name is not valid, or Ansible reads from this path.
        """
        return places.run_directory(self._dest(), run)

    def stated(self) -> dict[str, t.Any]:
        """Return what the task says of the host, numbers as numbers: on a command line they are texts.

        Raises:
            HostFailedError: one is not valid.
        """
        # Convert Ansible's tagged strings to plain ones for the schema.
        options: dict[str, t.Any] = json.loads(json.dumps({name: self._task.args.get(name) for name in STATED}))
        licensed = ARGUMENTS[LICENCE]["choices"]
        if options[LICENCE] not in (None, *licensed):
            raise HostFailedError(
                {"msg": f"{LICENCE} is {text.line(str(options[LICENCE]), 40)}: it must be one of {', '.join(licensed)}"}
            )
        for name in (PRICE, NOMINAL):
            _least, most = RANGES[name]
            if options[name] is None:
                continue
            try:
                number = float(options[name])
            except (TypeError, ValueError, OverflowError):
                number = 0.0
            if not 0 < number <= most:
                raise HostFailedError(
                    {
                        "msg": (
                            f"{name} is {text.line(str(options[name]), 40)}: it must be a number above 0, at most"
                            f" {most:g}"
                        )
                    }
                )
            options[name] = number
        return options

    def begins(self, run: str) -> bool:
        """Return whether no other task of this call has begun the run, and note that this one does.

        Raises:
            ResultError: the file cannot be written.
        """
        path, call = self.directory(run) / BEGUN, str(os.getppid())
        if result_files.read_text(path) == call:
            return False
        result_files.write_text(path, call)
        return True

    def record(self, run: str, host: str) -> None:
        """Record on the controller that a run is started on a host, before it is.

        Raises:
            ResultError: the file cannot be written.
        """
        result_files.write_text(_record_file(self.directory(run), host), _record(run, host))

    def fetch_waiting(
        self, task_vars: dict[str, t.Any], host: str, runs: t.Iterable[str]
    ) -> tuple[list[Fetched], dict[str, str]]:
        """Fetch runs that wait on a host, as many as one task may.

        Args:
            task_vars: variables of the task.
            host: its name in the inventory.
            runs: their names, as the host gave them.

        Returns:
            The results, and the names of the runs that stay on the host, each with the reason.
        """
        started = self._started(host, dict.fromkeys(runs))
        fetched: list[Fetched] = []
        left: dict[str, str] = {}
        size = tried = 0
        for run in sorted(dict.fromkeys(runs), key=lambda run: run not in started):
            if tried >= MAX_RUNS or size >= MAX_BYTES:
                left[run] = f"one task fetches up to {MAX_RUNS} runs and {MAX_BYTES // 1024 // 1024} MiB of a host"
                continue
            tried += 1
            try:
                fetched.append(self.fetch(task_vars, host, run, started.get(run) or self._own_place(run, host)))
                size += os.path.getsize(fetched[-1].path)
            except (HostFailedError, text.BorderError) as error:
                left[run] = text.line(error)
        return fetched, left

    def _dest(self) -> str:
        return str(self._task.args.get("dest") or ARGUMENTS["dest"]["default"])

    def _started(self, host: str, runs: t.Iterable[str]) -> dict[str, pathlib.Path]:
        """Return the directories of those of these runs that this controller started on a host, by their names."""
        above = pathlib.Path(os.path.expanduser(self._dest()))
        # A run of several boots has a directory for each of them.
        booted = {
            path.parents[1].name: path.parents[1].parent
            for path in above.glob(f"*/boots/*/{STARTED}/{result_files.file_stem(host)}")
        }
        directories = {run: places.run_directory(str(booted.get(run, self._dest())), run) for run in runs}
        return {
            run: directory
            for run, directory in directories.items()
            if result_files.read_text(_record_file(directory, host)) == _record(run, host)
        }

    def _own_place(self, run: str, host: str) -> pathlib.Path:
        """Return the directory for a run that a host says it has, and that this controller did not start on it.

        Raises:
            BorderError: the host's own place is full.
        """
        own = places.run_directory(os.path.join(self._dest(), COLLECTED, result_files.file_stem(host)), run)
        if not own.exists() and own.parent.is_dir() and len(os.listdir(own.parent)) >= MAX_KEPT:
            raise text.BorderError(
                f"{own.parent} holds {MAX_KEPT} runs that this controller has no record of: move away what you have"
                " seen"
            )
        return own

    def fetch(
        self,
        task_vars: dict[str, t.Any],
        host: str,
        run: str,
        directory: pathlib.Path,
        error: str | None = None,
        fetched: t.Sequence[str] = (),
    ) -> Fetched:
        """Fetch a run, save it on the controller, and only then delete it on the host.

        Args:
            task_vars: variables of the task.
            host: its name in the inventory.
            run: name of the run.
            directory: of the run on the controller.
            error: what the host could not write down itself.
            fetched: earlier runs of the host that were fetched before this one.

        Raises:
            HostFailedError: the host did not send or forget it.
            BorderError: the result is not valid, or cannot be saved.
        """
        try:
            document = self.ask(answers.Collected, MODULE, {"run": run, "_step": "collect"}, task_vars).result
        except HostFailedError as failure:
            if error:
                raise HostFailedError({"msg": f"{error} ({failure})"}) from failure
            raise
        stated = self.stated()
        of_the_controller = {
            "host": host,
            "collected": _now(),
            "fetched": list(fetched),
            "costs": {name: stated[name] for name in COSTS},
            **({"message": text.showable(error)} if error else {}),
        }
        document = {**document, **of_the_controller}
        sent = results.accept(document, host)
        if sent.run != run:
            raise results.ResultError(f"{host}: it sent run {sent.run} instead of run {run}")
        if stated[NOMINAL] is not None:
            document["environment"] = {**document["environment"], "nominal_mhz": stated[NOMINAL] * 1000}
        path, _written, result = result_files.save(directory, document)
        self.ask(parts.Answer, MODULE, {"run": run, "_step": "forget"}, task_vars)
        with contextlib.suppress(OSError):
            _record_file(directory, host).unlink()
        return Fetched(result, str(path))


def say_left(host: str, left: t.Mapping[str, str]) -> None:
    """Warn of the runs that stay on a host, with the reason and the way out."""
    by_reason: dict[str, list[str]] = {}
    for run, reason in left.items():
        by_reason.setdefault(reason, []).append(run)
    for reason, runs in by_reason.items():
        names = ", ".join(runs[:MAX_NAMED]) + (f" and {len(runs) - MAX_NAMED} more" if len(runs) > MAX_NAMED else "")
        which = f"the run {names} stays" if len(runs) == 1 else f"{len(runs)} runs stay ({names})"
        display.warning(
            f"{text.line(host)}: {which} on the host: {reason}. To fetch again: ansible-playbook"
            " threadwise.smt.smt_eval_stop, with the same options"
        )


def _record_file(directory: pathlib.Path, host: str) -> pathlib.Path:
    return directory / STARTED / result_files.file_stem(host)


def _record(run: str, host: str) -> str:
    return json.dumps({"run": run, "host": host}) + "\n"


def report_call(fetched: Fetched) -> str:
    """Return the command that builds the report of a fetched result's run."""
    return (
        f"ansible-playbook threadwise.smt.smt_report -e smt_report_run_dir={shlex.quote(os.path.dirname(fetched.path))}"
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
