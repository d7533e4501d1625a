# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubectl on the controller: one call at a time, without a shell, with a time limit, its answer as an object."""

from __future__ import annotations

import re
import subprocess
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text

# Of a call that answers at once.
CALL_SECONDS = 60
MAX_ANSWER = 8 << 20
_MAX_MESSAGE = 500
# What libraries of kubectl log beside the message (klog), such as each attempt to reach a server.
_LOGGED = re.compile(r"[EIWF][0-9]{4} [0-9:.]+ ")

Run = t.Callable[[list[str], float], "tuple[int, str, str]"]


class KubectlError(Exception):
    """kubectl cannot be run, or failed; the text has what it was asked and what it said."""


def run(argv: list[str], seconds: float) -> tuple[int, str, str]:
    """Run a command of the controller with its environment, such as KUBECONFIG; return its status and outputs.

    Raises:
        KubectlError: it is not installed, or did not end in time.
    """
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except FileNotFoundError:
        raise KubectlError(
            f"{argv[0]} is not installed on the controller: install it with rights for nodes and pods, or set"
            " smt_policy_kubernetes to false and drain the nodes yourself"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KubectlError(f"{_command_text(argv)} did not end: {text.line(error, _MAX_MESSAGE)}") from None
    output, errors = (stream[:MAX_ANSWER].decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    return done.returncode, output, errors


def ask(run_command: Run, *words: str, seconds: float = CALL_SECONDS) -> str:
    """Return what kubectl prints.

    Raises:
        KubectlError: it failed.
    """
    argv = ["kubectl", *words]
    status, output, errors = run_command(argv, seconds)
    if status:
        lines = (errors or output).splitlines()
        message = " ".join([line for line in lines if not _LOGGED.match(line)] or lines).strip()
        raise KubectlError(
            f"{_command_text(argv)} ended with {status}: {text.line(message or 'nothing', _MAX_MESSAGE)}"
        )
    return output


def document(run_command: Run, *words: str) -> dict[str, t.Any]:
    """Return the object that kubectl prints with ``-o json``.

    Raises:
        KubectlError: it failed, or printed something else.
    """
    try:
        parsed = host_text.parse_json(ask(run_command, *words, "-o", "json"))
    except (ValueError, RecursionError) as error:
        raise KubectlError(f"{_command_text(['kubectl', *words])} printed no JSON: {text.line(error, 200)}") from None
    if not isinstance(parsed, dict):
        raise KubectlError(f"{_command_text(['kubectl', *words])} printed no JSON object")
    return parsed


def _command_text(argv: t.Sequence[str]) -> str:
    return text.line(" ".join(argv), 200)
