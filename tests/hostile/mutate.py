# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a compromised host could say instead of a module's real answer, by a seed."""

import json
import pathlib
import random
import signal
import typing as t

from arena import Answer

# Replaced by the path of a file outside of where results go: whoever evaluates what a host says makes it.
PWNED = "@PWNED@"
# A line that begins so was forged by a host.
FORGED = "FORGED"
# Stands in a verdict that a host made for itself.
BELIEVED = "BELIEVED"

# Texts that mean something to somebody; what no module of ours says and Ansible or the playbooks may believe, in an
# answer (extra) and in its facts; and answers that are spoilt whatever the real one says (whole).
_WORDS = json.loads(pathlib.Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
TEXTS = (*_WORDS["texts"], "free_" + "9" * 30, "0," * 1000, "x" * 300, "../" * 50 + "tmp")
NUMBERS = (
    *(0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, -0.0, 0.1, 1e-100, 1e308, -1e308, 5e-324),
    *(float("nan"), float("inf"), float("-inf"), 1.0000000000001),
)
PLAIN = (None, True, False, [], {}, [[]], [None], {"": None}, [True], {"a": {"b": {}}})
EXTRA = (*_WORDS["extra"], ("stdout", "x\n" * 1000), ("warnings", ["w"] * 2000))
FACTS = _WORDS["facts"]
WHOLE = (
    *b'||5|[]|{}|null|true|NaN|"x"|not json|{|}|{"a":|/bin/sh: 1: python: not found'.split(b"|"),
    *(b"\n", b"\x00" * 100, b"\xff\xfe{\x00}\x00", b'\xef\xbb\xbf{"changed": false}', b"\x1b[2J\x1b]0;owned\x07"),
    *(one.encode() for one in _WORDS["whole"]),
    *(b'{"changed": false}\n{"changed": true}', b'{"changed": false}\nFORGED after\n\x1b[2J'),
    *(b'FORGED before\n\x1b[2J\n{"changed": false}', b'{"changed": false} \x9b2J'),
    *(b'{"a": ' * 900 + b"1" + b"}" * 900, b"[" * 100_000, b'{"a": ' * 100_000, b'{"changed": ' + b"9" * 400 + b"}"),
    b'{"ansible_facts": {"smt": ' + b"[" * 960 + b"]" * 960 + b"}}",
    b'{"ansible_facts": {"smt": {"x": ' + b"1" * 5000 + b"}}}",
)
MANNERS = (
    *({"exit": 1}, {"exit": 255}, {"exit": 137}, {"signal": int(signal.SIGKILL)}, {"signal": int(signal.SIGSEGV)}),
    *({"sleep": 2}, {"times": 2}, {"times": 0}, {"times": 50}, {"stderr": "\x1b[2J\nFORGED\n", "exit": 3}),
    {"stderr": "x" * 1000 + "\n", "stderr_times": 500, "exit": 2},
)


def nested(depth: int) -> t.Any:
    """Data that is so deep."""
    value: t.Any = 1
    for _again in range(depth):
        value = {"a": value}
    return value


class Mutator:
    """Makes answers of one seed, any text or number."""

    def __init__(self, seed: t.Any):
        self._random = random.Random(str(seed))

    def some(self, calls: t.Sequence[int]) -> list[int]:
        """Which of the calls are answered otherwise: mostly one, and the later ones as often as the first."""
        return self._random.sample(calls, min(len(calls), self._random.choice((1, 1, 1, 2, 3))))

    def answer(self, real: t.Any) -> Answer:
        """What is said instead of `real` (plain JSON data, or None where the real answer is no JSON)."""
        choose = self._random.random()
        if choose < 0.12 or not isinstance(real, dict):
            body = self._random.choice(WHOLE)
        else:
            body = self._damaged(_bytes(real)) if choose < 0.22 else _bytes(self._changed(real))
        return Answer(body, self._random.choice(MANNERS) if self._random.random() < 0.08 else {})

    def text_answer(self, real: str) -> Answer:
        """What is said instead of a plan's progress, which is no answer of a module."""
        if self._random.random() < 0.3:
            return Answer(self._random.choice(WHOLE), self._random.choice((*MANNERS, {}, {}, {})))
        shown, *lines = real.split("\n")
        value, *numbers = (self._random.choice((0.5, 3, *NUMBERS)) for _one in range(4))
        metric = {"name": "throughput", "value": value, "unit": self._random.choice(TEXTS)}
        last = {"workload": "gzip", "placement": self._random.choice(TEXTS), "arm": "as_found", "metric": metric}
        progress = {"phase": self._random.choice(("measuring", "ended", *TEXTS)), "last": last}
        progress |= dict(zip(("fraction", "block", "seconds_left"), numbers))
        known = json.loads(shown) if shown.startswith("{") else {}
        return Answer(b"\n".join([_bytes(self._changed({**known, **progress})), *(line.encode() for line in lines)]))

    def _changed(self, real):
        document = json.loads(json.dumps(real))
        document.pop("invocation", None)
        for _again in range(self._random.choice((1, 1, 1, 2, 2, 3, 8))):
            document = self._once(document)
        return document

    def _once(self, document):
        choose = self._random.random()
        if choose < 0.4 and isinstance(document, dict):
            key, value = self._random.choice(EXTRA if choose < 0.25 else FACTS)
            inside = document if choose < 0.25 else document.setdefault("ansible_facts", {})
            if isinstance(inside, dict):
                inside[key] = value
            return document
        places = list(_places(document))
        if not places:
            return {"a": self._value()}
        holder, key = self._random.choice(places)
        change = self._random.randrange(6)
        if change in (1, 2) and isinstance(holder, dict):
            holder[self._random.choice(TEXTS)] = holder.pop(key) if change == 1 else self._value()
        elif change == 0:
            del holder[key]
        else:
            holder[key] = self._more(holder[key]) if change == 3 else self._value()
        return document

    def _value(self):
        kind = self._random.choice((TEXTS, TEXTS, TEXTS, NUMBERS, PLAIN, None))
        if kind is None:
            return [self._random.choice(TEXTS) for _one in range(self._random.choice((1, 3, 50)))]
        return json.loads(json.dumps(self._random.choice(kind)))

    def _more(self, value):
        """The same, more of it."""
        times = self._random.choice((2, 30, 400))
        if isinstance(value, dict):
            kept = list(value.values()) or [None]
            names = [f"{self._random.choice(TEXTS)[:20]}{number}" for number in range(times)]
            return {**value, **{name: kept[number % len(kept)] for number, name in enumerate(names)}}
        return (value if isinstance(value, (str, list)) else [value]) * times

    def _damaged(self, data):
        """The bytes, some of them others."""
        place, kind = self._random.randrange(1, max(2, len(data))), self._random.randrange(5)
        inside = self._random.choice((b"\x1b[2J", b"\xff", b"\x00", b"\n", b"}", b'"', b"{", b"NaN", b"\\ud800"))
        before = self._random.choice((b"Last login: now\n", b"\x1b]0;owned\x07\n", b"[1]\n", b"{\n"))
        after = self._random.choice((b"FORGED bye\n", b"\x1b[2J\n", b"{}", b"}\n", data))
        found = bytearray(data)
        for _again in range(5):
            found[self._random.randrange(len(found))] = self._random.randrange(256)
        spoilt = (data[:place], data[:place] + inside + data[place:], before + data, data + b"\n" + after, bytes(found))
        return spoilt[kind]


def _bytes(document: t.Any) -> bytes:
    return b"\n" + json.dumps(document).encode("utf-8", "surrogatepass") + b"\n"


def _places(value):
    """(container, key) of each place in a document."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(min(50, len(value))):
            yield value, key
            yield from _places(value[key])
