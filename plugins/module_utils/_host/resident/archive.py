# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program of this collection that is left on a host, in one file:
Ansible removes its own copy of the code when a module ends.
"""

import ast
import importlib
import inspect
import io
import sys
import zipfile

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

_CODE = "ansible_collections.threadwise.smt.plugins.module_utils."
# The interpreter of the module may be gone after an upgrade of the system.
_PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python")
_START = (
    'program=$1; root=$2; shift 2; for python; do [ -x "$python" ] && exec "$python" -BES "$program" "$root"; done;'
    ' echo "there is no $*" >&2; exit 1'
)


def install(fs: host_files.HostFs, path: str, module: str, check: bool = False) -> bool:
    """Leave the program on a host, unless this very one is there.

    Args:
        fs: the files of the running system.
        path: of the program, relative to the sysroot.
        module: the name of a module of this collection; its ``main`` gets the program's arguments and returns the exit
            status.
        check: write nothing.

    Returns:
        Whether another one was there, or none.

    Raises:
        OSError: it cannot be written.
    """
    content = build(module)
    differs = fs.raw(path) != content
    if differs and not check:
        fs.write(path, content)
    return differs


def command(fs: host_files.HostFs, path: str) -> "list[str]":
    """Return the command that runs the program, which says when it is ready if systemd waits for it."""
    return ["/bin/sh", "-c", _START, "sh", fs.path(path), fs.sysroot, sys.executable, *_PYTHONS]


def build(module: str) -> bytes:
    """Return a zip file that Python runs (zipapp of the standard library, without its files on the disk):
    a module of this collection and all that it imports of it.
    """
    sources = {f"{name.replace('.', '/')}.py": source for name, source in _sources(module).items()}
    # Packages, not only folders: a host may have another ansible_collections, which a folder without __init__.py would
    # not come before.
    folders = {path.rpartition("/")[0] for path in sources}
    folders |= {
        "/".join(parts[:length])
        for parts in (folder.split("/") for folder in folders)
        for length in range(1, len(parts))
    }
    sources.update({f"{folder}/__init__.py": "" for folder in folders})
    sources["__main__.py"] = f"import sys\n\nfrom {module} import main\n\nsys.exit(main(*sys.argv[1:]))\n"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, source in sorted(sources.items()):
            # With the time of no file: the same code is the same archive.
            archive.writestr(zipfile.ZipInfo(path), source)
    return made.getvalue()


def _sources(module: str) -> "dict[str, str]":
    """Return the source of a module and of all that it imports, by name, also of what functions import."""
    sources: dict[str, str] = {}
    left = [module]
    while left:
        name = left.pop()
        if name in sources:
            continue
        sources[name] = inspect.getsource(importlib.import_module(name))
        for node in ast.walk(ast.parse(sources[name])):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_CODE):
                is_package = hasattr(importlib.import_module(node.module or ""), "__path__")
                left += [f"{node.module}.{alias.name}" for alias in node.names] if is_package else [node.module or ""]
    return sources
