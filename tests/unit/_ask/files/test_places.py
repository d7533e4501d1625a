# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where data from hosts is written on the controller: where a user wants it, and never where a program reads, nor over
somebody else's file.
"""

from __future__ import annotations

import datetime
import os

import pytest
from ansible import context
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status

NOT_HERE = "data from hosts is not written here"


@pytest.fixture(name="project")
def project_fixture(tmp_path, monkeypatch):
    """A directory in which somebody works, with an inventory in a directory of its own."""
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts.yml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(context, "CLIARGS", {"inventory": ("inventory/hosts.yml",)})
    return tmp_path


@pytest.mark.parametrize("dest", ["smt_eval_results", "~/res", "deeper/than/that", "./x/../y"])
def test_results_may_lie_in_places_of_their_own(project, dest):
    made = places.run_directory(dest, "r1")
    assert made.name == "r1" and made.is_absolute() and "~" not in str(made) and ".." not in made.parts


@pytest.mark.parametrize("run", ["../inventory", "/etc", ".", "", "a\n", "x" * 101, "-rf", ".hidden", None, "\u00e4"])
def test_a_run_that_leads_elsewhere_is_refused(project, run):
    with pytest.raises(text.BorderError, match="is not a valid run name"):
        places.run_directory("smt_eval_results", run)


READ = """
    inventory inventory/host_vars host_vars group_vars/x Host_Vars library filter_plugins vars_plugins/x doc_fragments
    roles/x/action_plugins roles/x/tasks roles Roles/x LIBRARY collections/ansible_collections/threadwise/smt/meta
    ansible_collections/x playbooks/roles/x ansible.cfg /etc/ansible /etc/cron.d ~/.ansible/collections/x ~/.ansible
    ~/.ssh ~/.config/systemd/user .git/hooks .github/workflows x/../host_vars x/./../roles link link_to_home/.ssh
"""


@pytest.mark.parametrize("dest", READ.split())
def test_nothing_is_written_where_programs_read(project, dest):
    (project / "link").symlink_to("inventory")
    (project / "home").mkdir()
    (project / "link_to_home").symlink_to("home")
    with pytest.raises(text.BorderError, match=NOT_HERE):
        places.directory(dest)
    with pytest.raises(text.BorderError, match=NOT_HERE):
        places.file(f"{dest}/x.html", places.PAGE)


READ_FILES = """
    ansible.cfg ~/.ansible.cfg ~/.bashrc ~/.ssh/authorized_keys site.yml requirements.yml hosts hosts.ini Makefile
    playbooks/site.yaml /etc/cron.d/x roles/x/tasks/main.yml tasks/main.json vars/main.json Meta/Main.json x.py a/b
    .json .hidden.json /dev/null /dev/stdout html
"""


@pytest.mark.parametrize("path", READ_FILES.split())
def test_no_file_that_a_program_reads_is_written(project, path):
    for suffixes in (places.PAGE, places.DOCUMENT, places.METRICS):
        with pytest.raises(text.BorderError, match=NOT_HERE):
            places.file(path, suffixes)


JUDGED = [("web01", compliance.refused("no facts", Status.UNKNOWN))]
NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def of_check(kind, judged=()):
    return registry.formats()[kind].make(Check(judged, NOW))


@pytest.mark.parametrize(
    ("name", "suffixes", "content"),
    [
        ("smt.html", places.PAGE, of_check("page", JUDGED)),
        ("smt.json", places.DOCUMENT, of_check("json", JUDGED)),
        ("smt.prom", places.METRICS, of_check("metrics", JUDGED)),
        ("empty.json", places.DOCUMENT, ""),
    ],
)
def test_a_file_that_this_collection_wrote_is_replaced(project, name, suffixes, content):
    (project / name).write_text(content)
    assert places.file(name, suffixes) == project / name and places.file(f"~/public/{name}", suffixes).name == name


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("package.json", '{"name": "x", "description": "threadwise.smt/compliance"}'),
        ("node.prom", "# HELP node_x y\n"),
        ("other.prom", "x 1\n# HELP threadwise_smt_x y\n"),
        ("fifo.html", os.mkfifo),
        ("folder.html", os.mkdir),
        ("dangling.html", lambda path: path.symlink_to("nowhere")),
    ],
)
def test_a_file_of_somebody_else_stays(project, name, content):
    path = project / name
    path.write_text(content) if isinstance(content, str) else content(path)
    with pytest.raises(text.BorderError, match=f"{name} is there, and .*: choose another path"):
        places.file(name, (path.suffix,))
    assert not isinstance(content, str) or path.read_text() == content


def test_a_working_directory_may_lie_in_a_library(project, monkeypatch):
    here = project / "library" / "roles" / ".jenkins" / "fleet"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert places.run_directory("smt_eval_results", "r1") == here / "smt_eval_results" / "r1"
    assert places.run_directory("../results", "r1") == here.parent / "results" / "r1"
    with pytest.raises(text.BorderError, match="named library"):
        places.directory("library/x")


def test_an_inventory_is_not_written_to(project, monkeypatch):
    monkeypatch.setattr(context, "CLIARGS", {"inventory": (".", "hosts.json", "localhost,")})
    for place in (lambda: places.run_directory("results", "r1"), lambda: places.file("hosts.json", places.DOCUMENT)):
        with pytest.raises(text.BorderError, match="is an inventory"):
            place()
