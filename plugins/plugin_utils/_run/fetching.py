# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the actions that bring samples from a host: each run is saved on the controller before the host forgets it."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import shlex
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.action import HostAction, HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import places, result_files

DEST = "smt_eval_results"
# What a user says of a host, which the result keeps: its price, what its licences count, and its nominal frequency.
PRICE, LICENCE, NOMINAL = STATED = ("price_per_hour", "licence_per", "nominal_ghz")
COSTS = (PRICE, LICENCE)
LICENSED = ("core", "thread", "host")
_MOST = {PRICE: 1e9, NOMINAL: 100.0}
MODULE = "smt_benchmark"


class FetchingAction(HostAction):
    """An action with the option ``dest``, the directory of runs on the controller."""

    def directory(self, run: str) -> pathlib.Path:
        """Return the directory of a run on the controller.

        Raises:
            BorderError: the run's name is not valid, or Ansible reads from this path.
        """
        return places.run_directory(self._task.args.get("dest") or DEST, run)

    def stated(self) -> dict[str, t.Any]:
        """Return what the task says of the host, numbers as numbers: on a command line they are texts.

        Raises:
            HostFailedError: one is not valid.
        """
        # Convert Ansible's tagged strings to plain ones for the schema.
        found: dict[str, t.Any] = json.loads(json.dumps({name: self._task.args.get(name) for name in STATED}))
        if found[LICENCE] not in (None, *LICENSED):
            raise HostFailedError({"msg": f"{LICENCE} is {text.line(str(found[LICENCE]), 40)}: it must be one of {', '.join(LICENSED)}"})
        for name, most in _MOST.items():
            if found[name] is None:
                continue
            try:
                number = float(found[name])
            except (TypeError, ValueError, OverflowError):
                number = 0.0
            if not 0 < number <= most:
                raise HostFailedError({"msg": f"{name} is {text.line(str(found[name]), 40)}: it must be a number above 0, at most {most:g}"})
            found[name] = number
        return found

    def fetch(self, task_vars: dict[str, t.Any], host: str, run: str, error: str | None = None, fetched: t.Sequence[str] = ()) -> dict[str, t.Any]:
        """Fetch a run, save it on the controller, and only then delete it on the host.

        Args:
            task_vars: variables of the task.
            host: its name in the inventory.
            run: name of the run.
            error: what the host could not write down itself.
            fetched: earlier runs of the host that were fetched before this one.

        Returns:
            The result, and its ``path`` (str).

        Raises:
            HostFailedError: the host did not send or forget it.
            BorderError: the result is not valid, or cannot be saved.
        """
        directory = self.directory(run)
        try:
            document = self.ask("collect", MODULE, {"run": run, "_step": "collect"}, task_vars)["result"]
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
        result = results.accept({**document, **of_the_controller}, host)
        if stated[NOMINAL] is not None:
            result = {**result, "environment": {**result["environment"], "nominal_mhz": stated[NOMINAL] * 1000}}
        if result["run"] != run:
            raise results.ResultError(f"{host}: it sent run {result['run']} instead of run {run}")
        path, _written = result_files.save(directory, result)
        self.ask("forget", MODULE, {"run": run, "_step": "forget"}, task_vars)
        return dict(result, path=str(path))


def report_call(result: t.Mapping[str, t.Any]) -> str:
    """Return the command that builds the report of a fetched result's run."""
    return f"ansible-playbook threadwise.smt.smt_report -e smt_report_run_dir={shlex.quote(os.path.dirname(result['path']))}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
