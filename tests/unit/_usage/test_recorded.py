# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of a kernel's ring buffer, against the text that the same kernel made of them (Linux 6.1 of Debian)."""

from __future__ import annotations

import base64
import json
import pathlib
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._usage import switches

RECORDED = sorted((pathlib.Path(__file__).parent / "recorded").glob("*.json"))


def pages(texts):
    """Pages as they were read, without the zeros at their ends."""
    for text in texts:
        data, _colon, size = text.partition(":")
        yield base64.b64decode(data).ljust(int(size), b"\0")


@pytest.mark.skipif(sys.byteorder != "little", reason="the pages are of another byte order")
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_same_events_as_in_the_kernels_own_text(path):
    recorded = json.loads(path.read_text())
    switch = switches.event_format(recorded["switch"], ("prev_pid", "next_pid"))
    reader = switches.Reader(
        recorded["header"],
        switch,
        switches.event_format(recorded["fork"], ("parent_pid", "child_pid")),
        switches.event_format(recorded["runtime"], ("pid",)),
    )
    found, forks, running = [], [], {}
    for cpu, texts in recorded["pages"].items():
        for page in pages(texts):
            of_page = reader.page(page)
            found += [(one.at, int(cpu), one.before, one.after) for one in of_page.switches]
            forks += [list(one) for one in of_page.forks]
            if of_page.running is not None:
                running.setdefault(cpu, of_page.running)
    # The last ones came while tracing was being switched off.
    assert recorded["begin"] <= min(found)[0] <= max(found)[0] <= recorded["end"] + 10**8
    # The text has microseconds.
    assert sorted((cpu, round(at / 1000), before, after) for at, cpu, before, after in found) == sorted(
        (cpu, at, before, after) for cpu, at, before, after in map(tuple, recorded["switches"])
    )
    assert forks == recorded["forks"] and running == recorded["running"]
