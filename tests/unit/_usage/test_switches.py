# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of the kernel's ring buffer, as data: made ones, damaged ones, and (test_recorded.py) a kernel's."""

from __future__ import annotations

import random
import struct

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._usage import switches

HEADER = (
    "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
    "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
    "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
    "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n"
)
COMMON = (
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
)
SWITCH = (
    "name: sched_switch\nID: 316\nformat:\n" + COMMON + "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
    "\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
    "\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n"
    "\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n"
    "\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n"
    "\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n"
    "\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n"
)
FORK = (
    "name: sched_process_fork\nID: 310\nformat:\n"
    + COMMON
    + "\tfield:char parent_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
    "\tfield:pid_t parent_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
    "\tfield:char child_comm[16];\toffset:28;\tsize:16;\tsigned:0;\n"
    "\tfield:pid_t child_pid;\toffset:44;\tsize:4;\tsigned:1;\n"
)
RUNTIME = (
    "name: sched_stat_runtime\nID: 305\nformat:\n" + COMMON + "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n"
    "\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n"
    "\tfield:u64 runtime;\toffset:32;\tsize:8;\tsigned:0;\n"
)
# What somebody may call a process: parts of the text of a trace, bytes that are none of any encoding.
COMM = b"==> next_pid=0 \xff\n"
NAME = COMM[:15] + b"\0"


def reader():
    switch = switches.event_format(SWITCH, ("prev_pid", "next_pid"))
    return switches.Reader(
        HEADER,
        switch,
        switches.event_format(FORK, ("parent_pid", "child_pid")),
        switches.event_format(RUNTIME, ("pid",)),
    )


def switch(before, after):
    return struct.pack("=HBBi16siiq16sii", 316, 0, 0, before, NAME, before, 120, 1, NAME, after, 120)


def fork(parent, child):
    return struct.pack("=HBBi16si16si", 310, 0, 0, parent, NAME, parent, NAME, child)


def runtime(pid):
    return struct.pack("=HBBi16siIQ", 305, 0, 0, pid, NAME, pid, 0, 10**6)


def entry(data, delta=0, is_long=False):
    if is_long:
        return struct.pack("=II", delta << 5, len(data) + 4) + data
    assert len(data) % 4 == 0
    return struct.pack("=I", len(data) // 4 | delta << 5) + data


def page(*entries, at=1000, size=4096, flags=0):
    data = b"".join(entries)
    return (struct.pack("=QQ", at, len(data) | flags) + data).ljust(size, b"\0")


def test_switches_and_forks_in_order_with_their_times():
    found, forks, running = reader().page(
        page(
            entry(switch(0, 7), 5),
            entry(fork(7, 8), 1),
            entry(switch(7, 8), 10, is_long=True),
            # Another event, of which nothing is known.
            entry(struct.pack("=HHI", 99, 0, 1), 4),
            entry(switch(8, 0), 20),
        )
    )
    assert found == [(1005, 0, 7), (1016, 7, 8), (1040, 8, 0)] and forks == [(7, 8)]
    assert running is None


def test_long_times_absolute_ones_and_padding():
    extend = struct.pack("=II", 30 | 3 << 5, 2)
    absolute = struct.pack("=II", 31 | 7 << 5, 5)
    deleted = struct.pack("=II", 29 | 1 << 5, 8) + b"\xff" * 4
    rest = struct.pack("=I", 29)
    found, *_others = reader().page(
        page(
            extend,
            entry(switch(0, 1)),
            deleted,
            entry(switch(1, 2), 1),
            absolute,
            entry(switch(2, 3)),
            rest,
            b"\xff" * 8,
        )
    )
    later = 1000 + 3 + (2 << 27)
    assert found == [(later, 0, 1), (later + 1, 1, 2), (7 + (5 << 27), 2, 3)]


def test_that_events_were_lost_is_no_part_of_a_pages_length():
    assert reader().page(page(entry(switch(0, 1)), flags=3 << 30)).switches == [(1000, 0, 1)]


def test_the_first_task_whose_run_time_was_counted():
    assert reader().page(page(entry(runtime(7)), entry(switch(7, 8)), entry(runtime(8)))).running == 7


def test_the_upper_bits_of_an_absolute_time_are_the_pages():
    at = (3 << 59) + 12345
    found, *_others = reader().page(page(struct.pack("=II", 31 | 9 << 5, 1), entry(switch(0, 1)), at=at))
    assert found == [((3 << 59) + 9 + (1 << 27), 0, 1)]


@pytest.mark.parametrize(
    ("damaged", "error"),
    [
        (b"", "cut"),
        (b"\0" * 10, "cut"),
        (struct.pack("=QQ", 0, 4000) + b"\0" * 8, "shorter than it says"),
        (page(struct.pack("=II", 0, 0)), "no length"),
        (page(struct.pack("=I", 20 | 5 << 5), size=20), "cut"),
    ],
)
def test_a_damaged_page_is_refused(damaged, error):
    with pytest.raises(ValueError, match=error):
        reader().page(damaged)


def test_any_bytes_give_events_or_a_refusal():
    source, found = random.Random(7), 0
    whole = page(*(entry(switch(number % 5, number), number) for number in range(40)))
    for _attempt in range(3000):
        spoilt = bytearray(whole)
        for _change in range(source.randint(1, 30)):
            spoilt[source.randrange(len(spoilt))] = source.randrange(256)
        try:
            found += len(reader().page(bytes(spoilt[: source.randint(0, len(spoilt))]))[0])
        except ValueError:
            continue
    assert found


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", ("prev_pid",)),
        (SWITCH, ("nothing",)),
        (SWITCH, ("prev_comm",)),
        (SWITCH.replace("ID: 316", ""), ("prev_pid",)),
    ],
)
def test_an_unknown_format_is_refused(text, fields):
    with pytest.raises(ValueError, match="not one that is known"):
        switches.event_format(text, fields)


def test_an_unknown_header_is_refused():
    made = switches.event_format(SWITCH, ("prev_pid", "next_pid"))
    for header in (
        "field: u64 timestamp;\toffset:0;\tsize:8;\n",
        HEADER.replace("offset:8;\tsize:8", "offset:8;\tsize:3"),
    ):
        with pytest.raises(ValueError, match="header"):
            switches.Reader(header, made, made, made)
