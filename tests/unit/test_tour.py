# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tour: how `make tour` reads its page, calls its commands and writes it, and that the page is whole."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import processes
import tour

PAGE = """# A page

```console
$ echo one
what was there before
```

<!-- exit code 2 -->
```console
$ echo two; exit 2
```

```sh
echo three
```
"""
# A tour in a process of its own, of a page in another tree and without guests.
TOUR = """
import pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
import tour
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
tour.ROOT, tour.GUESTS = pathlib.Path(sys.argv[2]), ()
tour.PAGE = tour.ROOT / "docs" / "tour.md"
tour.make(tour.PAGE.read_text())
"""
# The signal comes when the command runs, and Popen has not returned yet.
EARLY = """
import os, signal, subprocess, sys, time
class Early(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        while not os.path.exists(os.path.join(sys.argv[2], "pid")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen = Early
"""
PLAY = """
PLAY [Survey] ******************************************************************

TASK [Read the facts] **********************************************************
ok: [web1]
skipping: [web2]

TASK [Show the table] **********************************************************
host  class
web1  one
The page: {root}/page.html
changed: [web1]

PLAY RECAP *********************************************************************
web1 : ok=4 changed=1

"""


@pytest.fixture(name="page")
def page_of_its_own(tmp_path, monkeypatch):
    """A page in a directory of its own, and no guest that would be ended."""
    page = tmp_path / "docs" / "tour.md"
    page.parent.mkdir()
    page.write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(tour, "PAGE", page)
    monkeypatch.setattr(tour, "ROOT", tmp_path)
    monkeypatch.setattr(tour, "GUESTS", ())
    return page


def png_size(content):
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def test_each_command_gets_what_it_prints(page):
    tour.make(page.read_text(encoding="utf-8"))
    assert page.read_text(encoding="utf-8") == PAGE.replace("what was there before", "one").replace(
        "exit 2\n", "exit 2\ntwo\n"
    )


def test_made_twice_it_is_the_same(page):
    tour.make(page.read_text(encoding="utf-8"))
    once = page.read_text(encoding="utf-8")
    tour.make(once)
    assert page.read_text(encoding="utf-8") == once


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_ends_otherwise_than_the_page_says_leaves_the_page_as_it_is(page, code):
    with pytest.raises(tour.TourError, match=rf"exit code {code} instead of 2 of echo two; exit {code}\ntwo"):
        tour.make(PAGE.replace("exit 2", f"exit {code}"))
    assert page.read_text(encoding="utf-8") == PAGE


def test_a_picture_of_no_page_is_an_error(page):
    picture = "<!-- picture: gone/*/index.html 800x600 -->\n![a page](tour/gone.png)\n"
    with pytest.raises(tour.TourError, match=r"there is no gone/\*/index.html"):
        tour.make(PAGE + picture)
    assert page.read_text(encoding="utf-8") == PAGE and not (page.parent / "tour").exists()


def test_guests_are_ended_also_when_a_command_fails(page, monkeypatch):
    laboratory = page.parents[1] / "lab" / "lab.py"
    laboratory.parent.mkdir()
    laboratory.write_text(
        "import sys\nwith open('ended', 'a') as ended:\n    ended.write(' '.join(sys.argv[1:]) + '\\n')\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(tour, "GUESTS", ("web1", "web2"))
    with pytest.raises(tour.TourError):
        tour.make(PAGE.replace("echo one", "exit 1"))
    assert (page.parents[1] / "ended").read_text(encoding="utf-8") == "down --name web1\ndown --name web2\n"


def test_tasks_that_only_list_hosts_are_left_out_and_paths_are_those_of_a_user():
    seen = tour.shown(PLAY.replace("{root}", "/home/somebody/clone"), pathlib.Path("/home/somebody/clone"))
    assert (
        seen == "TASK [Show the table] ***\nhost  class\nweb1  one\nThe page: page.html\nchanged: [web1]\n\nPLAY RECAP"
        " ***\nweb1 : ok=4 changed=1\n"
    )


def test_what_apt_says_and_temporary_directories_are_not_shown():
    inventory = pathlib.Path(tempfile.gettempdir()) / "tmpabc123" / "inventory.yml"
    seen = (
        f"lab: inventory: {inventory}\nGet:1 http://archive.example/debian one\nFetched 19.3 MB in 0s\nW: Download is"
        " performed unsandboxed\nready\n"
    )
    assert tour.shown(seen, pathlib.Path("/nowhere")) == "lab: inventory: inventory.yml\nready\n"


def test_what_a_command_prints_cannot_end_its_block():
    assert "```" not in tour.shown("```\n# a heading\n", pathlib.Path("/nowhere"))


def test_a_make_in_a_command_knows_nothing_of_the_one_that_called_it():
    own = {
        "PATH": "/bin",
        "MAKEFLAGS": "n",
        "MAKELEVEL": "1",
        "MFLAGS": "-n",
        "ANSIBLE_STRATEGY": "free",
        "HOME": "/home",
    }
    seen = tour.user_environment(own)
    assert seen["PATH"].endswith(":/bin") and seen["HOME"] == "/home" and seen["ANSIBLE_NOCOLOR"] == "1"
    assert not {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ANSIBLE_STRATEGY"} & set(seen)


@pytest.mark.parametrize("before", ["", EARLY], ids=["in the middle", "while it is started"])
def test_whoever_ends_it_ends_the_command_that_runs(page, before):
    """As a user does it: SIGTERM to the tour."""
    laboratory = page.parents[1]
    page.write_text("```console\n$ sleep 3600 & echo $! > pid.new; mv pid.new pid; wait\n```\n", encoding="utf-8")
    running = subprocess.Popen(
        [sys.executable, "-c", TOUR.replace("tour.make(", f"{before}tour.make("), str(ROOT / "tools"), str(laboratory)],
        stdout=subprocess.DEVNULL,
    )
    pid = laboratory / "pid"
    if not before:
        while not pid.exists():
            assert running.poll() is None
        running.terminate()
    assert running.wait() == 143
    assert not processes.lives(int(pid.read_text(encoding="ascii")))


def test_the_page_is_whole():
    """Each command with what it printed, each picture as large as the page asks for,
    and nothing of the machine where it was made.
    """
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    commands = [part for part in tour.parts(text) if isinstance(part, tour.Command)]
    pictures = [part for part in tour.parts(text) if isinstance(part, tour.Picture)]
    assert len(commands) == text.count("```console") > 5 and len(pictures) == text.count("![") == 5
    for part in commands:
        output = text[slice(*part.span)]
        assert output.strip(), part.command
    for part in pictures:
        content = (ROOT / "docs" / part.file).read_bytes()
        assert png_size(content) == (part.width, part.height) and len(content) < 250_000, part.file
    assert {path.name for path in (ROOT / "docs" / "tour").iterdir()} == {
        pathlib.PurePath(part.file).name for part in pictures
    }
    assert not re.search(r"/(root|home|tmp|work|dev/shm)\b", text)


# The example of a trial with guests that are only written down, which waits where they are set up.
EXAMPLE = """
import pathlib, sys, time
sys.path.insert(0, sys.argv[1])
import laboratory
written = pathlib.Path(sys.argv[2])
def lab(*words):
    with written.open("a") as file:
        file.write(" ".join(words) + "\\n")
    return ""
def wait(*_words):
    lab("waiting")
    time.sleep(600)
laboratory.lab, laboratory.serve = lab, wait
laboratory.main()
"""


def test_the_example_of_a_trial_takes_its_guests_down_when_it_is_ended(tmp_path):
    written = tmp_path / "written"
    words = [sys.executable, "-c", EXAMPLE, str(ROOT / "examples" / "trial"), str(written)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as process:
        while not (written.exists() and "waiting" in written.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
    downs = [line for line in written.read_text().splitlines() if line.startswith("down")]
    assert sorted(downs) == ["down --name trial-demo-1", "down --name trial-demo-2"]
