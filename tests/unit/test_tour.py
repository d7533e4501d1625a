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
"""


@pytest.fixture(name="page")
def page_of_its_own(tmp_path, monkeypatch):
    """A page in a directory of its own, and no guest that would be ended."""
    page = tmp_path / "tour.md"
    page.write_text(PAGE, encoding="utf-8")
    for name, value in {"PAGE": page, "ROOT": tmp_path, "GUESTS": ()}.items():
        monkeypatch.setattr(tour, name, value)
    return page


def png_size(content):
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def test_each_command_gets_what_it_prints_unless_one_ends_otherwise_than_the_page_says(page):
    for code in (0, 3):
        with pytest.raises(tour.TourError, match=f"exit code {code} instead of 2"):
            tour.make(PAGE.replace("exit 2", f"exit {code}"))
        assert page.read_text(encoding="utf-8") == PAGE
    tour.make(PAGE)
    made = PAGE.replace("what was there before", "one").replace("exit 2\n", "exit 2\ntwo\n")
    assert page.read_text(encoding="utf-8") == made


def test_the_page_is_whole():
    """Each command with what it printed, each picture in its size, nothing of the machine where it was made."""
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    commands = [part for part in tour.parts(text) if isinstance(part, tour.Command)]
    pictures = [part for part in tour.parts(text) if isinstance(part, tour.Picture)]
    assert len(commands) == text.count("```console") > 5 and len(pictures) == text.count("![") == 5
    assert [part.command for part in commands if not text[slice(*part.span)].strip()] == []
    for part in pictures:
        content = (ROOT / "docs" / part.file).read_bytes()
        assert png_size(content) == (part.width, part.height) and len(content) < 250_000, part.file
    assert {f"tour/{path.name}" for path in (ROOT / "docs" / "tour").iterdir()} == {part.file for part in pictures}
    assert not re.search(r"/(root|home|tmp|work|dev/shm)\b", text)
