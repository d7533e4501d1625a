# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a recorded machine of the document of a proof (docs/proof.md), for tests and for smt_facts with a sysroot.

    python tests/recorded_machine.py PROOF.json DIRECTORY

The document is somebody else's: it is checked against its schema, and writes below the directory only.
"""

import pathlib
import sys

import jsonschema_rs
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof.recording import SAME_AS
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof import document, findings


class RecordingError(Exception):
    """No machine can be made of it; the message says why."""


def make(proof, directory):
    """Write the files of a proof below a directory, and return the row that it stands for."""
    try:
        found = text.parse(proof)
        jsonschema_rs.validator_for(document.SCHEMA).validate(found)
    except (text.BorderError, jsonschema_rs.ValidationError) as error:
        raise RecordingError(f"it is not the document of a proof: {text.line(error, 300)}") from None
    recorded = found["recorded"]
    if not recorded:
        raise RecordingError("it has no files: the machine was too large")
    same = {path: text[len(SAME_AS) :] for path, text in recorded.items() if text.startswith(SAME_AS)}
    if not set(same.values()) <= recorded.keys():
        raise RecordingError("a file stands for one that is not there")
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise RecordingError(f"{directory} exists") from None
    fs = files.HostFs(str(directory))
    for path, content in recorded.items():
        fs.write(path, recorded[same[path]] if path in same else content)
    return row(found)


def row(found):
    """Return the row of the README's table: the machine, what is proven on it, and what is not."""
    machine = f"{found['facts'].get('hardware_class') or 'unknown'} (Linux {found['kernel'] or 'unknown'})"
    parts = {
        state: [part for part, one in found["findings"].items() if one == state]
        for state in (findings.HOLDS, findings.FAILS, findings.OPEN)
    }
    failed = f"; not: {', '.join(parts[findings.FAILS])}" if parts[findings.FAILS] else ""
    return (
        f"| {machine} | {', '.join(parts[findings.HOLDS]) or '-'}{failed} | {', '.join(parts[findings.OPEN]) or '-'} |"
    )


if __name__ == "__main__":
    try:
        print(make(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), pathlib.Path(sys.argv[2])))
    except (RecordingError, OSError, IndexError) as error:
        sys.exit(f"{sys.argv[0]}: {error}\n\n{__doc__}" if isinstance(error, IndexError) else f"{error}")
