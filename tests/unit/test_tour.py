# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tour: how `make tour` reads its page, calls its commands and writes it, and that the page is whole."""

from __future__ import annotations

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
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


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_ends_otherwise_than_the_page_says_leaves_the_page_as_it_is(page, code):
    with pytest.raises(tour.TourError, match=rf"exit code {code} instead of 2 of echo two; exit {code}\ntwo"):
        tour.make(PAGE.replace("exit 2", f"exit {code}"))
    assert page.read_text(encoding="utf-8") == PAGE


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
