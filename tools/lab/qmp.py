# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A conversation with a running QEMU over its QMP socket."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
from collections.abc import Iterator
from typing import Any

from common import LabError


class Monitor:
    """An open QMP connection that has been through the greeting."""

    def __init__(self, connection: socket.socket) -> None:
        self._stream = connection.makefile("rwb")
        self._receive()
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        """Run a QMP command and return what it returns.

        Raises:
            LabError: QEMU refused it or is gone.
        """
        self._stream.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        self._stream.flush()
        while True:
            answer = self._receive()
            if "error" in answer:
                raise LabError(f"QEMU refused {command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]

    def human(self, line: str) -> str:
        """Run a line of the human monitor; its errors come as text."""
        answer = self.execute("human-monitor-command", **{"command-line": line})
        if answer.startswith("Error"):
            raise LabError(f"QEMU refused {line!r}: {answer.strip()}")
        return answer

    def _receive(self) -> dict:
        line = self._stream.readline()
        if not line:
            raise LabError("QEMU closed its monitor: it has ended")
        return json.loads(line)


@contextlib.contextmanager
def monitor(path: pathlib.Path, timeout: float = 120) -> Iterator[Monitor]:
    """Connect to the socket at ``path``; ``timeout`` in seconds holds for each answer."""
    with contextlib.ExitStack() as stack:
        # A socket's address takes 107 bytes, a working tree may lie deeper: go by the directory's descriptor.
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        stack.callback(os.close, directory)
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.settimeout(timeout)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{path.name}")
            opened = Monitor(connection)
            yield opened
        except OSError as error:
            raise LabError(f"QEMU's monitor {path} does not answer: {error}") from error
