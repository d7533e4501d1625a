# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of an earlier call, which nobody is to take for those of a call that has no answer: those of a check say so
then, others are removed.
"""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import command_line
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.remediation import Call

MAX_REASON = 4000


def answer(files: t.Mapping[str, object], reason: str, loader: t.Any, dry_run: bool) -> None:
    """Have the files of a check say why there is none.

    Args:
        files: their paths by the names of their formats; others and empty ones are left out.
        reason: why this call checks no host.
        loader: Ansible's loader of files.
        dry_run: only see that they can be written.

    Raises:
        BorderError: one of them is none of this collection's, or cannot be written; the others are.
    """
    if not any(files.values()):
        # Most playbooks have none, and need not load the formats.
        return
    call = Call(*command_line.call(loader), text.line(reason, MAX_REASON))
    check, problems = Check((), datetime.datetime.now(datetime.UTC), call=call), []
    for name, file_format in registry.formats().items():
        if file_format.is_kept or not files.get(name):
            continue
        try:
            result_files.write_page(
                places.file(str(files[name]), file_format.suffixes), file_format.make(check), dry_run
            )
        except text.BorderError as error:
            problems.append(str(error))
    if problems:
        raise text.BorderError("\n".join(problems))


def remove(files: t.Iterable[str], dry_run: bool) -> None:
    """Remove files.

    Args:
        files: their paths.
        dry_run: only see that they are this collection's.

    Raises:
        BorderError: one of them is none of this collection's, or cannot be removed.
    """
    paths = [places.file(path, (*places.DOCUMENT, *places.PAGE)) for path in files]
    try:
        for path in paths if not dry_run else ():
            path.unlink(missing_ok=True)
    except OSError as error:
        raise text.BorderError(
            f"{error.filename}: the file of an earlier call cannot be removed ({error.strerror}): choose another path,"
            " or remove it"
        ) from None
