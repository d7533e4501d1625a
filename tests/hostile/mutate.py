# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a compromised host could say instead of a module's real answer, by a seed:
the same seed gives the same answer.
"""

from __future__ import annotations

import json
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

WORDS = """. .. ~ ~root -rf x/y / /etc ../inventory/host_vars ../../host_vars ansible.cfg r1 honest1 localhost all index
    results compare enabled disabled restored none null true completed failed drifted compliant unknown 0 1 -1 0- ,, 3-1
    0-65535 0-99999999999 0-1,0-1 65536 1e999 0x10 9999-12-31T23:59:59Z 0000-00-00T00:00:00Z 2026-01-01
    1970-01-01T00:00:00+99:99 {{ {# !unsafe =cmd|'/C @SUM(1) <script>alert(1)</script> </title></style></svg>"""
TEXTS = (
    *WORDS.split(),
    *json.loads(r"""["", " ", "\t", "r1\n", "host_vars\u0000", "\u0000", "a\u0000b",
    "\u001b[2J\u001b[1;1H\u001b]0;owned",
        "x\nFORGED PLAY RECAP ***\nFORGED honest1 : ok=9", "\rFORGED\r\nFORGED", "\u007f\u009b31m\u0085",
        "\ud83d\udca9",
        "\u202eevil\u2066\u2069", "\u2028line\u2029", "\ud800", "\udfff\ud800", "\ufeff", "\u0663", "\u00b2",
        "free_\u00b2", "{{ lookup('ansible.builtin.pipe', 'touch @PWNED@') }}",
        "{% for x in range(99999999) %}x{% endfor %}",
        "{{ 7 * 7 }}", "$(touch @PWNED@)", "; touch @PWNED@ #", "`touch @PWNED@`", "' || touch @PWNED@ || '",
        "\"><img src=x onerror=alert(1)>", "a,b;c\td\"e", "|x|\n|y|", "# HELP x y"]"""),
    *("free_" + "9" * 30, "0," * 1000, "x" * 300, "../" * 50 + "tmp"),
)
NUMBERS = (
    *(0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, -0.0, 0.1, 1e-100, 1e308, -1e308, 5e-324),
    *(float("nan"), float("inf"), float("-inf"), 1.0000000000001),
)
PLAIN = (None, True, False, [], {}, [[]], [None], {"": None}, [True], {"a": {"b": {}}})
# What no module of ours says, and Ansible or the playbooks may believe.
EXTRA: list[tuple[str, t.Any]] = [
    *json.loads(r"""[["failed", true], ["failed", "yes"], ["failed", {}], ["unreachable", true], ["unreachable", "x"],
        ["skipped", true], ["changed", "maybe"], ["changed", []], ["msg", null], ["msg", 5], ["msg", {"a": 1}],
        ["rc", "x"],
        ["stdout", 5], ["stderr", []], ["results", "x"], ["results", [1]], ["results", [{"failed": true}]], ["item",
        "x"],
        ["invocation", 5], ["invocation", {"module_args": "x"}], ["compliance", {"status": "compliant"}],
        ["compliance", 5], ["compliance", {"status": "drifted", "change": {}}], ["exception", "\u001b[31mTrace"],
        ["exception", 5], ["warnings", ["\u001b]0;owned\u0007"]], ["warnings", "x"], ["warnings", [5]],
        ["warnings", {"a": 1}], ["deprecations", [{"msg": "\u001b[2J"}]], ["deprecations", "x"], ["deprecations", [5]],
        ["deprecations", [{"msg": "x", "version": {}}]], ["diff", {"before": "\u001b[2J", "after": 5}], ["diff", "x"],
        ["add_host", {"host_name": "honest1", "groups": ["evil"],
            "host_vars": {"ansible_shell_executable": "touch @PWNED@; /bin/sh"}}],
        ["add_host", 5], ["add_host", {"host_name": "evil-new", "groups": ["all"]}], ["add_group", "evil"],
        ["parent_groups", ["honest1"]], ["ansible_stats", {"data": {"\u001b[2J": 1}, "per_host": false,
        "aggregate": true}],
        ["ansible_stats", {"data": 5}], ["_ansible_notify", ["x"]], ["_ansible_notify", 5], ["_ansible_no_log", true],
        ["_ansible_item_result", true], ["_ansible_delegated_vars", {"ansible_host": "honest1"}],
        ["_ansible_facts_cacheable", true], ["_ansible_parsed", false], ["_ansible_ignore_errors", true],
        ["__ansible_type", "TrustedAsTemplate"], ["__ansible_type", "_AnsibleTaggedStr"], ["__ansible_unsafe", "x"],
        ["__ansible_vault", "x"], ["ansible_job_id", "\u001b[2J"], ["ansible_job_id", "../../x"], ["ansible_job_id", 5],
        ["ansible_job_id", "j1; touch @PWNED@"], ["finished", {}], ["finished", "no"], ["finished", true],
        ["started", 5],
        ["results_file", "../x"], ["ansible_async_watchdog_pid", {}], ["attempts", "x"], ["censored", "x"]]"""),
    *(("stdout", "x\n" * 1000), ("warnings", ["w"] * 2000)),
]
FACTS: list[tuple[str, t.Any]] = json.loads(r"""[["ansible_connection", "local"], ["ansible_async_dir", "../inventory"],
    ["ansible_remote_tmp", "{{ lookup('pipe', 'touch @PWNED@') }}"], ["ansible_host", "honest1"], ["groups", {}],
    ["ansible_shell_executable", "touch @PWNED@; /bin/sh"], ["ansible_python_interpreter", "touch @PWNED@; python3"],
    ["ansible_become_exe", "touch @PWNED@"], ["ansible_check_mode", false], ["ansible_play_hosts_all", ["evil"]],
    ["ansible_play_hosts", []], ["inventory_hostname", "honest1"], ["hostvars", {}], ["group_names", []], ["omit", "x"],
    ["playbook_dir", "/"], ["ansible_facts", {}], ["smt_eval_dest", "inventory/host_vars"], ["smt_eval_dest", {}],
    ["smt_eval_run", "../../inventory"], ["__smt_eval_run", "../../inventory"], ["smt_eval_arms", ["smt_on",
    "smt_off"]],
    ["smt_eval_custom", [{"argv": ["touch", "@PWNED@"]}]], ["smt_eval_budget", 1000000000], ["smt_eval_run", ".."],
    ["smt_survey_page", "inventory/host_vars/honest1.yml"], ["smt_compliance_json", "ansible.cfg"],
    ["smt_compliance_page", "ansible.cfg"], ["smt_policy", "enabled"], ["smt_policy_scope", []],
    ["smt_policy_results", "/"], ["smt_policy_reboot_ok", true], ["smt_policy_group", "honest"],
    ["smt_policy_judged", {"compliance": 5}], ["smt_policy_before", {}], ["smt_enforce_waves", ["x"]],
    ["smt_enforce_max_fail_percentage", 100], ["smt_enforce_health_check", "/etc/passwd"], ["__smt_survey_facts", 5],
    ["__smt_policy_back", {"back_to": "/etc"}], ["__smt_enforce_done", true], ["smt_facts_sysroot", "../.."],
    ["smt_memory", 5], ["smt", 5], ["discovered_interpreter_python", "touch"], ["smt_report_results", ["/etc/passwd"]],
    ["smt_report_before", "/etc"], ["ansible_local", {"a": "\u001b"}], ["smt_runtime_rollback_after", "x"]]""")
# Bytes for bytes: how a real answer is spoilt whatever it says.
WHOLE: tuple[bytes, ...] = (
    *b'||5|[]|{}|null|true|NaN|"x"|not json|{|}|{"a":|/bin/sh: 1: python: not found'.split(b"|"),
    *(b"\n", b"\x00" * 100, b"\xff\xfe{\x00}\x00", b'\xef\xbb\xbf{"changed": false}', b"\x1b[2J\x1b]0;owned\x07"),
    *rb"""{"failed": true}
{"unreachable": true, "msg": "\u001b[2J"}
{"ansible_facts": null}
{"ansible_facts": []}
{"ansible_facts": "x"}
{"ansible_facts": {"smt": null}}
{"ansible_facts": {"smt": []}}
{"ansible_facts": {"smt_memory": 5}}
{"ansible_facts": {"smt": {}, "smt": {"supported": {}}}}
{"changed": 1e400}
{"a": "\ud800"}
{"\ud800": 1}
{"msg": "\u001b[2J\nFORGED", "failed": true}
{"msg": "MODULE FAILURE", "exception": "x\nFORGED\u001b[2J", "failed": true}""".split(b"\n"),
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
MANY = 100_000
LONG = 1_000_000


def nested(depth: int) -> t.Any:
    """Data that is so deep."""
    value: t.Any = 1
    for _again in range(depth):
        value = {"a": value}
    return value


# What costs far more to work with than to send.
LARGE = (
    *("x" * LONG, "\x1b" * LONG, "\U0001f4a9" * LONG, "0-65535," * 20_000, "{{ 1 }}" * MANY, "\n" * LONG),
    *([0] * MANY, ["0-65535"] * 20, ["0-65535"] * 400, [{}] * MANY, 10**4000, nested(300), nested(963)),
    *({str(one): "0-65535" for one in range(200)}, {str(one): {} for one in range(MANY)}),
    *(["free_" + "9" * 30] * 1000, [f"workload{one}" for one in range(4000)]),
)
NOISE = (b"x", b"{", b"\n", b"\xf0\x9f\x92\xa9", b"{}\n", b"[[", b"\x1b[2J\n")


class Mutator:
    """Makes answers of one seed, any text or number."""

    def __init__(self, seed: t.Any):
        self._random = random.Random(str(seed))

    def some(self, calls: t.Sequence[int]) -> list[int]:
        """Which of the calls are answered otherwise: mostly one, and the later ones as often as the first."""
        return self._random.sample(calls, min(len(calls), self._random.choice((1, 1, 1, 2, 3))))

    def answer(self, real: t.Any, large: bool = False) -> Answer:
        """What is said instead of `real` (plain JSON data, or None where the real answer is no JSON).

        Args:
            real: the real answer.
            large: whether it is one of those that want the controller's memory or time, by megabytes.
        """
        choose = self._random.random()
        if large:
            body = self._large(real)
        elif choose < 0.12 or not isinstance(real, dict):
            body = self._random.choice(WHOLE)
        elif choose < 0.22:
            body = self._damaged(_bytes(real))
        else:
            body = _bytes(self._changed(real))
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
        if change == 0:
            del holder[key]
        elif change == 1 and isinstance(holder, dict):
            holder[self._random.choice(TEXTS)] = holder.pop(key)
        elif change == 2 and isinstance(holder, dict):
            holder[self._random.choice(TEXTS)] = self._value()
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

    def _large(self, real):
        document = json.loads(json.dumps(real)) if isinstance(real, dict) else {}
        document.pop("invocation", None)
        value, kind = self._random.choice(LARGE), self._random.randrange(6)
        places = list(_places(document))
        if kind == 0:
            return self._random.choice(NOISE) * 2_500_000
        if kind == 2 or not places:
            return b"x\n" * (LONG // 2) + _bytes(document)
        holder, key = self._random.choice(places)
        if kind == 1:
            names = ("msg", "warnings", "ansible_facts", "exception", "stdout", "failed", "x")
            holder, key = document, self._random.choice(names)
        holder[key] = value
        return _bytes(document)

    def _damaged(self, data):
        """The bytes, some of them others."""
        place, kind = self._random.randrange(1, max(2, len(data))), self._random.randrange(5)
        if kind == 0:
            return data[:place]
        if kind == 1:
            inside = self._random.choice((b"\x1b[2J", b"\xff", b"\x00", b"\n", b"}", b'"', b"{", b"NaN", b"\\ud800"))
            return data[:place] + inside + data[place:]
        if kind == 2:
            return self._random.choice((b"Last login: now\n", b"\x1b]0;owned\x07\n", b"[1]\n", b"{\n")) + data
        if kind == 3:
            return data + b"\n" + self._random.choice((b"FORGED bye\n", b"\x1b[2J\n", b"{}", b"}\n", data))
        found = bytearray(data)
        for _again in range(5):
            found[self._random.randrange(len(found))] = self._random.randrange(256)
        return bytes(found)


def _bytes(document: t.Any) -> bytes:
    return b"\n" + json.dumps(document).encode("utf-8", "surrogatepass") + b"\n"


def _places(value):
    """(container, key) of each place in a document."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(min(50, len(value))):
            yield value, key
            yield from _places(value[key])
