# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""grubby comes from no package registry.

What real ones did with the calls of smt_boot_args was recorded once, by hand: data/grubby.json says when and how.

The stand-in of `boot_maker` is held against each call, and smt_boot_args against what its requests made of a host with
a real one.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change

RECORDED = json.loads((pathlib.Path(__file__).parent / "data/grubby.json").read_text(encoding="utf-8"))
CALLS = [(release, call) for call in RECORDED["calls"] for release in call["releases"]]
REQUESTS = [
    pytest.param(release, one, id=f"{one['name']}-{release}")
    for one in RECORDED["requests"]
    for release in one["releases"]
]


def host(root, release, before):
    boot_maker.grubby_tree(root, tuple(before["options"]), release, before.get("kernelopts"), before.get("cmdline"))
    (root / "etc/kernel").mkdir(parents=True, exist_ok=True)
    if "settings" in before:
        boot_maker.write(root, "etc/default/grub", before["settings"])


def now(root):
    """What is recorded of a host."""
    entries = [path.read_text() for path in sorted((root / "boot/loader/entries").glob("*.conf"))]
    grubenv = root / "boot/grub2/grubenv"
    kernelopts = re.findall("^kernelopts=(.*)$", grubenv.read_text() if grubenv.exists() else "", re.MULTILINE)
    found = {
        "options": [re.findall("^options ?(.*)$", text, re.MULTILINE)[0] for text in entries],
        "kernelopts": kernelopts[0] if kernelopts else None,
    }
    for name, path in (("cmdline", root / "etc/kernel/cmdline"), ("settings", root / "etc/default/grub")):
        found[name] = path.read_text() if path.exists() else None
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.night(after=3)
@pytest.mark.parametrize(("release", "call"), CALLS)
def test_the_stand_in_does_what_real_ones_did(tmp_path, release, call):
    host(tmp_path, release, call["before"])
    done = subprocess.run(
        [tmp_path / "usr/sbin/grubby", *call["arguments"]], capture_output=True, text=True, check=True
    )
    assert (now(tmp_path), done.stdout) == (call.get("after", call["before"]), call.get("printed", ""))


@pytest.mark.night(after=3)
@pytest.mark.parametrize(("release", "one"), REQUESTS)
def test_requests_make_of_a_host_what_they_made_of_one_with_a_real_grubby(tmp_path, release, one):
    host(tmp_path, release, one["before"])
    for request in one["requests"]:
        wanted = change.Request(request["smt"], request["maxcpus"], True, False)
        try:
            changed = change.run(HostFs(str(tmp_path)), wanted, "x86_64", "5.14.0-0")["changed"]
        except change.ERRORS:
            changed = None
        assert (changed, now(tmp_path)) == (request["changed"], request["after"]), request


def test_it_is_asked_for_its_entries_once_and_after_each_change(tmp_path):
    """A real one takes seconds for them where many kernels are installed."""
    log = tmp_path / "grubby.log"
    host(tmp_path, 69, {"options": ["root=/dev/sda1 quiet"]})
    change.run(HostFs(str(tmp_path)), change.Request("disabled", None, False, True), "x86_64", "5.14.0-0")
    assert log.read_text().splitlines() == ["--info=ALL"]
    log.unlink()
    change.run(HostFs(str(tmp_path)), change.Request("disabled", None, False, False), "x86_64", "5.14.0-0")
    assert log.read_text().splitlines() == ["--info=ALL", "--update-kernel=ALL --args=nosmt", "--info=ALL"]
