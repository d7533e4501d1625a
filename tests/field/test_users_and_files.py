# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about whose a task is, which characters hide, and which files a tool writes over:
each one found a fault here.
"""

from __future__ import annotations

import os

import pytest
import sysfs_tree
from ansible import context
from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build

NO_LOGIN = 0xFFFFFFFF


def pinned(root, uid, cgroup, login=NO_LOGIN, files=()):
    """The conflict of one pinned task on a host of files, when its CPU goes offline."""
    fields = " ".join(["S", "1", *"0000", "4194304", *12 * "0", "1000", *20 * "0"])
    written = {
        "proc/self/mounts": "",
        "proc/5/stat": f"5 (sleep) {fields}",
        "proc/5/task/5/stat": f"5 (sleep) {fields}",
        "proc/5/task/5/status": f"Name:\tsleep\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCpus_allowed_list:\t3\n",
        "proc/5/task/5/loginuid": str(login),
        "proc/5/task/5/cgroup": f"0::{cgroup}\n",
        **dict(files),
    }
    return affinity.find(kernel_files.KernelFiles(sysfs_tree.write(root, written)), range(4), [1, 3])


SPAWNED = "jupyter-alice-singleuser.service"


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        # Jobs of users without pam_loginuid. Also docker-mailserver 1528, where it may not write: the job has no login
        # uid, and is in the unit of the daemon.
        *(pytest.param(f"{unit}.service", {}, id="clearlinux_distribution_595") for unit in ("cron", "crond", "atd")),
        # A server of a user is a transient unit of the system.
        pytest.param(
            SPAWNED,
            {f"run/systemd/transient/{SPAWNED}": "[Service]\nUser=1001\n"},
            id="jupyterhub_systemdspawner_32",
        ),
        # A job of a batch system is a user's.
        pytest.param("flux.service/job-1", {}, id="flux_framework_flux_core_7559"),
    ],
)
def test_whose_a_pinned_task_is(tmp_path, cgroup, files):
    assert affinity.selected(pinned(tmp_path, 1001, f"/system.slice/{cgroup}", files=files), ["services"]) == []


@pytest.mark.parametrize(
    "characters",
    [
        # Directions that a list of them leaves out.
        pytest.param("\u061c\u202a\u202b", id="nvidia_skillspector_39"),
        # Blanks that are letters and marks. Also harfbuzz 6229: U+180F came with Unicode 14, older lists lack it.
        pytest.param("\u180f\u3164\uffa0\u115f\u17b4", id="guillaumemeyer_watermarks_remover_93"),
        # Characters that nobody has assigned yet.
        pytest.param("\u2065\ufff0\U000e0000\U000e0fff", id="guillaumemeyer_watermarks_remover_94"),
    ],
)
def test_characters_that_hide_are_shown(characters):
    for character in characters:
        assert text.showable(f"a{character}b").isascii() and character not in text.line(f"a{character}b")
        assert host_text.may_hide(character)


@pytest.mark.parametrize("host", ["Index", "INDEX", "Machines"])
def test_typestrong_typedoc_2012_pages_that_differ_in_case_only(host):
    """Also cedille 80: on some file systems the second is the first one's file."""
    assert f"{result_files.file_stem(host)}.html".casefold() not in build.own_names()


@pytest.mark.parametrize(("name", "suffixes"), [("config.json", places.DOCUMENT), ("index.html", places.PAGE)])
def test_max_sixty_worktrunk_4153_an_output_that_is_somebodys_configuration(tmp_path, monkeypatch, name, suffixes):
    monkeypatch.setattr(context, "CLIARGS", {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text('{"aliases": {}}')
    with pytest.raises(text.BorderError, match="this collection did not write it"):
        places.file(name, suffixes)
    assert os.listdir(tmp_path) == [name]
