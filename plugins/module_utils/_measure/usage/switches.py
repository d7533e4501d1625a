# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's ring buffer of events as data: which task ran on a CPU from when on.

The format is that of trace_pipe_raw (Documentation/trace/ring-buffer-design.rst, include/linux/ring_buffer.h; where a
field is, the kernel says in events/header_page and in the format file of each event). The text of the trace is not
read: names of tasks are in it, and whoever starts a task chooses its name.
"""

import re
import struct
import sys
import typing as t

_FIELD = re.compile(r"field:[^;]*?\b(\w+)(?:\[[^\]]*\])?;\s*offset:(\d+);\s*size:(\d+);")
_ID = re.compile(r"^ID: (\d+)$", re.MULTILINE)
_FORMATS = {1: "B", 2: "H", 4: "i", 8: "q"}
_LENGTHS = {4: "I", 8: "Q"}
# Types of ring buffer entries; 1 to 28 are data of so many words.
PADDING, TIME_EXTEND, TIME_STAMP = 29, 30, 31
TIME_BITS = 27
# The kernel keeps the upper five bits of absolute time stamps apart.
STAMP_BITS = 59
# The bits of a page's commit that are its length; others say that events were lost, as the buffer's own counters do.
LENGTH = 0xFFFFF


class Format(t.NamedTuple):
    """Where the numbers of an event are: offset and struct format of each field by name."""

    number: int
    fields: "dict[str, tuple[int, str]]"


# Of an event that a kernel does not have.
NO_EVENT = Format(-1, {"pid": (0, "=i")})


class Switch(t.NamedTuple):
    """A CPU goes from one task to another.

    Attributes:
        at: nanoseconds.
        before: pid of the task that ran; 0 is idle.
        after: pid of the one that runs from now on.
    """

    at: int
    before: int
    after: int


class Fork(t.NamedTuple):
    """A task began another one."""

    parent: int
    child: int


def event_format(text: str, fields: "t.Sequence[str]") -> Format:
    """Return where the fields of an event are.

    Args:
        text: its format file.
        fields: names of whole numbers.

    Raises:
        ValueError: the text is not a format with these fields.
    """
    number = _ID.search(text)
    by_name = {name: (int(offset), int(size)) for name, offset, size in _FIELD.findall(text)}
    if number is None or any(name not in by_name or by_name[name][1] not in _FORMATS for name in fields):
        raise ValueError("the format of an event is not one that is known")
    return Format(int(number.group(1)), {name: (by_name[name][0], "=" + _FORMATS[by_name[name][1]]) for name in fields})


class Page(t.NamedTuple):
    """The events of a page, in order.

    Attributes:
        switches: of its CPU.
        forks: likewise.
        running: the task that ran when its run time was counted, the first time; None where it was not.
    """

    switches: "list[Switch]"
    forks: "list[Fork]"
    running: "int | None"


class Reader:
    """Reads pages of the ring buffer of one CPU after the other.

    Args:
        header: the text of events/header_page.
        switch: the format of sched_switch.
        fork: that of sched_process_fork.
        runtime: that of sched_stat_runtime.

    Raises:
        ValueError: the header is not one that is known.
    """

    def __init__(self, header: str, switch: Format, fork: Format, runtime: Format) -> None:
        fields = {name: (int(offset), int(size)) for name, offset, size in _FIELD.findall(header)}
        if any(name not in fields for name in ("timestamp", "commit", "data")) or fields["commit"][1] not in _LENGTHS:
            raise ValueError("the header of a page is not one that is known")
        self._commit, self._commit_format = fields["commit"][0], "=" + _LENGTHS[fields["commit"][1]]
        self._data = fields["data"][0]
        self._switch, self._fork, self._runtime = switch, fork, runtime
        self._ran = _unpacker(runtime.fields["pid"])
        self._before = _unpacker(switch.fields["prev_pid"])
        self._after = _unpacker(switch.fields["next_pid"])
        self._parent = _unpacker(fork.fields["parent_pid"])
        self._child = _unpacker(fork.fields["child_pid"])

    def page(self, page: bytes) -> Page:
        """Return the events of a page.

        Raises:
            ValueError: it is cut or damaged.
        """
        switches: t.List[Switch] = []
        forks: t.List[Fork] = []
        ran: t.List[int] = []
        try:
            (at,) = struct.unpack_from("=Q", page, 0)
            (commit,) = struct.unpack_from(self._commit_format, page, self._commit)
            place, end = self._data, self._data + (commit & LENGTH)
            if end > len(page):
                raise ValueError("a page is shorter than it says")
            while place + 4 <= end:
                (word,) = struct.unpack_from("=I", page, place)
                kind, delta = _parts(word)
                place += 4
                if kind == PADDING:
                    if delta == 0:
                        break
                    place += struct.unpack_from("=I", page, place)[0]
                    continue
                if kind in (TIME_EXTEND, TIME_STAMP):
                    more = (struct.unpack_from("=I", page, place)[0] << TIME_BITS) + delta
                    at = at + more if kind == TIME_EXTEND else (at & ~((1 << STAMP_BITS) - 1)) | more
                    place += 4
                    continue
                at += delta
                size = kind * 4
                if kind == 0:
                    # The length counts itself.
                    size = struct.unpack_from("=I", page, place)[0]
                    self._event(page, place + 4, at, switches, forks, ran)
                else:
                    self._event(page, place, at, switches, forks, ran)
                if size <= 0:
                    raise ValueError("an event has no length")
                place += (size + 3) & ~3
        except struct.error as error:
            raise ValueError("a page is cut") from error
        return Page(switches, forks, ran[0] if ran else None)

    def _event(
        self,
        page: bytes,
        place: int,
        at: int,
        switches: "list[Switch]",
        forks: "list[Fork]",
        ran: "list[int]",
    ) -> None:
        (number,) = struct.unpack_from("=H", page, place)
        if number == self._switch.number:
            switches.append(Switch(at, self._before(page, place), self._after(page, place)))
        elif number == self._fork.number:
            forks.append(Fork(self._parent(page, place), self._child(page, place)))
        elif number == self._runtime.number:
            ran.append(self._ran(page, place))


def _parts(word: int) -> "tuple[int, int]":
    """Return the type of an entry and its time since the one before, bit fields of the kernel's C."""
    if sys.byteorder == "little":
        return word & 31, word >> 5
    return word >> TIME_BITS, word & ((1 << TIME_BITS) - 1)


def _unpacker(field: "tuple[int, str]") -> "t.Callable[[bytes, int], int]":
    offset, unpack = field[0], struct.Struct(field[1]).unpack_from

    def read(page: bytes, place: int) -> int:
        number: int = unpack(page, place + offset)[0]
        return number

    return read
