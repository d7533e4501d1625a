# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures of the tour, taken by a real browser."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import pytest
import tour


@pytest.mark.night
def test_the_newest_page_is_drawn_in_the_size_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(tour, "ROOT", tmp_path)
    drawn = []
    for place, colour in enumerate(("white", "red")):
        page = tmp_path / f"{place}" / "index.html"
        page.parent.mkdir()
        page.write_text(f"<!doctype html><body style='background: {colour}'>", encoding="utf-8")
        # The second one is newer by its time alone.
        os.utime(page, (time.time() + place, time.time() + place))
        drawn.append(tour.drawn(tour.Picture("*/index.html", 320, 200, "page.png")))
    for picture in drawn:
        assert (int.from_bytes(picture[16:20], "big"), int.from_bytes(picture[20:24], "big")) == (320, 200)
    assert drawn[0] != drawn[1]
