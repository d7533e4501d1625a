# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packs a program that imports the collection, with what of the collection runs on hosts,
into one file that any Python there runs.

usage: pack.py PROGRAM FILE

In a guest one process that asks a hundred times takes less than two calls of a module, each of which starts Python and
compiles all that it imports.
"""

from __future__ import annotations

import pathlib
import sys
import zipfile

PACKAGE = pathlib.PurePath("ansible_collections/threadwise/smt/plugins/module_utils")
MODULE_UTILS = pathlib.Path(__file__).resolve().parents[2] / "plugins/module_utils"

program, target = sys.argv[1:]
with zipfile.ZipFile(target, "w") as archive:
    archive.write(program, "__main__.py")
    for package in (PACKAGE, *PACKAGE.parents[:-1]):
        archive.writestr(str(package / "__init__.py"), "")
    # In an archive only a folder with this file is a package.
    for folder in sorted(path for path in MODULE_UTILS.rglob("*") if path.is_dir() and path.name != "__pycache__"):
        archive.writestr(str(PACKAGE / folder.relative_to(MODULE_UTILS) / "__init__.py"), "")
    for path in sorted(MODULE_UTILS.rglob("*.py")):
        archive.write(path, str(PACKAGE / path.relative_to(MODULE_UTILS)))
