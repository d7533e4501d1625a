# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The border: what our own code says passes it on any machine, what no machine says does not; and its schemas."""

from __future__ import annotations

import copy
import importlib
import json
import pathlib
import random
import re
import subprocess
import sys
import tracemalloc
from typing import Annotated, Literal

import answer_maker
import jsonschema_rs
import night
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins import plugin_utils
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import (
    answers,
    facts,
    parts,
    results,
    schema,
    text,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, policy, survey
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status
from hypothesis import given, settings, strategies as st

ESCAPE = "\x1b[2J\x9b\u202e\nweb02 : ok=9"
EVERYTHING = "0-65535"


RESULT = result_maker.result(blocks=1)
FACTS, WORKLOAD = RESULT["facts"], RESULT["plan"]["workloads"][0]


def answer(**changed):
    """What smt_facts prints."""
    actual = {"changed": False, "ansible_facts": {"smt": FACTS}, "invocation": {"module_args": {"sysroot": "/"}}}
    return json.dumps({**actual, **changed})


def with_facts(**changed):
    return answer(ansible_facts={"smt": {**FACTS, **changed}})


def test_an_answer_keeps_its_fields_alone_and_facts_beside_our_own_are_refused():
    beside = {"compliance": 5, "add_host": {"host_name": "x"}, "ansible_stats": {"data": 5}, "failed": False}
    found = answer_maker.accepted("smt_facts", "motd\n" + answer(**beside, _ansible_x=1, deprecations=[1]))
    assert set(found) == {"changed", "ansible_facts"}
    for more in ({"smt_survey_page": "inventory/host_vars/x.yml"}, {"ansible_connection": "local"}):
        with pytest.raises(text.BorderError, match="ansible_facts"):
            answer_maker.accepted("smt_facts", answer(ansible_facts={"smt": FACTS, **more}))


def test_of_a_failure_nothing_is_kept_but_its_words_and_the_affinity_conflicts():
    beside = {"verdict": {"status": "compliant"}, "unreachable": True, "exception": "Traceback\x1b[2J"}
    for said in (True, "yes", 1, [1], {"a": 1}):
        actual = answer_maker.accepted("smt_facts", answer(failed=said, msg=ESCAPE + "x" * 9000, **beside))
        assert set(actual) == {"failed", "msg", "exception"} and "\x1b" not in actual["exception"]
        assert actual["msg"].isprintable() and "web02" in actual["msg"] and len(actual["msg"]) < 5000
        assert actual["failed"] is True
    pinned = {"failed": True, "msg": "1 conflict", "affinity_conflicts": ["CPU 3: pid 812 sleep"]}
    assert answer_maker.accepted("smt_state", json.dumps({**pinned, "changed": True, "compliance": 5})) == pinned
    with pytest.raises(text.BorderError, match="affinity_conflicts"):
        answer_maker.accepted("smt_state", json.dumps({**pinned, "affinity_conflicts": [{}]}))


def test_warnings_are_lines_for_a_terminal_and_that_of_a_real_module_arrives():
    """Modules of ansible-core 2.19 and later send the text inside of an event."""
    actual = answer_maker.accepted("smt_facts", answer(warnings=[ESCAPE, {"msg": ESCAPE}, 7, *["x"] * 1000]))
    assert len(actual["warnings"]) == answers.MAX_WARNINGS and all(one.isprintable() for one in actual["warnings"])
    for odd in (None, 7, {"msg": None}, {}, {"event": None}, {"event": {"msg": 7}}):
        assert "warnings" not in answer_maker.accepted("smt_facts", answer(warnings=[odd]))
    program = (
        "from ansible.module_utils import basic\n"
        "basic._ANSIBLE_ARGS = b'{\"ANSIBLE_MODULE_ARGS\": {}}'\n"
        "basic._ANSIBLE_PROFILE = 'legacy'\n"
        "module = basic.AnsibleModule({})\n"
        "module.warn('the disk is nearly full')\n"
        "module.exit_json(changed=False)\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    warnings = json.loads(printed)["warnings"]
    assert answer_maker.accepted("smt_facts", answer(warnings=warnings))["warnings"] == ["the disk is nearly full"]


def test_what_is_no_answer_is_recognised_and_what_is_not_sound_is_refused():
    for printed in ("", "sh: 1: python3: not found", "x" * 100, "}"):
        with pytest.raises(answers.NoAnswerError):
            answer_maker.accepted("smt_facts", printed)
    for printed, words in (
        ("{" + '"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"a": NaN}', "finite"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 5000 + "}", "5000 digits"),
        ("{" + "x" * (9 * answers.MIB) + "}", "9 MiB long"),
        ('{"a": }', "not a complete JSON document"),
    ):
        with pytest.raises(text.BorderError, match=words):
            answer_maker.accepted("smt_facts", printed)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sibling_groups": [EVERYTHING] * 20}, "more than 8192 CPUs"),
        ({"sibling_groups": ["0-1", "1-2"]}, "CPU 1 is named twice"),
        ({"nodes": {str(number): "0-8191" for number in range(200)}}, "nodes: .* more than 0 CPUs"),
        ({"packages": ["0-3", "3-7"]}, "CPU 3 is named twice"),
        ({"cpus": dict.fromkeys(("present", "possible", "online", "offline", "isolated"), EVERYTHING)}, "more than"),
        ({"hardware_class": {"a": 1}}, "hardware_class"),
        ({"hardware_class": "x86_64-1s4c8t-split-0f3a9c1e"}, "not the class of the machine that these facts show"),
        ({"more": 1}, "more"),
        ({"problems": ["x"] * 2000}, "problems"),
        ({"control": None}, "control"),
        ({"sockets": -1}, "sockets"),
        ({"cores": True}, "cores"),
        ({"vulnerabilities": {"a\nb": {"status": "", "smt": None}}}, "vulnerabilities"),
        ({"measured": {"pairs": []}}, "measured"),
    ],
)
def test_facts_of_no_machine_are_refused(changed, words):
    with pytest.raises(text.BorderError, match=words):
        answer_maker.accepted("smt_facts", with_facts(**changed))


def test_refusing_costs_little_memory_and_a_host_that_knows_nothing_passes():
    printed = with_facts(sibling_groups=[EVERYTHING] * 1000, nodes={str(number): EVERYTHING for number in range(1000)})
    tracemalloc.start()
    with pytest.raises(text.BorderError):
        answer_maker.accepted("smt_facts", printed)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * answers.MIB
    assert facts.made(result_maker.nothing_known()).source == "unknown"


def looks(*given):
    return [{"blocks": blocks, "share": share} for blocks, share in given]


VALUE, ARMS = {"value": 1, "unit": "s", "better": "lower"}, "arms: it must name each arm once"
PARAMETER = {"name": "n", "unit": None, "values": [1], "per_worker": False}
OF_SAMPLE, OF_PLAN = "samples.0.metrics.throughput", "plan.workloads.0.metrics.throughput"
DECLARED, RISE = "does not declare the metric {} like this", ": blocks and share have to rise from look to look"
NO_RESULTS = [
    ("restored.before.online", [True], "restored.before.online.0"),
    ("restored.before.online", EVERYTHING, "restored.before.online"),
    ("samples.0.placement", "free_" + "9" * 30, "placement"),
    ("samples.0.placement", "cpus" + 17 * "_1", "placement"),
    (f"{OF_SAMPLE}.value", 1e-100, "too close to zero"),
    (f"{OF_SAMPLE}.value", 1e308, f"{OF_SAMPLE}.value"),
    (f"{OF_SAMPLE}.unit", "furlongs", DECLARED.format("throughput")),
    (f"{OF_SAMPLE}.better", "lower", DECLARED.format("throughput")),
    ("samples.0.metrics", {"another": VALUE}, DECLARED.format("another")),
    ("samples.0.metrics", {f"m{number}": VALUE for number in range(101)}, "samples.0.metrics"),
    ("samples.0.workload", "another", "the plan has no workload another"),
    ("samples.0.parameter", 1, "does not measure gzip at 1"),
    ("samples.0.workers", [{"cpus": "0," * 50_000, "value": 1}], "cpus"),
    ("samples.0.arm", "on", "the result has no arm on"),
    ("arms", [], ARMS),
    ("arms.1.name", "smt_on", ARMS),
    ("arms", [result_maker.arm(f"a{number}", "x", number == 0) for number in range(21)], "arms"),
    ("arms.0.settings", {"x": [1]}, "arms.0.settings.x"),
    ("arms.0.title", "", "arms.0.title"),
    ("plan.placements.another", {}, "plan.placements: the result has no arm another"),
    ("plan.switches", {"another": {"count": 1, "seconds": 0.5}}, "plan.switches: the result has no arm another"),
    ("plan.looks", looks((6, 0.3), (8, 0.3)), f"plan.looks.1{RISE}"),
    ("plan.looks", looks((4, 0.0)), f"plan.looks.0{RISE}"),
    ("plan.workloads.0.primary", "latency", "gzip has no metric latency"),
    (f"{OF_PLAN}.better", "lower", "gzip has better lower instead of higher for throughput: a workload of this"),
    (f"{OF_PLAN}.unit", "s" * 3000, "gzip has unit sss"),
    ("plan.workloads.0.parameter", PARAMETER, "gzip has a parameter with name n instead"),
    ("plan.workloads.0.parameter", {**PARAMETER, "values": [1.0, 1.0000000000001]}, "is listed twice"),
    ("plan.workloads.0.parameter", {**PARAMETER, "values": [1, 1.0]}, "is listed twice"),
    ("plan.workloads", [{**WORKLOAD, "name": f"w{number}"} for number in range(4000)], "plan.workloads"),
    ("events.0.detail", {"a": {"b": 1}}, "events.0.detail"),
    ("ansible_remote_tmp", "{{ lookup('pipe', 'id') }}", "ansible_remote_tmp"),
    ("finished", "2026-02-31T00:00:00Z", "finished"),
    ("run", "../inventory/host_vars", "run"),
    ("environment.more", 1, "environment"),
    ("schema_version", True, "schema_version"),
]


@pytest.mark.parametrize(("where", "value", "words"), NO_RESULTS, ids=range(len(NO_RESULTS)))
def test_a_result_of_no_host_is_refused(where, value, words):
    document = result_maker.result(blocks=1)
    *way, last = [int(part) if part.isdigit() else part for part in where.split(".")]
    at = document
    for part in way:
        at = at[part]
    at[last] = value
    with pytest.raises(results.ResultError) as caught:
        results.parse(json.dumps(document), "web01")
    said = str(caught.value)
    assert said.startswith("web01: ") and len(said) < 1000 and said.isprintable() and words in said


def test_facts_that_are_nested_are_refused_and_a_refusal_has_no_cause_that_holds_what_was_refused():
    """Ansible prints the causes of a failure, too."""
    for depth, words in ((5, "facts.measured"), (900, "facts.measured"), (5000, "nested too deeply")):
        nested = '"measured": ' + '{"facts": ' * depth + "1" + "}" * depth
        with pytest.raises(results.ResultError, match=words) as caught:
            results.parse(json.dumps(RESULT).replace('"measured": null', nested), "web01")
        assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_results_of_earlier_versions_lack_a_fact():
    # Neither does what is written again have it.
    for of_version in (FACTS, *({**FACTS, "online_before": before} for before in ("0-3", "", None))):
        assert parts.plain(facts.made(of_version)) == of_version
    for wrong in ("0-x", "3-1", ["0"], 7):
        with pytest.raises(text.BorderError, match=r"^online_before: "):
            facts.made({**FACTS, "online_before": wrong})


def test_facts_that_ansible_kept_are_those_of_the_host_or_refused():
    class Tagged(str):
        """As ansible-core 2.19 has texts that it made of templates."""

        __slots__ = ()

    kept = {Tagged(name): Tagged(value) if isinstance(value, str) else value for name, value in FACTS.items()}
    assert facts.of_answer({"ansible_facts": {"smt": kept}}) == facts.made(FACTS)
    for nothing in (None, "x", {}, {"failed": True, "msg": "gone"}, {"ansible_facts": {"motd": 1}}):
        assert facts.of_answer(nothing) is None
    for wrong in (None, [], {}, {**FACTS, "cores": "4"}, {**FACTS, "sibling_groups": ["0-1", "1-2"]}):
        with pytest.raises(text.BorderError):
            facts.of_answer({"ansible_facts": {"smt": wrong}})


def test_a_new_fact_is_documented_and_read_and_that_is_all():
    """Results from before it are as good as ever, and what judges a host takes its facts with it and without it."""
    new = {"microcode": {"type": "str", "description": "Such as V(0xf0)."}, "more": {"type": "list"}}
    kind = parts.with_documented(facts.Facts, {**new, "less": {"type": "dict"}}, facts.BY_TYPE)
    known, wanted = parts.schema_of(kind), policy.DesiredState("enabled")
    assert known["required"] == parts.schema_of(facts.Facts)["required"] and "less" not in known["properties"]
    assert known["properties"]["microcode"]["description"] == "Such as 0xf0."
    before = parts.converted(FACTS, kind)
    assert parts.plain(before) == FACTS
    for said in ("0xf0", None):
        after = parts.converted({**FACTS, "microcode": said, "more": ["x"]}, kind)
        assert survey.row("web01", after) == survey.row("web01", before)
        assert compliance.judge(after, wanted, policy.BOTH) == compliance.judge(before, wanted, policy.BOTH)
    wrong = [("microcode", one) for one in (7, ["0xf0"], {"revision": "0xf0"}, "x" * 5000)]
    for name, value in (*wrong, ("more", ["x" * 5000]), ("more", [{"x": 1}])):
        with pytest.raises(text.BorderError, match=name):
            parts.converted({**FACTS, name: value}, kind)


def test_a_verdict_that_is_not_our_own_is_none():
    own = compliance.refused("x", Status.DRIFTED)
    of_others = {"failed": True, "compliance": own.described()}
    for registered in (of_others, {"compliance": 5}, {"compliance": {"status": "compliant"}}, 5, None):
        assert compliance.from_registered(registered).status is Status.UNKNOWN
    assert compliance.from_registered({"changed": False, "compliance": own.described()}) == own


# What is known to be checked; a slip in a keyword would be a limit that nothing checks.
KEYWORDS = {
    *("$schema", "$id", "title", "description", "type", "const", "enum"),
    *("required", "properties", "additionalProperties", "propertyNames", "maxProperties"),
    *("items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern"),
    *("minimum", "exclusiveMinimum", "maximum", "anyOf"),
}
TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}
# What means the same in every dialect of regular expressions, once the classes of characters are taken out.
PORTABLE = re.compile(r"\^(?:\\\.|[^\\.^$])*\$")
CLASS = re.compile(r"\[(?:[^\]\\]|\\n)*\]")


def schemas():
    """All schemas by which something is checked, also those that only a function has."""
    (root,) = plugin_utils.__path__
    for path in sorted(pathlib.Path(root).rglob("*.py")):
        importlib.import_module(".".join([plugin_utils.__name__, *path.relative_to(root).with_suffix("").parts]))
    kinds = [parts.Part]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return [parts.schema_of(kind) for kind in kinds]


def parts_of(one):
    """A schema and all schemas within it."""
    inner = [*one.get("properties", {}).values(), *one.get("prefixItems", ())]
    inner += one.get("anyOf", [])
    inner += [one[key] for key in ("items", "additionalProperties", "propertyNames") if isinstance(one.get(key), dict)]
    return [one, *(part for each in inner for part in parts_of(each))]


PARTS = [part for one in schemas() for part in parts_of(one)]
PATTERNS = sorted({part["pattern"] for part in PARTS if "pattern" in part})


def test_every_schema_says_only_what_is_checked():
    assert {"counted_from", "units", "ansible_facts"} <= {name for part in PARTS for name in part.get("properties", {})}
    for part in PARTS:
        types = part.get("type", [])
        assert {key for key in part if not key.startswith("x-")} <= KEYWORDS, part
        assert set([types] if isinstance(types, str) else types) <= TYPES, part
        assert not any(isinstance(one, (dict, list)) for one in part.get("enum", ())), part


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_the_same_everywhere(pattern):
    assert PORTABLE.fullmatch(CLASS.sub("x", pattern)) and "(?" not in pattern
    # The end of a text is \Z in Python, where $ may also be before a last newline.
    python = re.compile(rf"{pattern[:-1]}\Z")
    kind = Annotated[str, parts.text_of(None, pattern)]

    @settings(max_examples=night.number(6, 25), deadline=None, database=None, derandomize=True)
    @given(st.from_regex(python) | st.from_regex(pattern) | st.text(max_size=6))
    def compare(value):
        # Half a pair is refused before anything else is asked.
        value = value.encode("utf-8", "replace").decode()
        assert accepts(kind, value) == bool(python.search(value)), value

    compare()


def accepts(kind, value):
    try:
        parts.converted(value, kind)
    except text.BorderError:
        return False
    return True


class Made(parts.Part):
    """A part with a limit of each kind."""

    a: Annotated[int, parts.between(0, 5)] | None
    b: Annotated[str, parts.text_of(3, "^[a-z]*$")] | parts.Unset = parts.UNSET


MAPPING = Annotated[dict[Annotated[str, parts.text_of(None, "^[a-z]$")], Made], parts.at_most(2)]
FLAGS = Annotated[tuple[bool, ...], parts.from_to(1, 2)]
WORD = Literal["x"] | None


@pytest.mark.parametrize(
    ("one", "value", "said"),
    [
        (Made, [], "the document: expected `object`, got `array`"),
        (Made, {"b": ""}, "the document: object missing required field `a`"),
        (Made, {"a": 1, "more": 2}, "the document: object contains unknown field `more`"),
        (Made, {"a": -1}, "a: expected `int` >= 0"),
        (Made, {"a": 10**99}, "a: expected `int` <= 5"),
        (Made, {"a": True}, "a: expected `int | null`, got `bool`"),
        (Made, {"a": 1.5}, "a: expected `int | null`, got `float`"),
        (Made, {"a": 1, "b": "xxxx"}, "b: expected `str` of length <= 3"),
        (Made, {"a": 1, "b": "x\n"}, r"b: expected `str` matching regex '^[a-z]*\\Z'"),
        (WORD, 1, "the document: expected `str | null`, got `int`"),
        (WORD, "y", "the document: invalid enum value 'y'"),
        (MAPPING, {"k": {"a": 1}, "l": {"a": "1"}}, "l.a: expected `int | null`, got `str`"),
        (MAPPING, {key: {"a": 1} for key in "klm"}, "the document: expected `object` of length <= 2"),
        (MAPPING, {"K": {"a": 1}}, r"the document: expected `str` matching regex '^[a-z]\\Z'"),
        (FLAGS, [True, False, True], "the document: expected `array` of length <= 2"),
        (FLAGS, [True, 0], "1: expected `bool`, got `int`"),
        (FLAGS, [], "the document: expected `array` of length >= 1"),
        (tuple[bool, str], [True, 1], "1: expected `str`, got `int`"),
        (tuple[bool, str], [], "the document: expected `array` of length 2, got 0"),
        (Annotated[float, parts.above(0, 1)], 0.0, "the document: expected `float` > 0.0"),
    ],
)
def test_what_is_refused_is_said_with_its_place_and_the_reason(one, value, said):
    with pytest.raises(text.BorderError) as caught:
        parts.converted(value, one)
    assert str(caught.value) == said


def test_what_is_at_a_limit_passes_and_a_long_value_hides_no_reason_and_is_shown_escaped():
    evil = "\x9b\u202e" * 9000
    limits = (Made, {"a": 5, "b": "xxx"}), (Annotated[str, parts.at_most(2)], "😀😀"), (answers.Flag, True)
    for one, value in (*limits, (answers.Flag, 1), (parts.Number, -(2.0**62))):
        parts.converted(value, one)
    for one, value, reason in (
        (Annotated[str, parts.at_most(300)], "x" * 9000, "`str` of length <= 300"),
        (MAPPING, {evil: {"a": 1}}, "matching regex"),
        (bool, evil, "expected `bool`"),
        (WORD, evil, "invalid enum value"),
        (Made, {"a": 1, evil: 1}, "object contains unknown field"),
    ):
        with pytest.raises(text.BorderError) as caught:
            parts.converted(value, one)
        said = str(caught.value)
        assert reason in said and said.isprintable() and len(said) < 250


def replaced(data, at, value):
    if not at:
        return value
    data = copy.deepcopy(data)
    inner = data
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return data


def places(data, at=()):
    """The paths of all values."""
    known = [at]
    for key, one in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        known += places(one, (*at, key))
    return known


def test_the_place_is_the_one_that_another_library_names():
    """The place is looked for step by step, and jsonschema-rs, asked for the whole document, says the same."""
    whole = json.loads(json.dumps(result_maker.result(blocks=1, shape=(1, 2, 2))))
    library = jsonschema_rs.Draft202012Validator(results.SCHEMA)
    parts.converted(whole, HostResult)
    source, refused = random.Random(17), 0
    for at in source.choices(places(whole), k=night.number(25, 100)):
        wrong = replaced(whole, at, source.choice([None, True, -1, 10**90, "", "a\n", [], {}, [None], {"": 0}]))
        errors = {".".join(map(str, one.instance_path)) or "the document" for one in library.iter_errors(wrong)}
        if errors:
            refused += 1
            with pytest.raises(text.BorderError) as caught:
                parts.converted(wrong, HostResult)
            # Of a wrong key with a wrong value the library names the object.
            place = str(caught.value).partition(": ")[0]
            assert place in errors or place.rpartition(".")[0] in errors
        else:
            parts.converted(wrong, HostResult)
    assert 5 < refused < 100


def test_what_is_not_json_or_nested_deeply_is_refused_and_without_the_library_nothing_passes(monkeypatch):
    for value in (float("nan"), float("inf"), -float("inf"), b"x", {1: 2}):
        with pytest.raises(text.BorderError):
            parts.converted(value, parts.Number | parts.Text | MAPPING | None)
    deep = []
    for _level in range(50_000):
        deep = [deep]
    with pytest.raises(text.BorderError, match=r"^a\.0: expected `str`, got `array`$"):
        parts.converted({"a": [deep]}, dict[str, list[parts.Text]])
    lost = ModuleNotFoundError("No module named 'msgspec'", name="msgspec")
    monkeypatch.setattr(schema, "MISSING_LIBRARY", lost)
    with pytest.raises(ModuleNotFoundError):
        parts.converted(True, bool)
