# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of the kernel's ring buffer, as data: made ones, damaged ones, and a kernel's (Linux 6.1 of Debian)."""

from __future__ import annotations

import base64
import json
import pathlib
import random
import struct
import sys

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import switches

RECORDED = sorted((pathlib.Path(__file__).parent / "recorded").glob("*.json"))


def fields(*given):
    return "".join(f"\tfield:{name};\toffset:{at};\tsize:{size};\tsigned:1;\n" for name, at, size in given)


def event(name, number, *given):
    common = ("unsigned short common_type", 0, 2), ("unsigned char common_flags", 2, 1), ("int common_pid", 4, 4)
    return f"name: {name}\nID: {number}\nformat:\n{fields(*common)}\n{fields(*given)}"


HEADER = fields((" u64 timestamp", 0, 8), (" local_t commit", 8, 8), (" int overwrite", 8, 1), (" char data", 16, 4080))
BEFORE = ("char prev_comm[16]", 8, 16), ("pid_t prev_pid", 24, 4), ("int prev_prio", 28, 4), ("long prev_state", 32, 8)
AFTER = ("char next_comm[16]", 40, 16), ("pid_t next_pid", 56, 4), ("int next_prio", 60, 4)
PARENT = ("char parent_comm[16]", 8, 16), ("pid_t parent_pid", 24, 4)
SWITCH = event("sched_switch", 316, *BEFORE, *AFTER)
FORK = event("sched_process_fork", 310, *PARENT, ("char child_comm[16]", 28, 16), ("pid_t child_pid", 44, 4))
RUNTIME = event("sched_stat_runtime", 305, ("char comm[16]", 8, 16), ("pid_t pid", 24, 4), ("u64 runtime", 32, 8))
# What somebody may call a process: parts of the text of a trace, bytes that are none of any encoding.
COMM = b"==> next_pid=0 \xff\n"
NAME = COMM[:15] + b"\0"


def reader(header=HEADER, switch=SWITCH, fork=FORK, runtime=RUNTIME):
    wanted = (switch, ("prev_pid", "next_pid")), (fork, ("parent_pid", "child_pid")), (runtime, ("pid",))
    return switches.Reader(header, *(switches.event_format(*one) for one in wanted))


def switch(before, after):
    return struct.pack("=HBBi16siiq16sii", 316, 0, 0, before, NAME, before, 120, 1, NAME, after, 120)


def entry(data, delta=0):
    return struct.pack("=I", len(data) // 4 | delta << 5) + data


def page(*entries, at=1000, size=4096, flags=0):
    data = b"".join(entries)
    return (struct.pack("=QQ", at, len(data) | flags) + data).ljust(size, b"\0")


def test_long_times_absolute_ones_and_padding():
    extend, absolute = struct.pack("=II", 30 | 3 << 5, 2), struct.pack("=II", 31 | 7 << 5, 5)
    deleted, rest = struct.pack("=II", 29 | 1 << 5, 8) + b"\xff" * 4, struct.pack("=I", 29) + b"\xff" * 8
    first, second, third = entry(switch(0, 1)), entry(switch(1, 2), 1), entry(switch(2, 3))
    found = reader().page(page(extend, first, deleted, second, absolute, third, rest)).switches
    later = 1000 + 3 + (2 << 27)
    assert found == [(later, 0, 1), (later + 1, 1, 2), (7 + (5 << 27), 2, 3)]
    # The upper bits of an absolute time are the page's.
    found = reader().page(page(struct.pack("=II", 31 | 9 << 5, 1), first, at=(3 << 59) + 12345)).switches
    assert found == [((3 << 59) + 9 + (1 << 27), 0, 1)]


def test_any_bytes_give_events_or_a_refusal():
    source, found = random.Random(7), 0
    whole = page(*(entry(switch(number % 5, number), number) for number in range(40)))
    for _attempt in range(night.number(500, 3000)):
        spoilt = bytearray(whole)
        for _change in range(source.randint(1, 30)):
            spoilt[source.randrange(len(spoilt))] = source.randrange(256)
        try:
            found += len(reader().page(bytes(spoilt[: source.randint(0, len(spoilt))]))[0])
        except ValueError:
            continue
    assert found


@pytest.mark.parametrize(
    ("text", "wanted"), [("", "prev_pid"), (SWITCH, "nothing"), (SWITCH.replace("ID: 316", ""), "prev_pid")]
)
def test_an_unknown_format_or_header_is_refused(text, wanted):
    with pytest.raises(ValueError, match="not one that is known"):
        switches.event_format(text, (wanted,))
    with pytest.raises(ValueError, match="header"):
        reader(fields((" u64 timestamp", 0, 8)))


def pages(texts):
    """Pages as they were read, without the zeros at their ends."""
    for text in texts:
        data, _colon, size = text.partition(":")
        yield base64.b64decode(data).ljust(int(size), b"\0")


@pytest.mark.skipif(sys.byteorder != "little", reason="the pages are of another byte order")
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_same_events_as_in_the_text_that_the_same_kernel_made_of_them(path):
    recorded = json.loads(path.read_text())
    of_kernel = reader(*(recorded[name] for name in ("header", "switch", "fork", "runtime")))
    found, forks, running = [], [], {}
    for cpu, texts in recorded["pages"].items():
        for of_page in map(of_kernel.page, pages(texts)):
            found += [(int(cpu), one.at, one.before, one.after) for one in of_page.switches]
            forks += [list(one) for one in of_page.forks]
            if of_page.running is not None:
                running.setdefault(cpu, of_page.running)
    # The last ones came while tracing was being switched off.
    times = [at for _cpu, at, *_pids in found]
    assert recorded["begin"] <= min(times) <= max(times) <= recorded["end"] + 10**8
    # The text has microseconds.
    in_text = sorted(map(tuple, recorded["switches"]))
    assert sorted((cpu, round(at / 1000), before, after) for cpu, at, before, after in found) == in_text
    assert forks == recorded["forks"] and running == recorded["running"]
