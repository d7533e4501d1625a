# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What facts load on each host, out of a zip file as Ansible brings it, and how often each file is compiled."""

import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest
from ansible_collections.threadwise.smt.plugins import module_utils

PLUGINS = pathlib.Path(module_utils.__path__[0]).parent
PACKAGE = "ansible_collections.threadwise.smt.plugins"
START = f"""
import collections, contextlib, io, json, sys
compiled = collections.Counter()
sys.addaudithook(lambda event, of: compiled.update([str(of[1])]) if event == "compile" and of[1] else None)
sys.dont_write_bytecode = True
import ansible.module_utils.basic as basic
basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = b'{{"ANSIBLE_MODULE_ARGS": {{}}}}', "legacy"
from {PACKAGE}.modules import smt_facts
with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
    smt_facts.main()
assert "hardware_class" in said.getvalue()
print(json.dumps({{"compiled": compiled, "files": {{name: one.__file__ for name, one in sys.modules.items()
    if name.startswith("{PACKAGE}") and getattr(one, "__file__", None)}}}}))
"""


@pytest.fixture(name="loaded", scope="module")
def _loaded(tmp_path_factory):
    """What a Python that imports smt_facts from a zip file says of it."""
    zipped = tmp_path_factory.mktemp("zip") / "payload.zip"
    folders = {PACKAGE.replace(".", "/"), "ansible_collections/threadwise/smt", "ansible_collections/threadwise"}
    with zipfile.ZipFile(zipped, "w") as archive:
        for path in [PLUGINS / "modules/smt_facts.py", *sorted((PLUGINS / "module_utils").rglob("*.py"))]:
            name = f"{PACKAGE.replace('.', '/')}/{path.relative_to(PLUGINS)}"
            folders |= {str(folder) for folder in pathlib.PurePath(name).parents if len(folder.parts) > 0}
            archive.write(path, name)
        for folder in sorted(folders):
            archive.writestr(f"{folder}/__init__.py", "")
    environment = dict(os.environ, PYTHONPATH=str(zipped))
    command = [sys.executable, "-c", START]
    done = subprocess.run(command, env=environment, cwd=zipped.parent, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    assert all(path.startswith(str(zipped)) for path in found["files"].values())
    return found


def test_facts_do_not_load_what_changes_a_host(loaded):
    rooms = ("_set.boot.backends.", "_set.boot.change", "_set.runtime.transition", "_set.runtime.change")
    assert [name for name in loaded["files"] if name.partition(".module_utils.")[2].startswith(rooms)] == []
    assert f"{PACKAGE}.module_utils._set.boot.loaders.grubby" in loaded["files"]


@pytest.mark.skipif(sys.version_info < (3, 10), reason="older ones compile each file once by themselves")
def test_each_file_is_compiled_once(loaded):
    quick = {path: loaded["compiled"].get(path) for path in loaded["files"].values() if "_know/" in path}
    assert len(quick) > 5
    assert set(quick.values()) == {1}
