# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of a look: sentences, the table, the page and the document; and what second threads give."""

from __future__ import annotations

import datetime

import pytest
import result_maker
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions, yields
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure.cores_in_use import HostLook
from looks import UNITS, USE, answer, looked

CORE = {"cpus": [0, 2, 4, 6], "usage": 1.0, "busy": [1.0, 1.0], "several": [1.0, 1.0]}
ALONE = {"cores": [{**CORE, "cpus": [0], "several": [0.0, 0.0]}]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"use": {**USE, "work": [0.1]}},
        {"use": {**USE, "work": [0.1, 7.0]}},
        {"cores": [{"cpus": ["0"], "usage": 0.5, "busy": [0, 1], "several": [0, 1]}]},
        {"units": [{**UNITS[0], "ran": "many"}]},
        {"units": [UNITS[0]] * 101},
        {"pairs": [{"units": ["/a"], "seconds": 1.0}]},
        {"method": "guess"},
        {"reason": "two\nlines"},
    ],
)
def test_the_border_lets_an_answer_through_and_no_other(wrong):
    check = answers.KINDS["smt_usage"].check
    check(answer())
    with pytest.raises(BorderError):
        check(answer(**wrong))


# ---- sentences -------------------------------------------------------------------------------------------------------

OPEN = {"vulnerabilities": {"mds": {"smt": "vulnerable"}, "l1tf": {"smt": "vulnerable"}, "gds": {"smt": "no"}, 5: 7}}
NAMELESS, NAMED = {"units": [None, None], "seconds": 102.5}, {"units": ["/a", "/b"], "seconds": 0.9}
GUEST = {"hypervisor": "kvm"}
# Whose sentence it is, and the sentence.
SENTENCES = """
- [usual, "CPU usage is 50 %, and it does 76 to 84 % of the work that it can do: there is room for 19 to 32 % more of
  such work, not for 100 % as usage says."]
- [usual, "Siblings were busy together for 5 to 10 % of the time of a core: under this load SMT off can change what the
  host does by up to 5 %; an evaluation tells."]
- [bound, "Siblings were busy together for 0 to 0.3 % of the time of a core: under this load SMT off cannot change
  what the host does by more than 0.4 %."]
- [usual, "/system.slice/postgresql.service spent 40 % of its CPU time beside a busy sibling: with SMT off the same work
  can take up to 20 % less of it, where no CPU is missing then."]
- [usual, "So much of their CPU time units spent beside a sibling with other work:
  /system.slice/postgresql.service 31 %, /system.slice/backup.service 16 %."]
- [usual, "What second threads give is a guess: 1.0 to 1.3 (no evaluation of this class)."]
- [measured, "What second threads give is as measured with gzip and oltp 8."]
- [power, "How much of its work it does is what the processor counts of its cores (PURR)."]
- [power, "When siblings were busy together was not seen, so the limits are those of its counters: no tracefs."]
- [counted, "How long siblings were busy together is what the processor counted of the whole time."]
- [counted, "The processor's own counters were not used: no perf."]
- [usual, "3 of 60 windows ended early, because a buffer was full."]
- [alone, "No two siblings are online, so no work shares a core."]
- [guest, "CPU usage is 50 %."]
- [guest, "This is a virtual machine that sees no siblings: whether its CPUs share cores, and so how much room is left,
  cannot be seen from here."]
- [none, "How its CPUs are used is not known: look again."]
- [blind, "l1tf and mds are open across threads here."]
- [apart, "l1tf and mds are open across threads here, and no two units shared a core in the windows."]
- [shared, "l1tf and mds are open across threads here, and /a and /b share cores for less than a minute of a day like
  this; tasks whose unit is not known share cores, with each other or with units, for 41 minutes of it."]
"""


def use(**changed):
    return {"use": {**USE, **changed}}


LOOKS = {
    "usual": looked(cut=3),
    "bound": looked(**use(bound=0.004, several=[0.0, 0.003])),
    "measured": cores_in_use.host("web01", answer(), ["gzip", "oltp 8"]),
    "power": looked(source="purr", method="counters", reason="no tracefs"),
    "counted": looked(source=look.ONE_THREAD, method="counters", source_reason="no perf"),
    "alone": looked(**ALONE),
    "guest": cores_in_use.host("web01", answer(**ALONE), [], GUEST),
    "none": looked(use=None, use_reason="look again"),
    "blind": cores_in_use.host("web01", answer(method="counters"), [], OPEN),
    "apart": cores_in_use.host("web01", answer(pairs=[]), [], OPEN),
    "shared": cores_in_use.host("web01", answer(pairs=[NAMELESS, NAMED]), [], OPEN),
}


@pytest.mark.parametrize(("which", "sentence"), yaml.safe_load(SENTENCES))
def test_each_sentence(which, sentence):
    assert sentence in cores_in_use.sentences(LOOKS[which])
    assert ("open across" in " ".join(cores_in_use.sentences(LOOKS[which]))) == bool(LOOKS[which].open_to)


@pytest.mark.parametrize(
    ("hosts", "counted"),
    [
        ([looked()], "1 with less room than usage says"),
        ([looked(**use(by_usage=0.1))], "1 with more room than usage says"),
        (
            [looked(**use(bound=0.004))],
            "1 on which SMT cannot matter under this load, 1 with less room than usage says",
        ),
        ([looked(**ALONE)], "1 without siblings online, 1 with less room than usage says"),
        ([looked(), cores_in_use.host("b", None, [])], "1 with less room than usage says, 1 without a look"),
        ([LOOKS["guest"]], "1 virtual and without siblings in sight"),
    ],
)
def test_the_summary(hosts, counted):
    assert cores_in_use.summary(hosts) == f"{len(hosts)} host{'s' * (len(hosts) > 1)}: {counted}."
    assert cores_in_use.table(hosts)[-1] == cores_in_use.summary(hosts)


@pytest.mark.parametrize(("gain", "less"), [([1.0, 1.3], 75), ([2.1, 2.4], 48)])
def test_of_four_threads_each_does_its_part_of_what_their_core_does(gain, less):
    unit = {"unit": "/pg", "ran": 100.0, "beside": 100.0, "apart": 0.0}
    said = " ".join(cores_in_use.sentences(looked(cores=[CORE], units=[unit], **use(gain=gain))))
    assert f"up to {less} % less" in said


def test_a_virtual_machine_that_sees_no_siblings_is_not_judged():
    one = LOOKS["guest"]
    assert cores_in_use.cells(one) == ("50 %", "-", "-", "-") and len(cores_in_use.sentences(one)) == 2
    described = cores_in_use.described(one)
    assert described["use"] is None and described["reason"] == cores_in_use.HIDDEN.removesuffix(".")
    # A machine that has siblings, all of them offline, is none of these, nor one that sees them, nor a partition of
    # which the processor says what it uses.
    off = {"hypervisor": "phyp", "supported": True, "control": "off"}
    assert not cores_in_use.host("web01", answer(**ALONE), [], off).hides_siblings
    assert not cores_in_use.host("web01", answer(), [], GUEST).hides_siblings
    assert not cores_in_use.host("a", answer(**ALONE, source=look.PURR), [], {"hypervisor": "x"}).hides_siblings


@pytest.mark.parametrize(
    ("registered", "reason"),
    [
        (None, "an earlier task failed"),
        ({"msg": "no such host", "unreachable": True}, "no such host"),
        ({"failed": True, "msg": ["a"]}, "an earlier task failed"),
        ("nonsense", "an earlier task failed"),
    ],
)
def test_a_host_without_a_look(registered, reason):
    one = cores_in_use.host("web02", registered, [])
    assert one.use is None and one.reason.endswith(reason)
    assert reason in cores_in_use.sentences(one)[0] and reason in "\n".join(cores_in_use.table([one]))


def test_first_those_without_a_look_then_those_with_the_least_room():
    full, empty = looked(**use(work=[0.97, 0.99])), looked(**use(work=[0.1, 0.2]))
    hosts = [
        HostLook("empty", None, empty.answer),
        HostLook("full", None, full.answer),
        HostLook("gone", "unreachable", {}),
    ]
    assert [one.name for one in cores_in_use.ordered(hosts)] == ["gone", "full", "empty"]


# ---- what second threads give ----------------------------------------------------------------------------------------


def concluded(host, workload, name="gzip"):
    document = {**result_maker.result(blocks=8, workloads={name: workload}), "host": host}
    return decisions.conclude(result_maker.accepted(document), datetime.datetime.now(datetime.UTC))


def of_share(host, share):
    """The conclusion of an evaluation in which SMT off does `share` of the work of SMT on."""
    return concluded(host, {**result_maker.GZIP, "share": 1 / (2 * share)})


def test_the_yield_is_the_work_with_smt_on_in_that_with_smt_off():
    one = of_share("web01", 0.8)
    ((name, (of_gzip,)),) = yields.by_class([one]).items()
    comparison = one.workloads["gzip", None]
    assert (name, of_gzip.workload, of_gzip.hosts) == (one.hardware_class, "gzip", 1)
    ends = [1 / comparison[end] for end in ("ci_high", "ratio", "ci_low")]
    assert [of_gzip.low, of_gzip.value, of_gzip.high] == pytest.approx(ends) and ends == sorted(ends)


def test_hosts_are_combined_and_one_that_is_of_another_class_now_does_not_count():
    hosts = [of_share("web01", 0.8), of_share("web02", 0.82), of_share("web03", 0.81)]
    ((of_gzip,),) = yields.by_class(hosts).values()
    assert of_gzip.hosts == 3 and of_gzip.low <= 1 / 0.81 <= of_gzip.high
    found = yields.by_class(hosts[:2], {"web01": hosts[0].hardware_class, "web02": "x86_64-other"})
    assert [of_gzip.hosts for (of_gzip,) in found.values()] == [1] and yields.by_class([]) == {}


@pytest.mark.parametrize(("aggregate", "is_one"), [("per_job", True), ("mean_per_job", False), ("max", False)])
def test_what_a_worker_waits_or_takes_is_no_yield(aggregate, is_one):
    def takes(arm, _spot, workers):
        return [12.0 if arm == "smt_off" else 10.0] * len(workers)

    metrics = {"time": {"unit": "s", "better": "lower", "aggregate": aggregate}}
    conclusion = concluded("web01", {"title": "job", "metrics": metrics, "model": takes}, "job")
    assert [bool(found) for found in yields.by_class([conclusion]).values()] == [is_one]
