# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attacks that were thought of, each with a name: what one host answers, to which playbook."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import arena
import recorded
import result_maker
from mutate import BELIEVED, FORGED, PWNED

# Of the runs below, a second one that measures two hosts of each class.
SAMPLE = dataclasses.replace(recorded.EVALUATION, name="eval of a sample", arguments=("-e", "smt_eval_sample=2"))
DISPLAY = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
LOOKUP = f"{{{{ lookup('ansible.builtin.pipe', 'touch {PWNED}') }}}}"
ALL_CPUS = "0-65535"

Answers = t.Mapping[str, arena.Answer]


@dataclasses.dataclass(frozen=True)
class Case:
    """An attack.

    Attributes:
        row: of the table of what was found first; None for one that came later.
        answers: made from the recordings when they are there.
        alone: whether it has to be the first host of all, by whose variables the tasks for all are done, or is large.
    """

    name: str
    row: int | None
    play: arena.Play
    answers: t.Callable[[recorded.Recordings], Answers]
    alone: bool = False

    def __str__(self) -> str:
        return self.name.replace(" ", "_")


CASES: list[Case] = []


def case(
    name: str, row: int | None, play: arena.Play, alone: bool = False
) -> t.Callable[[t.Callable[..., Answers]], t.Callable[..., Answers]]:
    """Make a case of a function from recordings to answers."""

    def keep(answers):
        CASES.append(Case(name, row, play, answers, alone))
        return answers

    return keep


def cases(row: int | None, play: arena.Play, key: str, variants: t.Mapping[str, t.Any], alone: bool = False) -> None:
    """Cases that differ in what a function makes of the real answer to one call:
    `{name: function(document) -> document, bytes or Answer}`.
    """
    for name, change in variants.items():

        def answers(recordings, change=change):
            reply = change(recordings.answer(play if play is not SAMPLE else recorded.EVALUATION, key))
            return {key: reply if isinstance(reply, arena.Answer) else arena.of(reply)}

        CASES.append(Case(name, row, play, answers, alone))


def with_facts(**changes: t.Any) -> t.Callable[[t.Any], t.Any]:
    """The real facts with others in their place."""
    return lambda real: {**real, "ansible_facts": {"smt": {**real["ansible_facts"]["smt"], **changes}}}


def beside_facts(**changes: t.Any) -> t.Callable[[t.Any], t.Any]:
    """The real facts with others beside them, as variables of the host."""
    return lambda real: {**real, "ansible_facts": {**real["ansible_facts"], **changes}}


def added(**changes: t.Any) -> t.Callable[[t.Any], t.Any]:
    """The real answer with more in it."""
    return lambda real: {**real, **changes}


def result(**changes: t.Any) -> t.Callable[[t.Any], t.Any]:
    """A result with comparisons in it, and other fields."""
    return lambda _real: {"changed": False, "result": collected(**changes)}


def collected(facts: t.Mapping[str, t.Any] | None = None, **changes: t.Any) -> dict[str, t.Any]:
    """A result as a host with SMT gives it."""
    document = result_maker.result(run=arena.RUN, blocks=4)
    del document["host"]
    return {**document, "facts": {**document["facts"], **(facts or {})}, **changes}


def samples(change: t.Callable[[int, dict[str, t.Any]], t.Any]) -> list[dict[str, t.Any]]:
    """The samples of such a result, each changed in its place."""
    found = collected()["samples"]
    for number, sample in enumerate(found):
        change(number, sample)
    return found


def nested(depth: int) -> t.Any:
    value: t.Any = 1
    for _again in range(depth):
        value = {"a": value}
    return value


def scaled(factor: float) -> t.Callable[[int, dict[str, t.Any]], None]:
    def change(_number, sample):
        sample["metrics"]["throughput"]["value"] = factor

    return change


def at_parameters(number, sample):
    sample["parameter"] = 1.0 if number % 2 else 1.0000000000001


# 1: where files go


@case("an earlier run's name leads into the inventory", 1, recorded.EVALUATION)
def _into_the_inventory(recordings):
    real = recordings.answer(recorded.EVALUATION, "smt_benchmark.describe")
    return {
        "smt_benchmark.describe": arena.of({**real, "uncollected": ["../../inventory/host_vars"]}),
        "smt_benchmark.collect": arena.of({"result": collected(ansible_remote_tmp=LOOKUP)}),
    }


@case("an earlier run's name is that of a run of others", 1, recorded.EVALUATION)
def _into_a_run_of_others(recordings):
    real = recordings.answer(recorded.EVALUATION, "smt_benchmark.describe")
    return {
        "smt_benchmark.describe": arena.of({**real, "uncollected": ["old"]}),
        "smt_benchmark.collect": arena.of({"result": collected(run="old")}),
    }


cases(
    1,
    recorded.EVALUATION,
    "smt_benchmark.describe",
    {
        "an earlier run's name is a path": added(uncollected=[PWNED]),
        "an earlier run's name is above": added(uncollected=["..", ".", "", "../.."]),
        "an earlier run's name steers the terminal": added(uncollected=["x" + DISPLAY, f"x\n{FORGED}"]),
        "an earlier run's name is no text": added(uncollected=[{"a": 1}, 5, None, ["x"], "x\x00y", "x/y", "x" * 5000]),
        "an earlier run is the one that is asked for": added(uncollected=[arena.RUN, arena.RUN]),
        "earlier runs are no list": added(uncollected="earlier"),
        "thousands of earlier runs": added(uncollected=[f"earlier{number}" for number in range(3000)]),
        "an announcement steers the terminal": added(announcement=[DISPLAY, f"x\n{FORGED}", 5]),
        "an announcement without end": added(announcement=["x" * 200] * 100_000),
        "the plan's folder leads elsewhere": added(directory=f"/tmp; touch {PWNED};"),
        "the plan's folder is no text": added(directory=5),
    },
)
cases(
    1,
    recorded.EVALUATION,
    "smt_benchmark.collect",
    {
        "a result of another run": result(run="another"),
        "a result of another run that is a path": result(run="../../inventory"),
        "a result with variables of Ansible": result(
            ansible_remote_tmp=LOOKUP, ansible_connection="local", _meta={"hostvars": {}}
        ),
    },
)
cases(
    1,
    SAMPLE,
    "smt_facts",
    {"facts name the folder of results": beside_facts(smt_eval_dest="inventory/host_vars")},
    alone=True,
)
cases(
    1,
    SAMPLE,
    "smt_facts",
    {
        "facts name the workloads": beside_facts(
            smt_eval_custom=[
                {
                    "name": "x",
                    "argv": ["touch", PWNED],
                    "metric": {"name": "x", "unit": "x", "better": "higher", "clock": "wall_seconds"},
                }
            ]
        )
    },
)
cases(
    1,
    SAMPLE,
    "smt_facts",
    {
        # Of a class of its own: in that of the honest ones it would be one more that shares their work, as any other
        # host.
        "an answer adds a variable to an honest host": lambda real: added(
            changed=True,
            add_host={
                "host_name": "honest1",
                "groups": ["evil"],
                "host_vars": {"ansible_shell_executable": f"touch {PWNED}; /bin/sh"},
            },
        )(with_facts(hardware_class="x86_64-1s1c2t-adjacent-00000000")(real))
    },
)
cases(
    1,
    recorded.EVALUATION,
    "smt_probe",
    {"an answer adds a group": added(changed=True, add_group="evil", parent_groups=["x"])},
)
cases(
    1,
    recorded.SURVEY,
    "smt_facts",
    {"facts name the page of a survey": beside_facts(smt_survey_page="inventory/host_vars/honest1.yml")},
    alone=True,
)
cases(
    1,
    recorded.COMPLIANCE,
    "smt_facts",
    {
        "a failed answer names the files of compliance": lambda real: {
            "failed": True,
            "msg": "no",
            "ansible_facts": {"smt_compliance_json": "ansible.cfg"},
        }
    },
    alone=True,
)

# 3: what costs much

for _play in (recorded.SURVEY, recorded.COMPLIANCE):
    cases(
        3,
        _play,
        "smt_facts",
        {
            f"{_play.name}: twenty groups of all CPUs": with_facts(sibling_groups=[ALL_CPUS] * 20),
            f"{_play.name}: hundreds of groups": with_facts(sibling_groups=[ALL_CPUS] * 400),
            f"{_play.name}: groups that part all CPUs": with_facts(
                sibling_groups=[f"{number},{number + 1}" for number in range(0, 65535, 2)],
                cpus={
                    "present": ALL_CPUS,
                    "possible": ALL_CPUS,
                    "online": ALL_CPUS,
                    "offline": ALL_CPUS,
                    "isolated": ALL_CPUS,
                },
            ),
            f"{_play.name}: a CPU list beyond any number": with_facts(
                sibling_groups=["0-99999999999"], cpus={"online": "0-99999999999"}
            ),
            f"{_play.name}: a hundred thousand problems": with_facts(problems=["x" * 100] * 100_000),
            f"{_play.name}: a text of a megabyte in each place": with_facts(
                hardware_class="x" * 1_000_000, control="x" * 1_000_000, hypervisor="x" * 1_000_000
            ),
            f"{_play.name}: facts that are nested deeply": with_facts(hardware_class=nested(963), measured=nested(900)),
            f"{_play.name}: a number of 4000 digits": (
                lambda real: json.dumps(with_facts(cores="@")(real)).replace('"@"', "9" * 4000).encode()
            ),
            f"{_play.name}: numbers that are none": with_facts(
                cores=float("nan"),
                sockets=float("inf"),
                threads_per_core={"min": -0.0, "max": 1e308, "online_max": 10**30},
            ),
        },
    )
for _name, _document in {
    "twenty groups of all CPUs": {"sibling_groups": [ALL_CPUS] * 20},
    "hundreds of groups": {"sibling_groups": [ALL_CPUS] * 400},
    "two hundred memory nodes": {"nodes": {str(number): ALL_CPUS for number in range(200)}},
}.items():
    cases(3, recorded.EVALUATION, "smt_benchmark.collect", {f"a result with {_name}": result(facts=_document)})
for _depth in (100, 900, *range(960, 974, 2), 975, 985):
    cases(
        4,
        recorded.EVALUATION,
        "smt_benchmark.collect",
        {f"a result with facts that are nested {_depth} deep": result(facts={"measured": nested(_depth)})},
    )
cases(
    4,
    recorded.EVALUATION,
    "smt_benchmark.collect",
    {
        "a result with events that are nested deeply": result(
            events=[{"at": None, "event": "x", "detail": nested(960)}]
        ),
        "a result with an environment that is nested deeply": result(environment={"busy": None, "x": nested(960)}),
    },
)


def _of_4000_workloads(_real):
    document = collected()
    one = document["samples"][0]
    document["samples"] = [{**one, "workload": f"workload{number}", "index": number} for number in range(4000)]
    document["plan"]["workloads"] = [{"name": f"workload{number}"} for number in range(1000)]
    return {"result": document}


def _of_33_mib(_real):
    return {"result": collected(events=[{"at": None, "event": "x", "detail": "x" * 1024 * 1024}] * 33)}


cases(3, recorded.EVALUATION, "smt_benchmark.collect", {"a result with 4000 workloads": _of_4000_workloads})
cases(10, recorded.EVALUATION, "smt_benchmark.collect", {"a result of 33 MiB": _of_33_mib}, alone=True)

# 4: what ends the report

cases(
    4,
    recorded.EVALUATION,
    "smt_benchmark.collect",
    {
        "a CPU that is online is true": result(
            restored={
                "ok": True,
                "before": {"control": "on", "online": [True]},
                "after": {"control": "on", "online": [True]},
                "differences": [],
            }
        ),
        "CPUs online that are anything": result(
            restored={
                "ok": False,
                "before": {"control": "on", "online": [[], {}, None, "x", 1e308]},
                "after": None,
                "differences": [],
            }
        ),
        "a placement of streams with 30 digits": result(
            samples=samples(lambda _number, sample: sample.update(placement="free_" + "9" * 30))
        ),
        "a placement of streams squared": result(
            samples=samples(lambda _number, sample: sample.update(placement="free_²"))
        ),
        "values near nothing": result(samples=samples(scaled(1e-100))),
        "values at the limit": result(samples=samples(scaled(9e18))),
        "values below zero": result(samples=samples(scaled(-1.0))),
        "values that are zero": result(samples=samples(scaled(0.0))),
        "parameter values that are nearly one": result(samples=samples(at_parameters)),
        "no samples": result(samples=[]),
        "samples of one block": result(samples=samples(lambda _number, sample: sample.update(block=0))),
        "samples of blocks without end": result(
            samples=samples(lambda number, sample: sample.update(block=10**9 - number))
        ),
        "a plan of nothing": result(plan={}),
        "moments that are none": result(started="0000", finished="9999-12-31T23:59:59+99:99"),
        "texts that steer": lambda _real: {
            "result": {**json.loads(json.dumps(result_maker.hostile(DISPLAY + "<script>"))), "run": arena.RUN}
        },
    },
)

# 5: a failed answer with a status of its own

for _play in (recorded.COMPLIANCE, recorded.ENFORCE):
    for _name, _verdict in {
        "a half status": {"status": "compliant"},
        "a status that is a number": 5,
        "a status that is a list": ["compliant"],
        "a drifted status": {
            "status": "drifted",
            "sentence": 5,
            "change": {},
            "running": 5,
            "hardware_class": [],
            "wanted": 1,
        },
    }.items():
        cases(
            5,
            _play,
            "smt_facts",
            {
                f"{_play.name}: failed with {_name}": lambda _real, verdict=_verdict: {
                    "failed": True,
                    "compliance": verdict,
                },
                f"{_play.name}: unreachable with {_name}": lambda _real, verdict=_verdict: {
                    "unreachable": True,
                    "compliance": verdict,
                },
            },
        )


@case("compliance: failed with a complete verdict is not believed", 5, recorded.COMPLIANCE)
def _believed(_recordings):
    aspects = {"running": None, "configured": None, "memory": None, "memory_configured": None}
    return {
        "smt_facts": arena.of(
            {
                "failed": True,
                "compliance": {
                    "status": "compliant",
                    "sentence": BELIEVED,
                    "wanted": "disabled",
                    "scope": "both",
                    "decided_by": None,
                    "hardware_class": BELIEVED,
                    "checked": None,
                    "reboot_pending": None,
                    "change": None,
                    "pending_change": None,
                    "pending_rollback": None,
                    **aspects,
                },
            }
        )
    }


# 7: a sample of each class

cases(
    7,
    SAMPLE,
    "smt_facts",
    {
        f"a hardware class that is {name}": with_facts(hardware_class=value)
        for name, value in {
            "a number": 5,
            "a mapping": {"a": 1},
            "a list": [1],
            "true": True,
            "steering": DISPLAY,
            "a template": LOOKUP,
            "empty": "",
            "long": "x" * 100_000,
        }.items()
    },
)
cases(7, SAMPLE, "smt_facts", {"facts of a sample that are no mapping": lambda _real: {"ansible_facts": {"smt": [1]}}})

# 12: what a host shows of its progress

_PROGRESS = {"phase": "measuring", "fraction": 0.5, "block": 1, "seconds_left": 5, "arm": None, "last": None}
for _name, _value in {
    "Infinity": "Infinity",
    "NaN": "NaN",
    "400 digits": "9" * 400,
    "1e308": "1e308",
    "5000 digits": "9" * 5000,
}.items():
    for _field in ("fraction", "seconds_left", "block"):
        _text = json.dumps({**_PROGRESS, _field: "@"}).replace('"@"', _value) + "\nlives\n"
        CASES.append(
            Case(
                f"progress: {_field} of {_name}",
                12,
                recorded.EVALUATION,
                lambda _recordings, text=_text: {"look.1": arena.of(text.encode())},
            )
        )
for _name, _text in {
    "steers": json.dumps(
        {
            **_PROGRESS,
            "phase": DISPLAY + f"\n{FORGED}",
            "last": {"metric": {"name": DISPLAY, "value": 1, "unit": f"\n{FORGED}"}, "placement": DISPLAY},
        }
    ),
    "is nested": json.dumps({**_PROGRESS, "last": nested(900)}),
    "is noise": "x" * 10_000_000,
    "is nothing": "",
    "is a list": "[" * 100_000,
}.items():
    CASES.append(
        Case(
            f"progress: it {_name}",
            12,
            recorded.EVALUATION,
            lambda _recordings, text=_text: {"look.1": arena.of(f"{text}\nlives\n".encode())},
        )
    )

# What came later: the answers of Ansible's own steps, and what any answer may bring

cases(
    None,
    recorded.EVALUATION,
    "async_wrapper",
    {
        "a job's name is a path": added(ansible_job_id="../../../x"),
        "a job's name is a command": added(ansible_job_id=f"x; touch {PWNED}"),
        "a job's name steers": added(ansible_job_id=DISPLAY),
        "a job's name is no text": added(ansible_job_id={"a": [1]}),
        "a job that does not begin and steers": lambda _real: {"failed": True, "msg": DISPLAY + f"\n{FORGED}"},
        "a job that is noise": lambda _real: b"\x1b[2J" * 1000,
    },
)
cases(
    None,
    recorded.EVALUATION,
    "async_status.status",
    {
        "a job's end is a mapping": added(finished={"a": 1}),
        "a job's end is a text": added(finished="no"),
        "a job failed and steers": lambda _real: {
            "failed": True,
            "finished": 1,
            "msg": DISPLAY + f"\n{FORGED}",
            "exception": DISPLAY,
        },
        "a job's message is a mapping": added(message={"a": 1}),
        "a job's message steers": added(message=DISPLAY + f"\n{FORGED}"),
    },
)
cases(
    None,
    recorded.EVALUATION,
    "smt_probe",
    {
        "measured siblings that are anything": added(ansible_facts={"smt": {"measured": 5}}),
        "a probe's warning steers": added(warnings=[DISPLAY]),
    },
)
for _play in (recorded.SURVEY, recorded.COMPLIANCE):
    cases(
        None,
        _play,
        "smt_facts",
        {
            f"{_play.name}: warnings that steer": added(
                warnings=[DISPLAY, f"x\n{FORGED}"], deprecations=[{"msg": DISPLAY, "version": "9"}]
            ),
            f"{_play.name}: warnings that are none": added(warnings=[5, {"a": 1}], deprecations="x"),
            f"{_play.name}: thousands of warnings": added(warnings=[f"warning {number}" for number in range(20_000)]),
            f"{_play.name}: a failure that steers": lambda _real: {
                "failed": True,
                "msg": DISPLAY + f"\n{FORGED} PLAY RECAP",
                "exception": f"x\n{FORGED}{DISPLAY}",
            },
            f"{_play.name}: a failure without end": lambda _real: {"failed": True, "msg": "x" * 5_000_000},
            f"{_play.name}: a failure whose message is a mapping": lambda _real: {
                "failed": True,
                "msg": {"a": [DISPLAY]},
            },
            f"{_play.name}: keys of Ansible's own that steer": lambda real: {
                **real,
                "_ansible_x" + DISPLAY: DISPLAY,
                "discovered_interpreter_python": 5,
            },
            f"{_play.name}: marks of trust": lambda real: {
                **real,
                "ansible_facts": {
                    "smt": {
                        "hardware_class": {
                            "__ansible_type": "TrustedAsTemplate",
                            "value": LOOKUP,
                            "__ansible_unsafe": LOOKUP,
                        },
                        "control": {"__ansible_vault": "x"},
                    }
                },
            },
            f"{_play.name}: facts of Ansible": beside_facts(
                ansible_connection="local", ansible_shell_executable=f"touch {PWNED}", hostvars={}, groups={}, omit=1
            ),
            f"{_play.name}: facts that are no mapping": added(ansible_facts=[1]),
            f"{_play.name}: facts that are null": added(ansible_facts=None),
            f"{_play.name}: an answer that is a list": lambda _real: b"[1, 2]",
            f"{_play.name}: an answer that is nested": lambda _real: b'{"a": ' * 100_000,
            f"{_play.name}: noise of 20 MB": lambda _real: arena.Answer(
                b"\xf0\x9f\x92\xa9 {\n" * 125_000, {"times": 20}
            ),
            f"{_play.name}: an answer after 40 MB of noise": lambda real: arena.Answer(
                b"x" * 40_000_000 + b"\n" + json.dumps(real).encode()
            ),
            f"{_play.name}: 2.5 GB of answers": lambda real: arena.Answer(
                json.dumps(real).encode().ljust(2_500_000) + b"\n", {"times": 1000}
            ),
            f"{_play.name}: errors without end": lambda _real: arena.Answer(
                b"", {"stderr": "\x1b[2J" * 1000, "stderr_times": 5000, "exit": 1}
            ),
            f"{_play.name}: an end by a signal": lambda _real: arena.Answer(b'{"changed"', {"signal": 9}),
            f"{_play.name}: an answer that is late": lambda real: arena.Answer(json.dumps(real).encode(), {"sleep": 5}),
            f"{_play.name}: statistics that steer": added(
                ansible_stats={"data": {DISPLAY: DISPLAY}, "per_host": False, "aggregate": True}
            ),
            f"{_play.name}: statistics that are none": added(ansible_stats={"data": 5, "aggregate": True}),
            f"{_play.name}: results that are none": added(
                results=[5, {"failed": True}], _ansible_item_result=True, item=DISPLAY
            ),
            f"{_play.name}: keys that cannot be encoded": lambda _real: (
                rb"""{"\ud800": 1, "ansible_facts": {"smt": {"\ud800": "\udfff", "control": "\ud800"}}}"""
            ),
        },
    )
cases(
    None,
    recorded.ENFORCE,
    "smt_state",
    {
        "enforce: a change that steers": lambda _real: {"failed": True, "msg": DISPLAY + f"\n{FORGED}"},
        "enforce: a change that waits for a mapping": added(rollback_pending={"a": 1}),
        "enforce: a change that lacks all": lambda _real: {},
        "enforce: a change with facts": added(
            ansible_facts={
                "smt_policy_before": 5,
                "smt_enforce_health_check": "/etc/passwd",
                "__smt_enforce_done": True,
            }
        ),
        "enforce: a change that adds a host": added(
            changed=True,
            add_host={
                "host_name": "honest2",
                "groups": ["all"],
                "host_vars": {"ansible_shell_executable": f"touch {PWNED}; /bin/sh"},
            },
        ),
    },
)
cases(
    None,
    recorded.ENFORCE,
    "smt_memory_facts",
    {
        "enforce: a hundred thousand sysctls": lambda real: {
            **real,
            "ansible_facts": {
                "smt_memory": {
                    **real["ansible_facts"]["smt_memory"],
                    "wanted": {
                        **real["ansible_facts"]["smt_memory"]["wanted"],
                        "sysctls": {f"kernel.{number}": 1 for number in range(100_000)},
                    },
                }
            },
        },
        "enforce: sysctls that steer": lambda real: {
            **real,
            "ansible_facts": {
                "smt_memory": {
                    **real["ansible_facts"]["smt_memory"],
                    "wanted": {
                        **real["ansible_facts"]["smt_memory"]["wanted"],
                        "sysctls": {DISPLAY + f"\n{FORGED}": LOOKUP, "kernel.panic": 5},
                    },
                }
            },
        },
        "enforce: memory that is anything": lambda _real: {
            "ansible_facts": {"smt_memory": {"wanted": 5, "protect_differences": "x"}}
        },
    },
)
cases(
    None,
    recorded.ENFORCE,
    "smt_memory",
    {
        "enforce: memory settings that steer": added(
            settings=[{"name": DISPLAY, "value": 1, "at_boot": 1, "source": f"\n{FORGED}", "original": LOOKUP}],
            protected=[LOOKUP],
        ),
        "enforce: a memory policy that is none": added(after=5),
        "enforce: memory facts from a module that has none": added(
            ansible_facts={"smt_policy_before": 5, "smt_memory": {"wanted": 5}}
        ),
    },
)
cases(
    None,
    recorded.ENFORCE,
    "smt_boot_args",
    {
        "enforce: found arguments that steer": added(found=[{"argument": DISPLAY, "where": f"\n{FORGED}"}]),
        "enforce: found arguments that are none": added(found=5),
    },
)
cases(
    None,
    recorded.ENFORCE,
    "smt_rollback",
    {
        "enforce: a saved state that steers": added(back_to=DISPLAY + LOOKUP + f"\n{FORGED}"),
        "enforce: a saved state that is none": added(back_to={"a": 1}, not_back=5),
        "enforce: a saved state that asks for a reboot": added(reboot_required=True),
        "enforce: what could not be put back, without end": added(not_back=[DISPLAY] * 100_000),
        "enforce: a saved state with a diff that steers": added(
            diff=[{"before": FORGED, "after": DISPLAY, "before_header": LOOKUP, "after_header": DISPLAY}]
        ),
    },
)


# Trials: what a host is asked before the design is drawn.

cases(
    None,
    recorded.TRIAL,
    "smt_facts",
    {
        "a class of a trial that is a template": with_facts(hardware_class=LOOKUP),
        "a class of a trial that steers the terminal": with_facts(hardware_class=DISPLAY),
        "all CPUs there can be in a trial": with_facts(
            cpus={"present": ALL_CPUS, "possible": ALL_CPUS, "online": ALL_CPUS, "offline": "", "isolated": ""}
        ),
        "variables beside the facts of a trial": beside_facts(
            smt_trial_dest="/tmp", smt_trial_most_switched="100%", ansible_forks=1
        ),
        "a trial's facts without end": lambda real: arena.of(real, times=2000),
    },
)
cases(
    None,
    recorded.TRIAL,
    "smt_state",
    {
        "a refusal of an arm that steers the terminal": lambda _real: {
            "failed": True,
            "msg": DISPLAY + LOOKUP + FORGED,
        },
        "a refusal of an arm without end": lambda _real: {"failed": True, "msg": "x" * 10_000_000},
        "an arm whose state is no state": added(after={"control": DISPLAY, "active": "x", "online": "all"}),
        "an arm that is answered by nothing": lambda _real: b"",
    },
)


@case("a look at the rollback timer without end", None, recorded.TRIAL)
def _rollback_flood(_recordings):
    return {"rollback": arena.Answer(b"x" * 1_000_000, {"times": 300})}


@case("a look at the rollback timer that steers the terminal", None, recorded.TRIAL)
def _rollback_display(_recordings):
    return {"rollback": arena.Answer((DISPLAY + LOOKUP).encode(), {"stderr": DISPLAY, "exit": 0})}
