# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks that were thought of, each with a name: what one host answers, to which playbook."""

import dataclasses
import json
import typing as t

import arena
import recorded
import result_maker
from mutate import BELIEVED, FORGED, PWNED, nested
from recorded import COMPLIANCE, ENFORCE, EVALUATION, SURVEY, TRIAL

# Of the runs below, a second one that measures two hosts of each class.
SAMPLE = dataclasses.replace(EVALUATION, name="eval of a sample", arguments=("-e", "smt_eval_sample=2"))
DISPLAY = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
STEERS = f"{DISPLAY}\n{FORGED}"
LOOKUP = f"{{{{ lookup('ansible.builtin.pipe', 'touch {PWNED}') }}}}"
ALL_CPUS = "0-65535"
SHELL = f"touch {PWNED}; /bin/sh"

Answers = t.Mapping[str, arena.Answer]
Change = t.Callable[[t.Any], t.Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """An attack."""

    name: str
    play: arena.Play
    answers: t.Callable[[recorded.Recordings], Answers]
    alone: bool = False
    large: bool = False

    def __str__(self) -> str:
        return self.name.replace(" ", "_")


CASES: list[Case] = []


def cases(play: arena.Play, key: str, variants: t.Mapping[str, Change], **how: bool) -> None:
    """Cases that differ in what a function makes of the real answer to one call, of a name each."""
    for name, change in variants.items():

        def answers(recordings, change=change):
            reply = change(recordings.answer(play if play is not SAMPLE else EVALUATION, key))
            return {key: reply if isinstance(reply, arena.Answer) else arena.of(reply)}

        CASES.append(Case(f"{play.name}: {name}", play, answers, **how))


def case(name: str, play: arena.Play, answers: t.Callable[[recorded.Recordings], Answers]) -> None:
    """One of several answers, or to what is no module."""
    CASES.append(Case(name, play, answers))


def says(reply: t.Any) -> Change:
    """This, whatever the real answer is."""
    return lambda _real: reply


def fails(**what: t.Any) -> Change:
    """A failure."""
    return says({"failed": True, **what})


def added(**changes: t.Any) -> Change:
    """The real answer with more in it."""
    return lambda real: {**real, **changes}


def with_facts(**changes: t.Any) -> Change:
    """The real facts with others in their place."""
    return lambda real: {**real, "ansible_facts": {"smt": {**real["ansible_facts"]["smt"], **changes}}}


def beside_facts(**changes: t.Any) -> Change:
    """The real facts with others beside them, as variables of the host."""
    return lambda real: {**real, "ansible_facts": {**real["ansible_facts"], **changes}}


def of_memory(**changes: t.Any) -> Change:
    """The real facts of the memory with other wanted ones."""

    def change(real):
        memory = real["ansible_facts"]["smt_memory"]
        return {**real, "ansible_facts": {"smt_memory": {**memory, "wanted": {**memory["wanted"], **changes}}}}

    return change


def collected(facts: t.Mapping[str, t.Any] | None = None, **changes: t.Any) -> dict[str, t.Any]:
    """A result as a host with SMT gives it."""
    document = result_maker.result(run=arena.RUN, blocks=4)
    del document["host"]
    return {**document, "facts": {**document["facts"], **(facts or {})}, **changes}


def result(**changes: t.Any) -> Change:
    """A result with comparisons in it, and other fields."""
    return lambda _real: {"changed": False, "result": collected(**changes)}


def samples(change: t.Callable[[int, dict[str, t.Any]], t.Any]) -> Change:
    """A result whose samples are each changed in their place."""

    def changed(_real):
        found = collected()
        for number, sample in enumerate(found["samples"]):
            change(number, sample)
        return {"changed": False, "result": found}

    return changed


def scaled(value: float) -> Change:
    return samples(lambda _number, sample: sample["metrics"]["throughput"].update(value=value))


def with_event(detail: t.Any, times: int = 1) -> Change:
    return lambda _real: result(events=[{"at": None, "event": "x", "detail": detail}] * times)(None)


def adds(host: str, group: str) -> dict[str, t.Any]:
    """What an answer says to add a host to the inventory."""
    variables = {"ansible_shell_executable": SHELL}
    return {"changed": True, "add_host": {"host_name": host, "groups": [group], "host_vars": variables}}


VARIABLES = {"ansible_remote_tmp": LOOKUP, "ansible_connection": "local", "_meta": {"hostvars": {}}}
METRIC = {"name": "x", "unit": "x", "better": "higher", "clock": "wall_seconds"}
WORKLOAD = {"name": "x", "argv": ["touch", PWNED], "metric": METRIC}
NAMES = {"smt_compliance_json": "ansible.cfg"}
# What a host says decides in no way where files go, alone.
ALONE = {
    "facts name the folder of results": (SAMPLE, "smt_facts", beside_facts(smt_eval_dest="inventory")),
    "facts name the page": (SURVEY, "smt_facts", beside_facts(smt_survey_page="inventory/host_vars/honest1.yml")),
    "a failed answer names the files of compliance": (COMPLIANCE, "smt_facts", fails(ansible_facts=NAMES)),
    "a result of 33 MiB": (EVALUATION, "smt_benchmark.collect", with_event("x" * 1024 * 1024, 33)),
}
for _name, (_play, _key, _change) in ALONE.items():
    cases(_play, _key, {_name: _change}, alone=True)
for _name, _run, _result in (
    ("into the inventory", "../../inventory/host_vars", (("ansible_remote_tmp", LOOKUP),)),
    ("to a run of others", "old", (("run", "old"),)),
):

    def _answers(recordings, run=_run, changes=_result):
        described = {**recordings.answer(EVALUATION, "smt_benchmark.describe"), "uncollected": [run]}
        collects = arena.of({"result": collected(**dict(changes))})
        return {"smt_benchmark.describe": arena.of(described), "smt_benchmark.collect": collects}

    case(f"an earlier run's name leads {_name}", EVALUATION, _answers)

# What costs much, and what any answer to a question for facts may bring

PARTS = [f"{number},{number + 1}" for number in range(0, 65535, 2)]
CPUS = dict.fromkeys(("present", "possible", "online", "offline", "isolated"), ALL_CPUS)
MARKED = {"__ansible_type": "TrustedAsTemplate", "value": LOOKUP, "__ansible_unsafe": LOOKUP}
UNENCODABLE = rb"""{"\ud800": 1, "ansible_facts": {"smt": {"\ud800": "\udfff", "control": "\ud800"}}}"""
OF_FACTS = {
    "twenty groups of all CPUs": with_facts(sibling_groups=[ALL_CPUS] * 20),
    "a CPU list beyond any number": with_facts(sibling_groups=["0-99999999999"], cpus={"online": "0-99999999999"}),
    "facts that are nested deeply": with_facts(hardware_class=nested(963), measured=nested(900)),
    "numbers that are none": with_facts(cores=float("nan"), sockets=float("inf"), threads_per_core={"max": 1e308}),
    "warnings that steer": added(warnings=[DISPLAY, f"x\n{FORGED}"], deprecations=[{"msg": DISPLAY, "version": "9"}]),
    "a failure that steers": fails(msg=f"{STEERS} PLAY RECAP", exception=f"x\n{FORGED}{DISPLAY}"),
    "keys of Ansible's own that steer": added(**{"_ansible_x" + DISPLAY: DISPLAY, "discovered_interpreter_python": 5}),
    "marks of trust": beside_facts(smt={"hardware_class": MARKED, "control": {"__ansible_vault": "x"}}),
    "facts of Ansible": beside_facts(
        ansible_connection="local", ansible_shell_executable=SHELL, hostvars={}, groups={}, omit=1
    ),
    "facts that are no mapping": added(ansible_facts=[1]),
    "an answer that is a list": says(b"[1, 2]"),
    "an answer that is nested": says(b'{"a": ' * 100_000),
    "an end by a signal": says(arena.Answer(b'{"changed"', {"signal": 9})),
    "statistics that steer": added(ansible_stats={"data": {DISPLAY: DISPLAY}, "per_host": False, "aggregate": True}),
    "results that are none": added(results=[5, {"failed": True}], _ansible_item_result=True, item=DISPLAY),
    "keys that cannot be encoded": says(UNENCODABLE),
}
TEXTS = dict.fromkeys(("hardware_class", "control", "hypervisor"), "x" * 1_000_000)
LARGE = {
    "groups that part all CPUs": with_facts(sibling_groups=PARTS, cpus=CPUS),
    "a hundred thousand problems": with_facts(problems=["x" * 100] * 100_000),
    "a text of a megabyte in each place": with_facts(**TEXTS),
    "a number of 4000 digits": lambda real: json.dumps(with_facts(cores="@")(real)).replace('"@"', "9" * 4000).encode(),
    "a failure without end": fails(msg="x" * 5_000_000),
    "noise of 20 MB": says(arena.Answer(b"\xf0\x9f\x92\xa9 {\n" * 125_000, {"times": 20})),
    "an answer after 40 MB of noise": lambda real: b"x" * 40_000_000 + b"\n" + json.dumps(real).encode(),
    "2.5 GB of answers": lambda real: arena.Answer(json.dumps(real).encode().ljust(2_500_000) + b"\n", {"times": 1000}),
    "errors without end": says(arena.Answer(b"", {"stderr": "\x1b[2J" * 1000, "stderr_times": 5000, "exit": 1})),
    "an answer that is late": lambda real: arena.of(real, sleep=5),
}
for _play in (SURVEY, COMPLIANCE):
    cases(_play, "smt_facts", OF_FACTS)
    cases(_play, "smt_facts", LARGE, large=True)

# A result that ends the report, or costs much

ONLINE = {"ok": True, "before": {"control": "on", "online": [True]}, "after": {"control": "on", "online": [True]}}
ODD = {"ok": False, "before": {"control": "on", "online": [[], {}, None, "x", 1e308]}, "after": None}


def _of_4000_workloads(_real):
    document = collected()
    one = document["samples"][0]
    document["samples"] = [{**one, "workload": f"workload{number}", "index": number} for number in range(4000)]
    document["plan"]["workloads"] = [{"name": f"workload{number}"} for number in range(1000)]
    return {"result": document}


def _that_steers(_real):
    return {"result": {**json.loads(json.dumps(result_maker.hostile(DISPLAY + "<script>"))), "run": arena.RUN}}


# A failed answer with a status of its own

DRIFTED = {"status": "drifted", "sentence": 5, "change": {}, "running": 5, "hardware_class": [], "wanted": 1}
STATUSES = {"a half": {"status": "compliant"}, "a number as": 5, "a list as": ["compliant"], "a drifted": DRIFTED}
for _play in (COMPLIANCE, ENFORCE):
    for _name, _verdict in STATUSES.items():
        _ends = {kind: says({kind: True, "compliance": _verdict}) for kind in ("failed", "unreachable")}
        cases(_play, "smt_facts", {f"{kind} with {_name} status": change for kind, change in _ends.items()})
_NONE = """decided_by checked reboot_pending change pending_change pending_rollback running configured memory
    memory_configured"""
_SAID = {"status": "compliant", "sentence": BELIEVED, "wanted": "disabled", "scope": "both", "hardware_class": BELIEVED}
VERDICT = {**dict.fromkeys(_NONE.split()), **_SAID}
cases(COMPLIANCE, "smt_facts", {"failed with a complete verdict is not believed": fails(compliance=VERDICT)})

# What a host shows of its progress

PROGRESS = {"phase": "measuring", "fraction": 0.5, "block": 1, "seconds_left": 5, "arm": None, "last": None}
LAST = {"metric": {"name": DISPLAY, "value": 1, "unit": f"\n{FORGED}"}, "placement": DISPLAY}
SHOWN = {
    "steers": json.dumps({**PROGRESS, "phase": STEERS, "last": LAST}),
    "is nested": json.dumps({**PROGRESS, "last": nested(900)}),
    "is noise": "x" * 10_000_000,
    "is nothing": "",
    "is a list": "[" * 100_000,
}
for _field in ("fraction", "seconds_left", "block"):
    for _value in ("Infinity", "NaN", "9" * 400, "1e308", "9" * 5000):
        _number = _value if len(_value) < 9 else f"{len(_value)} digits"
        SHOWN[f"has {_field} of {_number}"] = json.dumps({**PROGRESS, _field: "@"}).replace('"@"', _value)
for _name, _text in SHOWN.items():
    _reply = arena.of(f"{_text}\nlives\n".encode())
    case(f"progress: it {_name}", EVALUATION, lambda _recordings, reply=_reply: {"look.1": reply})

# The answers to one call each

BEFORE = {"smt_policy_before": 5, "smt_enforce_health_check": "/etc/passwd", "__smt_enforce_done": True}
SETTING = {"name": DISPLAY, "value": 1, "at_boot": 1, "source": f"\n{FORGED}", "original": LOOKUP}
DIFF = {"before": FORGED, "after": DISPLAY, "before_header": LOOKUP, "after_header": DISPLAY}
CLASSES = {"a number": 5, "a mapping": {"a": 1}, "a list": [1], "true": True, "steering": DISPLAY, "empty": ""}
CLASSES |= {"a template": LOOKUP, "long": "x" * 100_000}
ATTACKS = {
    (EVALUATION, "smt_benchmark.describe"): {
        "an earlier run's name is a path": added(uncollected=[PWNED]),
        "an earlier run's name steers the terminal": added(uncollected=["x" + DISPLAY, f"x\n{FORGED}"]),
        "an earlier run's name is no text": added(uncollected=[{"a": 1}, 5, None, ["x"], "x\x00y", "x/y", "x" * 5000]),
        "an earlier run is the one that is asked for": added(uncollected=[arena.RUN, arena.RUN]),
        "thousands of earlier runs": added(uncollected=[f"earlier{number}" for number in range(3000)]),
        "an announcement steers the terminal": added(announcement=[DISPLAY, f"x\n{FORGED}", 5]),
        "the plan's folder leads elsewhere": added(directory=f"/tmp; touch {PWNED};"),
    },
    (SAMPLE, "smt_facts"): {
        "facts name the workloads": beside_facts(smt_eval_custom=[WORKLOAD]),
        # Of a class of its own: in that of the honest ones it would share their work, as any other host.
        "an answer adds a variable to an honest host": lambda real: {
            **with_facts(hardware_class="x86_64-1s1c2t-adjacent-00000000")(real),
            **adds("honest1", "evil"),
        },
        **{f"a hardware class that is {name}": with_facts(hardware_class=one) for name, one in CLASSES.items()},
        "facts of a sample that are no mapping": says({"ansible_facts": {"smt": [1]}}),
    },
    (EVALUATION, "smt_probe"): {
        "an answer adds a group": added(changed=True, add_group="evil", parent_groups=["x"]),
        "a probe's warning steers": added(warnings=[DISPLAY]),
    },
    (EVALUATION, "smt_benchmark.collect"): {
        "a result of another run": result(run="another"),
        "a result with variables of Ansible": result(**VARIABLES),
        "a result with hundreds of groups": result(facts={"sibling_groups": [ALL_CPUS] * 400}),
        "a result with two hundred memory nodes": result(facts={"nodes": {str(one): ALL_CPUS for one in range(200)}}),
        **{
            f"a result with facts that are nested {depth} deep": result(facts={"measured": nested(depth)})
            for depth in (100, 900, 960, 966, 972, 975, 985)
        },
        "a result with events that are nested deeply": with_event(nested(960)),
        "a result with an environment that is nested": result(environment={"busy": None, "x": nested(960)}),
        "a result with 4000 workloads": _of_4000_workloads,
        "a CPU that is online is true": result(restored={**ONLINE, "differences": []}),
        "CPUs online that are anything": result(restored={**ODD, "differences": []}),
        "a placement of streams with 30 digits": samples(lambda _one, it: it.update(placement="free_" + "9" * 30)),
        **{f"values of {value}": scaled(value) for value in (1e-100, 9e18, -1.0, 0.0)},
        "parameter values that are nearly one": samples(lambda one, it: it.update(parameter=1.0 + one % 2 * 1e-13)),
        "no samples": result(samples=[]),
        "samples of blocks without end": samples(lambda one, it: it.update(block=10**9 - one)),
        "a plan of nothing": result(plan={}),
        "moments that are none": result(started="0000", finished="9999-12-31T23:59:59+99:99"),
        "texts that steer": _that_steers,
    },
    (EVALUATION, "async_wrapper"): {
        "a job's name is a path": added(ansible_job_id="../../../x"),
        "a job's name is a command": added(ansible_job_id=f"x; touch {PWNED}"),
        "a job's name steers": added(ansible_job_id=DISPLAY),
        "a job's name is no text": added(ansible_job_id={"a": [1]}),
        "a job that does not begin and steers": fails(msg=STEERS),
        "a job that is noise": says(b"\x1b[2J" * 1000),
    },
    (EVALUATION, "async_status.status"): {
        "a job's end is a mapping": added(finished={"a": 1}),
        "a job failed and steers": fails(finished=1, msg=STEERS, exception=DISPLAY),
        "a job's message steers": added(message=STEERS),
    },
    (ENFORCE, "smt_state"): {
        "a change that steers": fails(msg=STEERS),
        "a change that waits for a mapping": added(rollback_pending={"a": 1}),
        "a change that lacks all": says({}),
        "a change with facts": added(ansible_facts=BEFORE),
        "a change that adds a host": added(**adds("honest2", "all")),
    },
    (ENFORCE, "smt_memory_facts"): {
        "a hundred thousand sysctls": of_memory(sysctls={f"kernel.{number}": 1 for number in range(100_000)}),
        "sysctls that steer": of_memory(sysctls={STEERS: LOOKUP, "kernel.panic": 5}),
        "memory that is anything": says({"ansible_facts": {"smt_memory": {"wanted": 5, "protect_differences": "x"}}}),
    },
    (ENFORCE, "smt_memory"): {
        "memory settings that steer": added(settings=[SETTING], protected=[LOOKUP]),
        "memory facts from a module that has none": added(ansible_facts={**BEFORE, "smt_memory": {"wanted": 5}}),
    },
    (ENFORCE, "smt_boot_args"): {
        "found arguments that steer": added(found=[{"argument": DISPLAY, "where": f"\n{FORGED}"}]),
    },
    (ENFORCE, "smt_rollback"): {
        "a saved state that steers": added(back_to=DISPLAY + LOOKUP + f"\n{FORGED}"),
        "a saved state that is none": added(back_to={"a": 1}, not_back=5),
        "what could not be put back, without end": added(not_back=[DISPLAY] * 100_000),
        "a saved state with a diff that steers": added(diff=[DIFF]),
    },
    # What a host of a trial is asked before the design is drawn.
    (TRIAL, "smt_facts"): {
        "a class of a trial that steers the terminal": with_facts(hardware_class=DISPLAY),
        "all CPUs there can be in a trial": with_facts(cpus={**CPUS, "offline": "", "isolated": ""}),
        "variables beside the facts of a trial": beside_facts(smt_trial_most_switched="100%", ansible_forks=1),
        "a trial's facts without end": lambda real: arena.of(real, times=2000),
    },
    (TRIAL, "smt_state"): {
        "a refusal of an arm that steers the terminal": fails(msg=DISPLAY + LOOKUP + FORGED),
        "a refusal of an arm without end": fails(msg="x" * 10_000_000),
        "an arm whose state is no state": added(after={"control": DISPLAY, "active": "x", "online": "all"}),
        "an arm that is answered by nothing": says(b""),
    },
}
for (_play, _key), _variants in ATTACKS.items():
    cases(_play, _key, _variants)
TIMERS = {
    "without end": arena.Answer(b"x" * 1_000_000, {"times": 300}),
    "that steers the terminal": arena.Answer((DISPLAY + LOOKUP).encode(), {"stderr": DISPLAY, "exit": 0}),
}
for _name, _reply in TIMERS.items():
    case(f"a look at the rollback timer {_name}", TRIAL, lambda _recordings, reply=_reply: {"rollback": reply})
