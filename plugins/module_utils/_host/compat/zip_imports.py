# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports from the zip file in which Ansible brings a module to a host, in half of the time.

Python compiles each file in a zip file twice since 3.10, first to find it: `zipimporter.find_spec` asks for the file's
name, and that comes from the same function as its code (`get_filename` in Lib/zipimport.py). The file has no bytecode.
"""

import importlib.machinery
import os
import pkgutil
import sys
import typing as t
import zipimport

_CODE = __name__.rpartition("._host.")[0] + "."


class _Finder:
    """Finds the code of this collection in a zip file, without compiling it."""

    @staticmethod
    def find_spec(
        name: str, path: "t.Sequence[str] | None" = None, _target: object = None
    ) -> "importlib.machinery.ModuleSpec | None":
        if not name.startswith(_CODE) or not path:
            return None
        importer = pkgutil.get_importer(path[0])
        if not isinstance(importer, zipimport.zipimporter):
            return None
        try:
            is_package = importer.is_package(name)
        except ImportError:
            return None
        place = os.path.join(path[0], name.rpartition(".")[2])
        loader: t.Any = importer
        spec = importlib.machinery.ModuleSpec(name, loader, is_package=is_package)
        spec.origin = os.path.join(place, "__init__.py") if is_package else f"{place}.py"
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [place]
        return spec


def compile_once() -> None:
    """Let what is imported from now on be compiled once, where this module is itself from a zip file."""
    if sys.version_info >= (3, 10) and __spec__ is not None and isinstance(__spec__.loader, zipimport.zipimporter):
        sys.meta_path.insert(0, _Finder)
