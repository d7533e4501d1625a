# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The border: what our own code says passes it on any machine; what no machine says does not,
and costs little to refuse.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers, facts, results, schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, policy, survey

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


def test_an_answer_keeps_its_fields_alone():
    beside = {"compliance": 5, "add_host": {"host_name": "x"}, "ansible_stats": {"data": 5}, "failed": False}
    found = answers.accept("smt_facts", "motd\n" + answer(**beside, _ansible_x=1, deprecations=[1]))
    assert set(found) == {"changed", "ansible_facts"}


@pytest.mark.parametrize("beside", [{"smt_survey_page": "inventory/host_vars/x.yml"}, {"ansible_connection": "local"}])
def test_facts_beside_our_own_are_refused(beside):
    with pytest.raises(text.BorderError, match="ansible_facts"):
        answers.accept("smt_facts", answer(ansible_facts={"smt": FACTS, **beside}))


def test_of_a_failure_nothing_is_kept_but_its_words():
    beside = {"verdict": {"status": "compliant"}, "unreachable": True, "exception": "Traceback\x1b[2J"}
    actual = answers.accept("smt_facts", answer(failed=True, msg=ESCAPE + "x" * 9000, **beside))
    assert set(actual) == {"failed", "msg", "exception"} and "\x1b" not in actual["exception"]
    assert actual["msg"].isprintable() and "web02" in actual["msg"] and len(actual["msg"]) < 5000


def test_a_refused_change_says_who_would_be_hurt():
    pinned = ["CPU 3: pid 812 sleep"]
    refused = {"failed": True, "msg": "1 conflict", "affinity_conflicts": pinned, "changed": True, "compliance": 5}
    actual = answers.accept("smt_state", json.dumps(refused))
    assert actual == {"failed": True, "msg": "1 conflict", "affinity_conflicts": pinned}
    with pytest.raises(text.BorderError, match="affinity_conflicts"):
        answers.accept("smt_state", json.dumps({**refused, "affinity_conflicts": [{}]}))


@pytest.mark.parametrize("said", ["yes", 1, [1], {"a": 1}])
def test_whatever_is_no_false_is_a_failure(said):
    assert answers.accept("smt_facts", answer(failed=said))["failed"] is True


def test_warnings_are_lines_for_a_terminal():
    actual = answers.accept("smt_facts", answer(warnings=[ESCAPE, {"msg": ESCAPE}, 7, *["x"] * 1000]))
    assert len(actual["warnings"]) == answers.MAX_WARNINGS and all(one.isprintable() for one in actual["warnings"])
    assert "warnings" not in answers.accept("smt_facts", answer(warnings=[None, 7, {"msg": None}, {}]))


def test_the_warning_of_a_real_module_arrives():
    """Modules of ansible-core 2.19 and later send the text inside of an event."""
    program = (
        "from ansible.module_utils import basic\n"
        "basic._ANSIBLE_ARGS = b'{\"ANSIBLE_MODULE_ARGS\": {}}'\n"
        "basic._ANSIBLE_PROFILE = 'legacy'\n"
        "module = basic.AnsibleModule({})\n"
        "module.warn('the disk is nearly full')\n"
        "module.exit_json(changed=False)\n"
    )
    printed = json.loads(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    )
    assert answers.accept("smt_facts", answer(warnings=printed["warnings"]))["warnings"] == ["the disk is nearly full"]
    assert "warnings" not in answers.accept("smt_facts", answer(warnings=[{"event": None}, {"event": {"msg": 7}}]))


@pytest.mark.parametrize("printed", ["", "sh: 1: python3: not found", "x" * 100, "}"])
def test_what_is_no_answer_is_recognised(printed):
    with pytest.raises(answers.NoAnswerError):
        answers.accept("smt_facts", printed)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("{" + '"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"a": NaN}', "finite"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 5000 + "}", "5000 digits"),
        ("{" + "x" * (9 * answers.MIB) + "}", "9 MiB long"),
        ('{"a": }', "not a complete JSON document"),
    ],
)
def test_what_is_not_sound_is_refused(printed, words):
    with pytest.raises(text.BorderError, match=words):
        answers.accept("smt_facts", printed)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sibling_groups": [EVERYTHING] * 20}, "more than 8192 CPUs"),
        ({"sibling_groups": ["0-1", "1-2"]}, "CPU 1 is named twice"),
        ({"nodes": {str(number): EVERYTHING for number in range(200)}}, "more than 8192 CPUs"),
        ({"nodes": {str(number): "0-8191" for number in range(200)}}, "nodes: .* more than 0 CPUs"),
        ({"packages": ["0-3", "3-7"]}, "CPU 3 is named twice"),
        ({"cpus": dict.fromkeys(("present", "possible", "online", "offline", "isolated"), EVERYTHING)}, "more than"),
        ({"hardware_class": {"a": 1}}, "hardware_class"),
        ({"hardware_class": 7}, "hardware_class"),
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
        answers.accept("smt_facts", with_facts(**changed))


def test_refusing_costs_little_memory():
    printed = with_facts(sibling_groups=[EVERYTHING] * 1000, nodes={str(number): EVERYTHING for number in range(1000)})
    tracemalloc.start()
    with pytest.raises(text.BorderError):
        answers.accept("smt_facts", printed)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * answers.MIB


def test_a_host_that_knows_nothing_passes():
    assert facts.accept(result_maker.nothing_known())["source"] == "unknown"


def refusal(document):
    with pytest.raises(results.ResultError) as caught:
        results.parse(json.dumps(document), "web01")
    assert str(caught.value).startswith("web01: ") and len(str(caught.value)) < 1000 and str(caught.value).isprintable()
    return str(caught.value)


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
    ("samples.0.placement", "packed_\u00b2", "placement"),
    ("samples.0.placement", "cpus" + 17 * "_1", "placement"),
    (f"{OF_SAMPLE}.value", 1e-100, "too close to zero"),
    (f"{OF_SAMPLE}.value", 1e308, f"{OF_SAMPLE}.value"),
    (f"{OF_SAMPLE}.unit", "furlongs", DECLARED.format("throughput")),
    (f"{OF_SAMPLE}.better", "lower", DECLARED.format("throughput")),
    ("samples.0.metrics", {"another": VALUE}, DECLARED.format("another")),
    ("samples.0.metrics", {"../x": VALUE}, "samples.0.metrics"),
    ("samples.0.metrics", {f"m{number}": VALUE for number in range(101)}, "samples.0.metrics"),
    ("samples.0.workload", "another", "the plan has no workload another"),
    ("samples.0.parameter", 1, "does not measure gzip at 1"),
    ("samples.0.workers", [{"cpus": "0," * 50_000, "value": 1}], "cpus"),
    ("samples.0.arm", "on", "the result has no arm on"),
    ("samples.0.arm", "../on", "samples.0.arm"),
    ("arms", [], ARMS),
    ("arms.1.baseline", True, ARMS),
    ("arms.0.baseline", False, ARMS),
    ("arms.1.name", "smt_on", ARMS),
    ("arms", [result_maker.arm(f"a{number}", "x", number == 0) for number in range(21)], "arms"),
    ("arms.0.settings", {"x": [1]}, "arms.0.settings.x"),
    ("arms.0.title", "", "arms.0.title"),
    ("plan.placements.another", {}, "plan.placements: the result has no arm another"),
    ("plan.switches", {"another": {"count": 1, "seconds": 0.5}}, "plan.switches: the result has no arm another"),
    ("plan.looks", looks((6, 0.2), (5, 0.3)), f"plan.looks.1{RISE}"),
    ("plan.looks", looks((6, 0.3), (8, 0.3)), f"plan.looks.1{RISE}"),
    ("plan.looks", looks((4, 0.0)), f"plan.looks.0{RISE}"),
    ("plan.workloads.0.primary", "latency", "gzip has no metric latency"),
    (f"{OF_PLAN}.better", "lower", "gzip has better lower instead of higher for throughput: a workload of this"),
    (f"{OF_PLAN}.unit", "s" * 3000, "gzip has unit sss"),
    (f"{OF_PLAN}.aggregate", "mean", "gzip has aggregate mean instead of sum for throughput"),
    ("plan.workloads.0.parameter", PARAMETER, "gzip has a parameter with name n instead"),
    ("plan.workloads.0.parameter", {**PARAMETER, "values": [1.0, 1.0000000000001]}, "is listed twice"),
    ("plan.workloads.0.parameter", {**PARAMETER, "values": [1, 1.0]}, "is listed twice"),
    ("plan.workloads", [{**WORKLOAD, "name": f"w{number}"} for number in range(4000)], "plan.workloads"),
    ("events.0.detail", [[[[]]]], "events.0.detail"),
    ("events.0.detail", {"a": {"b": 1}}, "events.0.detail"),
    ("ansible_remote_tmp", "{{ lookup('pipe', 'id') }}", "ansible_remote_tmp"),
    ("finished", "9999", "finished"),
    ("finished", "2026-02-31T00:00:00Z", "finished"),
    ("run", "../inventory/host_vars", "run"),
    ("environment.more", 1, "environment"),
    ("plan.more", 1, "plan"),
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


@pytest.mark.parametrize(
    ("depth", "words"), [(5, "facts.measured"), (900, "facts.measured"), (5000, "nested too deeply")]
)
def test_facts_that_are_nested_are_refused(depth, words):
    nested = '"measured": ' + '{"facts": ' * depth + "1" + "}" * depth
    printed = json.dumps(result_maker.result(blocks=1)).replace('"measured": null', nested)
    with pytest.raises(results.ResultError, match=words):
        results.parse(printed, "web01")


def test_a_refusal_has_no_cause_that_holds_what_was_refused():
    """Ansible prints the causes of a failure, too."""
    with pytest.raises(results.ResultError) as caught:
        results.parse(json.dumps(result_maker.result(blocks=1, message="x" * 1_000_000)), "web01")
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize("before", ["0-3", "", None])
def test_results_of_earlier_versions_lack_a_fact(before):
    assert "online_before" not in facts.accept(FACTS)
    facts.accept({**FACTS, "online_before": before})
    for wrong in ("0-x", "3-1", ["0"], 7):
        with pytest.raises(text.BorderError, match=r"^online_before: "):
            facts.accept({**FACTS, "online_before": wrong})


def test_a_documented_fact_needs_no_schema_of_its_own():
    known = schema.whole(a=schema.BOOL)
    found = facts.with_documented(
        known, {"a": {"type": "str"}, "b": {"type": "list"}, "c": {"type": "dict"}, "d": {"type": "str"}}
    )
    assert set(found["properties"]) == {"a", "b", "d"} and found["properties"]["a"] is schema.BOOL
    check = schema.Checker(found).check
    check({"a": True, "b": ["x"], "d": None})
    for wrong in ({"b": ["x" * 5000]}, {"b": [{"x": 1}]}, {"d": {"x": 1}}, {"c": {}}, {"d": "x" * 5000}):
        with pytest.raises(text.BorderError):
            check({"a": True, "b": [], "d": "", **wrong})


def test_a_new_fact_is_documented_and_read_and_that_is_all():
    """Results from before it are as good as ever, and what judges a host takes its facts with it and without it."""
    known = facts.with_documented(facts.SMT, {"microcode": {"type": "str", "description": "Such as V(0xf0)."}})
    assert (
        known["required"] == facts.SMT["required"]
        and known["properties"]["microcode"]["description"] == "Such as 0xf0."
    )
    check = schema.Checker(known).check
    before = FACTS
    check(before)
    for said in ("0xf0", None):
        after = {**before, "microcode": said}
        check(after)
        assert survey.row("web01", after) == survey.row("web01", before)
        wanted = policy.DesiredState("enabled")
        assert compliance.judge(after, wanted, policy.BOTH) == compliance.judge(before, wanted, policy.BOTH)
    for wrong in (7, ["0xf0"], {"revision": "0xf0"}):
        with pytest.raises(text.BorderError, match="microcode"):
            check({**before, "microcode": wrong})


@pytest.mark.parametrize(
    "registered",
    [
        {"failed": True, "msg": "no", "compliance": {"status": "compliant"}},
        {"compliance": 5},
        {"compliance": {"status": "compliant"}},
        {"failed": True, "compliance": 5},
        5,
        None,
        {"failed": True, "compliance": compliance.refused("x", compliance.COMPLIANT)},
    ],
)
def test_a_verdict_that_is_not_our_own_is_none(registered):
    assert compliance.from_registered(registered)["status"] == compliance.UNKNOWN
    own = compliance.refused("x", compliance.DRIFTED)
    assert compliance.from_registered({"changed": False, "compliance": own}) is own
