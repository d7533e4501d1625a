# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run that reboots a host, in a process that may be killed at any moment: the collection's own wait for a slot, its
own requests on the host, and a host that boots on whatever becomes of who asked for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import time
import urllib.request

from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._slot import change, record, request, settings
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._boots import reboot

BOOT = "proc/sys/kernel/random/boot_id"
BOOT_SECONDS = 0.2


class Calls:
    """The calls of a task to its host, whose files are below a tree."""

    def __init__(self, root: pathlib.Path, name: str) -> None:
        self.fs, self.task_vars = files.HostFs(str(root)), {"inventory_hostname": name}

    def ask(self, _module, given, _seconds, _check_mode=False):
        """Do what the module does."""
        try:
            if given["state"] == "acquired":
                answer = change.acquire(self.fs, request.of_options(given, given["owner"]))
            else:
                answer = change.release(self.fs, given["owner"], given["state"] == "abandoned")
        except settings.SlotError as error:
            raise HostFailedError({"msg": str(error)}) from None
        found = answer._asdict()
        return {**found, "msg": found.pop("reason")}


def tell(url: str, where: str, name: str) -> None:
    """Tell the server that a host is down, or up."""
    request = urllib.request.Request(f"{url}/{where}", json.dumps({"host": name}).encode(), method="POST")
    urllib.request.urlopen(request).close()


def boot(root: pathlib.Path, url: str, name: str) -> None:
    """Take the host down, and up again in another boot, in a process of its own."""
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            os.setsid()
            (root / "down").touch()
            tell(url, "down", name)
            time.sleep(BOOT_SECONDS)
            (root / BOOT).write_text(f"{time.time()}\n")
            tell(url, "up", name)
            (root / "down").unlink()
        os._exit(0)


def run(root: pathlib.Path, url: str, name: str, group: str) -> None:
    """Reboot the host once, as a run does that may not be the first one."""
    calls, own = Calls(root, name), (root / "first_boot").read_text()
    while (root / "down").exists():
        time.sleep(0.02)
    if (root / BOOT).read_text() == own:
        wanted = reboot.Wanted(settings.Slot(fleetlock=url), group, timeout=10_000)
        task = reboot.Reboot(calls, 600, "", wanted)
        task.take()
        boot(root, url, name)
        while (root / BOOT).read_text() in ("", own) or (root / "down").exists():
            time.sleep(0.02)
        task.give_back()
    # The host is well: what an earlier run has left is given back.
    change.release(calls.fs)
    assert record.load(calls.fs) is None, "it still holds a slot"
    (root / "done").touch()


if __name__ == "__main__":
    # The pace of real waits is not what is tested.
    reboot.PAUSE_SECONDS = 0.2
    run(pathlib.Path(sys.argv[1]), *sys.argv[2:])
