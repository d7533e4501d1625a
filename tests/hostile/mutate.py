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

TEXTS = (
    "",
    " ",
    "\x1b[2J\x1b[1;1H\x1b]0;owned\x07",
    f"x\n{FORGED} PLAY RECAP ***\n{FORGED} honest1 : ok=9",
    f"\r{FORGED}\r\n{FORGED}",
    "\x00",
    "a\x00b",
    "\x7f\x9b31m\x85",
    "\u202eevil\u2066\u2069",
    "\u2028line\u2029",
    "\ud800",
    "\udfff\ud800",
    "\ufeff",
    "\U0001f4a9",
    "\t",
    f"{{{{ lookup('ansible.builtin.pipe', 'touch {PWNED}') }}}}",
    "{% for x in range(99999999) %}x{% endfor %}",
    "{{ 7 * 7 }}",
    "{{",
    "{#",
    "!unsafe x",
    f"$(touch {PWNED})",
    f"; touch {PWNED} #",
    f"`touch {PWNED}`",
    f"' || touch {PWNED} || '",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style></svg>",
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    'a,b;c\td"e',
    "|x|\n|y|",
    "# HELP x y",
    "../inventory/host_vars",
    "../../host_vars",
    "/etc",
    "/",
    ".",
    "..",
    "~",
    "~root",
    "-rf",
    "x/y",
    "host_vars\x00",
    "x" * 300,
    "../" * 50 + "tmp",
    "ansible.cfg",
    "r1\n",
    "r1",
    "honest1",
    "localhost",
    "all",
    "index",
    "results",
    "compare",
    "enabled",
    "disabled",
    "restored",
    "none",
    "null",
    "true",
    "0",
    "1",
    "0-65535",
    "0-99999999999",
    "3-1",
    "0-",
    ",,",
    "0-1,0-1",
    "0," * 1000,
    "65536",
    "-1",
    "٣",
    "²",
    "free_²",
    "free_" + "9" * 30,
    "1e999",
    "0x10",
    "9999-12-31T23:59:59Z",
    "0000-00-00T00:00:00Z",
    "1970-01-01T00:00:00+99:99",
    "2026-01-01",
    "completed",
    "failed",
    "drifted",
    "compliant",
    "unknown",
)
NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    10**400,
    -0.0,
    0.1,
    1e-100,
    1e308,
    -1e308,
    5e-324,
    float("nan"),
    float("inf"),
    float("-inf"),
    1.0000000000001,
)
PLAIN = (None, True, False, [], {}, [[]], [None], {"": None}, [True], {"a": {"b": {}}})

# What no module of ours says, and Ansible or the playbooks may believe.
EXTRA: tuple[tuple[str, t.Any], ...] = (
    ("failed", True),
    ("failed", "yes"),
    ("failed", {}),
    ("failed", 1),
    ("unreachable", True),
    ("unreachable", "x"),
    ("skipped", True),
    ("changed", "maybe"),
    ("changed", []),
    ("msg", None),
    ("msg", 5),
    ("msg", ["a"]),
    ("msg", {"a": 1}),
    ("rc", "x"),
    ("stdout", 5),
    ("stdout", "x\n" * 1000),
    ("stderr", []),
    ("results", "x"),
    ("results", [1]),
    ("results", [{"failed": True}]),
    ("item", "x"),
    ("invocation", 5),
    ("invocation", {"module_args": "x"}),
    ("compliance", {"status": "compliant"}),
    ("compliance", 5),
    ("compliance", []),
    ("compliance", {"status": "drifted", "change": {}}),
    ("exception", "\x1b[31mTrace"),
    ("exception", 5),
    ("warnings", ["\x1b]0;owned\x07"]),
    ("warnings", "x"),
    ("warnings", [5]),
    ("warnings", {"a": 1}),
    ("warnings", ["w"] * 2000),
    ("deprecations", [{"msg": "\x1b[2J"}]),
    ("deprecations", "x"),
    ("deprecations", [5]),
    ("deprecations", [{"msg": "x", "version": {}}]),
    ("diff", {"before": "\x1b[2J", "after": 5}),
    ("diff", "x"),
    (
        "add_host",
        {
            "host_name": "honest1",
            "groups": ["evil"],
            "host_vars": {"ansible_shell_executable": f"touch {PWNED}; /bin/sh"},
        },
    ),
    ("add_host", 5),
    ("add_host", {}),
    ("add_host", {"host_name": "evil-new", "groups": ["all"]}),
    ("add_group", "evil"),
    ("add_group", 5),
    ("parent_groups", ["honest1"]),
    ("ansible_stats", {"data": {"\x1b[2J": 1}, "per_host": False, "aggregate": True}),
    ("ansible_stats", 5),
    ("ansible_stats", {"data": 5}),
    ("_ansible_notify", ["x"]),
    ("_ansible_notify", 5),
    ("_ansible_no_log", True),
    ("_ansible_item_result", True),
    ("_ansible_verbose_always", True),
    ("_ansible_delegated_vars", {"ansible_host": "honest1"}),
    ("_ansible_facts_cacheable", True),
    ("_ansible_parsed", False),
    ("_ansible_ignore_errors", True),
    ("__ansible_type", "TrustedAsTemplate"),
    ("__ansible_type", "_AnsibleTaggedStr"),
    ("__ansible_unsafe", "x"),
    ("__ansible_vault", "x"),
    ("ansible_job_id", "\x1b[2J"),
    ("ansible_job_id", "../../x"),
    ("ansible_job_id", 5),
    ("ansible_job_id", f"j1; touch {PWNED}"),
    ("finished", {}),
    ("finished", "no"),
    ("finished", True),
    ("started", 5),
    ("results_file", "../x"),
    ("ansible_async_watchdog_pid", {}),
    ("ansible_module_results", 5),
    ("attempts", "x"),
    ("censored", "x"),
)
FACTS: tuple[tuple[str, t.Any], ...] = (
    ("ansible_connection", "local"),
    ("ansible_remote_tmp", f"{{{{ lookup('pipe', 'touch {PWNED}') }}}}"),
    ("ansible_shell_executable", f"touch {PWNED}; /bin/sh"),
    ("ansible_python_interpreter", f"touch {PWNED}; python3"),
    ("ansible_host", "honest1"),
    ("ansible_async_dir", "../inventory"),
    ("ansible_check_mode", False),
    ("ansible_become_exe", f"touch {PWNED}"),
    ("ansible_executable", f"touch {PWNED}; /bin/sh"),
    ("ansible_play_hosts_all", ["evil"]),
    ("ansible_play_hosts", []),
    ("inventory_hostname", "honest1"),
    ("hostvars", {}),
    ("groups", {}),
    ("group_names", []),
    ("omit", "x"),
    ("playbook_dir", "/"),
    ("ansible_facts", {}),
    ("smt_eval_dest", "inventory/host_vars"),
    ("smt_eval_dest", {}),
    ("smt_eval_run", "../../inventory"),
    ("__smt_eval_run", "../../inventory"),
    ("smt_eval_arms", ["smt_on", "smt_off"]),
    ("smt_eval_workloads", ["x"] * 50),
    ("smt_eval_custom", [{"argv": ["touch", PWNED]}]),
    ("smt_eval_budget", 10**9),
    ("smt_eval_run", ".."),
    ("smt_survey_page", "inventory/host_vars/honest1.yml"),
    ("smt_compliance_json", "ansible.cfg"),
    ("smt_compliance_page", "ansible.cfg"),
    ("smt_policy", "enabled"),
    ("smt_policy_scope", []),
    ("smt_policy_results", "/"),
    ("smt_policy_reboot_ok", True),
    ("smt_policy_group", "honest"),
    ("smt_policy_judged", {"compliance": 5}),
    ("smt_policy_before", {}),
    ("smt_enforce_waves", ["x"]),
    ("smt_enforce_max_fail_percentage", 100),
    ("smt_enforce_health_check", "/etc/passwd"),
    ("__smt_survey_facts", 5),
    ("__smt_policy_back", {"back_to": "/etc"}),
    ("__smt_enforce_done", True),
    ("smt_facts_sysroot", "../.."),
    ("smt_memory", 5),
    ("smt", 5),
    ("discovered_interpreter_python", "touch"),
    ("smt_report_results", ["/etc/passwd"]),
    ("smt_report_before", "/etc"),
    ("ansible_local", {"a": "\x1b"}),
    ("smt_runtime_rollback_after", "x"),
)

# Bytes for bytes: how a real answer is spoilt whatever it says.
WHOLE: tuple[bytes, ...] = (
    b"",
    b"\n",
    b"null",
    b"5",
    b"[]",
    b"{}",
    b'"x"',
    b"true",
    b"NaN",
    b"not json",
    b"{",
    b"}",
    b'{"a":',
    b'{"failed": true}',
    b'{"unreachable": true, "msg": "\\u001b[2J"}',
    b"\xff\xfe{\x00}\x00",
    b'\xef\xbb\xbf{"changed": false}',
    b"\x1b[2J\x1b]0;owned\x07",
    b"\x00" * 100,
    b'{"changed": false}\n{"changed": true}',
    b'{"changed": false}\nFORGED after\n\x1b[2J',
    b'FORGED before\n\x1b[2J\n{"changed": false}',
    b'{"changed": false} \x9b2J',
    b'{"ansible_facts": null}',
    b'{"ansible_facts": []}',
    b'{"ansible_facts": {"smt": null}}',
    b'{"ansible_facts": {"smt": []}}',
    b'{"ansible_facts": "x"}',
    b'{"ansible_facts": {"smt_memory": 5}}',
    b'{"a": ' * 900 + b"1" + b"}" * 900,
    b"[" * 100_000,
    b'{"a": ' * 100_000,
    b'{"ansible_facts": {"smt": ' + b"[" * 960 + b"]" * 960 + b"}}",
    b'{"ansible_facts": {"smt": {"x": ' + b"1" * 5000 + b"}}}",
    b'{"changed": ' + b"9" * 400 + b"}",
    b'{"changed": 1e400}',
    b'{"a": "\\ud800"}',
    b'{"\\ud800": 1}',
    b'{"ansible_facts": {"smt": {}, "smt": {"supported": {}}}}',
    b"/bin/sh: 1: python: not found",
    b'{"msg": "\\u001b[2J\\nFORGED", "failed": true}',
    b'{"msg": "MODULE FAILURE", "exception": "x\\nFORGED\\u001b[2J", "failed": true}',
)
MANY = 100_000
LONG = 1_000_000
NOISE = 20_000_000


class Mutator:
    """Makes answers of one seed.

    Args:
        seed: any text or number.
    """

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
            body, how = self._large(real), {}
        elif choose < 0.12 or not isinstance(real, dict):
            body, how = self._random.choice(WHOLE), {}
        elif choose < 0.22:
            body, how = self._damaged(_bytes(real)), {}
        else:
            body, how = _bytes(self._changed(real)), {}
        if self._random.random() < 0.08:
            how = self._manner()
        return Answer(body, how)

    def text_answer(self, real: str) -> Answer:
        """What is said instead of a text that is no answer of a module."""
        lines = real.split("\n")
        try:
            shown = json.loads(lines[0])
        except ValueError:
            shown = {}
        choose = self._random.random()
        if choose < 0.3:
            return Answer(self._random.choice(WHOLE), self._manner() if choose < 0.05 else {})
        return Answer(
            b"\n".join([_bytes(self._changed({**shown, **self._progress()})), *(line.encode() for line in lines[1:])])
        )

    def _progress(self):
        """A plan's progress while it measures."""
        metric = {"name": "throughput", "value": self._number(), "unit": self._random.choice(TEXTS)}
        return {
            "phase": self._random.choice(("measuring", "ended", *TEXTS)),
            "fraction": self._number(),
            "block": self._number(),
            "seconds_left": self._number(),
            "last": {
                "workload": "gzip",
                "placement": self._random.choice(("single", *TEXTS)),
                "arm": "as_found",
                "metric": metric,
            },
        }

    def _number(self):
        return self._random.choice((0.5, 3, *NUMBERS))

    def _manner(self):
        return self._random.choice(
            (
                {"exit": 1},
                {"exit": 255},
                {"exit": 137},
                {"signal": int(signal.SIGKILL)},
                {"signal": int(signal.SIGSEGV)},
                {"sleep": 2},
                {"stderr": "\x1b[2J\nFORGED\n", "exit": 3},
                {"stderr": "x" * 1000 + "\n", "stderr_times": 500, "exit": 2},
                {"times": 2},
                {"times": 0},
                {"times": 50},
            )
        )

    # Documents

    def _changed(self, real):
        document = json.loads(json.dumps(real))
        document.pop("invocation", None)
        for _again in range(self._random.choice((1, 1, 1, 2, 2, 3, 8))):
            document = self._once(document)
        return document

    def _once(self, document):
        choose = self._random.random()
        if choose < 0.25 and isinstance(document, dict):
            key, value = self._random.choice(EXTRA)
            document[key] = value
            return document
        if choose < 0.4 and isinstance(document, dict):
            facts = document.setdefault("ansible_facts", {})
            key, value = self._random.choice(FACTS)
            if isinstance(facts, dict):
                facts[key] = value
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
        elif change == 3:
            holder[key] = self._more(holder[key])
        else:
            holder[key] = self._value()
        return document

    def _value(self):
        kind = self._random.randrange(10)
        if kind < 5:
            return self._random.choice(TEXTS)
        if kind < 7:
            return self._random.choice(NUMBERS)
        if kind < 9:
            return json.loads(json.dumps(self._random.choice(PLAIN)))
        return [self._random.choice(TEXTS) for _one in range(self._random.choice((1, 3, 50)))]

    def _more(self, value):
        """The same, more of it."""
        times = self._random.choice((2, 30, 400))
        if isinstance(value, str):
            return value * times
        if isinstance(value, list):
            return (value or [None]) * times
        if isinstance(value, dict):
            kept = list(value.values()) or [None]
            return {
                **value,
                **{f"{self._random.choice(TEXTS)[:20]}{number}": kept[number % len(kept)] for number in range(times)},
            }
        return [value] * times

    def _large(self, real):
        """What costs far more to work with than to send."""
        document = json.loads(json.dumps(real)) if isinstance(real, dict) else {}
        document.pop("invocation", None)
        value = self._random.choice(
            (
                "x" * LONG,
                "\x1b" * LONG,
                "\U0001f4a9" * LONG,
                "0-65535," * 20_000,
                "{{ 1 }}" * MANY,
                "\n" * LONG,
                [0] * MANY,
                ["0-65535"] * 20,
                ["0-65535"] * 400,
                [{}] * MANY,
                [[]] * MANY,
                {str(number): "0-65535" for number in range(200)},
                {str(number): {} for number in range(MANY)},
                ["free_" + "9" * 30] * 1000,
                10**4000,
                [f"workload{number}" for number in range(4000)],
                _nested(300),
                _nested(963),
            )
        )
        kind = self._random.randrange(6)
        places = list(_places(document))
        if kind == 0:
            return self._random.choice((b"x", b"{", b"\n", b"\xf0\x9f\x92\xa9", b"{}\n", b"[[", b"\x1b[2J\n")) * (
                NOISE // 8
            )
        if kind == 1:
            return _bytes(
                {
                    **document,
                    self._random.choice(
                        ("msg", "warnings", "ansible_facts", "exception", "stdout", "failed", "x")
                    ): value,
                }
            )
        if kind == 2 or not places:
            return b"x\n" * (LONG // 2) + _bytes(document)
        holder, key = self._random.choice(places)
        holder[key] = value
        return _bytes(document)

    def _damaged(self, data):
        """The bytes, some of them others."""
        kind = self._random.randrange(5)
        place = self._random.randrange(1, max(2, len(data)))
        if kind == 0:
            return data[:place]
        if kind == 1:
            return (
                data[:place]
                + self._random.choice((b"\x1b[2J", b"\xff", b"\x00", b"\n", b"}", b'"', b"{", b"NaN", b"\\ud800"))
                + data[place:]
            )
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


def _nested(depth: int) -> t.Any:
    value: t.Any = 1
    for _again in range(depth):
        value = {"a": value}
    return value


def _places(value):
    """(container, key) of each place in a document."""
    if isinstance(value, dict):
        entries = list(value)
    elif isinstance(value, list):
        entries = list(range(len(value)))[:50]
    else:
        return
    for key in entries:
        yield value, key
        yield from _places(value[key])
