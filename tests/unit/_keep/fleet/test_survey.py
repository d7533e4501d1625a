# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The survey of many hosts' facts, what is said of a look at the cores in use, and what second threads give."""

from __future__ import annotations

import dataclasses
import datetime
import re

import facts_maker
import markup
import pytest
import result_maker
import sysfs_tree
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.usage import UsageAnswer
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions, yields
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import survey
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure.cores_in_use import HostLook
from looks import UNITS, USE, answer, looked
from sysfs_tree import Machine

MACHINE = Machine(packages=2, cores=9)
OFF = dataclasses.replace(MACHINE, offline=tuple(range(18, 36)), control="off")
EVIL = "<script>alert(1)</script>\x1b[31m\"'&\n{{ 7 * 7 }}"
VULNERABLE = {"mds": {"status": "x", "smt": "vulnerable"}, "l1tf": {"smt": "unknown"}, "tsx": {"smt": None}}
OTHERWISE = {"running": [], "configured": ["nosmt"], "reboot_required": True}


def gather(root, machine):
    return smt_facts.gather(host_files.HostFs(sysfs_tree.write(root, sysfs_tree.files(machine))))


@pytest.fixture(scope="module", name="facts")
def _facts(tmp_path_factory):
    return gather(tmp_path_factory.mktemp("on"), MACHINE)


@pytest.fixture(name="row")
def _row(facts):
    return lambda name="a", **change: survey.row(name, facts_maker.made(facts, **change))


# What is said, where it is said, and what is otherwise in a host's facts.
ROWS = """on | state | {}
off | state | {active: false, control: "off"}
forced off | state | {active: false, control: forceoff}
no SMT | state | {supported: false, active: false}
partly on | state | {cpus: {offline: "3"}}
unknown | state | {supported: null}
1 package, 1 core x 1 | shape | {sockets: 1, cores: 1, threads_per_core: {min: 1, max: 1}}
2 packages, 18 cores x 1-2 | shape | {threads_per_core: {min: 1, max: 2}}
18 cores x 2 | shape | {sockets: null}"""


@pytest.mark.parametrize(("said", "name", "change"), [line.split(" | ") for line in ROWS.splitlines()])
def test_the_state_and_the_shape(row, said, name, change):
    assert getattr(row(**yaml.safe_load(change)), name) == said


def test_drift_vulnerabilities_method_and_what_is_not_known(tmp_path, row):
    one = row(boot=OTHERWISE, methods={"runtime": {"chosen": "smt_control"}}, vulnerabilities=VULNERABLE)
    found = one.drift, one.configured, one.open_to, one.guest_unknown, one.method
    assert found == (True, ("nosmt",), ("mds",), ("l1tf",), "smt_control")
    assert "nosmt" in survey.table([one])[2] and "mds" in survey.table([one])[2]
    assert row().unknowns == ()
    assert "CPUs 18-35" in survey.row("a", facts_maker.made(gather(tmp_path, OFF))).unknowns[0]
    assert len(row(complete=False).unknowns) == 1 and "cpuinfo" in row(source="cpuinfo").unknowns[0]
    assert "CPUs 0-1" in row(measured={"agrees_with_kernel": False, "pairs": ["0-1"]}).unknowns[0]


COUNTS = {"program": "nginx", "unit": "nginx.service", "is_service": True, "counted": 36, "cpus": 18}
COUNTS.update(has="nginx.service has 36 worker processes for 36 CPUs", remedy="restart it")
EVERYWHERE = {
    "hypervisor": EVIL,
    "problems": [EVIL],
    "boot": {"running": [EVIL], "configured": [EVIL], "reboot_required": True},
    "consumers_after_switch": [{**COUNTS, "has": f"nginx.service has 36 worker processes {EVIL}"}],
}


@pytest.mark.parametrize("where", [*EVERYWHERE, "names"])
def test_nothing_from_a_host_becomes_markup_or_steers_a_terminal(row, where):
    known = {name: value for name, value in EVERYWHERE.items() if name == where}
    rows = [row("a", **known)] if known else [row(EVIL), survey.unreached("b", EVIL)]
    page = survey.page(rows, "now")
    assert page.count("<script") == 1 and "alert(1)" in page and "{{ 7 * 7 }}" in page and "\x1b" not in page
    assert all(line.isprintable() for line in survey.table(rows))
    assert ("and would have 18: restart it" in page) == (where == "consumers_after_switch")


def test_the_sentence(row):
    all_of_it = {"boot": OTHERWISE, "vulnerabilities": VULNERABLE, "consumers_after_switch": [COUNTS]}
    said = "1 with SMT on, 1 would boot with other SMT arguments, 1 vulnerable because siblings are online,"
    odd = [{"active": None, "boot": OTHERWISE}, {"problems": ["x"], "boot": OTHERWISE}]
    of_odd = "1 with SMT on, 1 unknown, 2 would boot with other SMT arguments, 1 with something not known"
    off = {"active": False, "control": "off"}
    for rows, counted in (
        ([], "0 hosts: none."),
        ([row(), row(**off)], "2 hosts: 1 with SMT on, 1 with SMT off, 2 whose next boot is not known."),
        ([survey.unreached("c", "gone")], "1 host: 1 without facts."),
        ([row(**all_of_it)], f"1 host: {said} 1 with programs that would not follow a switch."),
        ([row(**one) for one in odd], f"2 hosts: {of_odd}."),
    ):
        assert survey.sentence(rows) == counted


def test_hosts_that_need_action_come_first(row):
    rows = [
        row("fine"),
        row("some-unknown", problems=["it burns"]),
        row("boots-otherwise", boot=OTHERWISE),
        row("open", vulnerabilities=VULNERABLE),
        row("state-unknown", active=None),
        survey.unreached("gone", "no route"),
    ]
    names = ["gone", "state-unknown", "open", "boots-otherwise", "some-unknown", "fine"]
    assert [line.split()[0] for line in survey.table(rows)[2:8]] == names
    page = markup.whole(survey.page(rows, "now"))
    assert re.findall('<tr><th scope="row">([a-z-]+)</th><td class="verdict', page) == names[1:]
    # What the page needs is in it.
    links = {"#SMT=on", "#SMT=unknown"}
    assert set(re.findall(r'(?:href|src|srcset|action)="?([^"\s>]*)', page)) == {"data:,", "#content", *links}


def test_how_much_room_is_left_is_beside_the_state_where_somebody_looked(row):
    failed = cores_in_use.if_looked("failed", {"failed": True, "msg": f"it burns {EVIL}"})
    rows = [survey.looked_at(row("seen"), looked()), survey.looked_at(row("failed"), failed), row("other")]
    said = {line.split()[0]: " ".join(line.split()) for line in survey.table(rows)[2:5]}
    assert "50 % 76 to 84 % 19 to 32 % more 100 % more" in said["seen"] and said["other"].endswith("- - - - -")
    assert "- - - - how" in said["failed"] and "it burns" in said["failed"]
    assert survey.sentence(rows).endswith(cores_in_use.summary([looked(), failed]))
    page = survey.page(rows, "now")
    assert 'data-head="of its work">76 to 84 %<' in page and page.count("<script") == 1
    skipped = [survey.looked_at(row(), cores_in_use.if_looked("a", {"skipped": True})), rows[-1]]
    assert "of its work" not in "".join(survey.table(skipped)) + survey.page(skipped, "now")


# ---- what is said of a look, and what second threads give ------------------------------------------------------------

CORE = {"cpus": [0, 2, 4, 6], "usage": 1.0, "busy": [1.0, 1.0], "several": [1.0, 1.0]}
ALONE = {"cores": [{**CORE, "cpus": [0], "several": [0.0, 0.0]}]}


def test_the_border_lets_an_answer_through_and_no_other():
    pair = {"units": ["/a"], "seconds": 1.0}
    parts.converted(answer(), UsageAnswer)
    works = ({"use": {**USE, "work": work}} for work in ([0.1], [0.1, 7.0]))
    units = ({"units": some} for some in ([{**UNITS[0], "ran": "many"}], [UNITS[0]] * 101))
    for wrong in (*works, *units, {"pairs": [pair]}, {"reason": "two\nlines"}):
        with pytest.raises(BorderError):
            parts.converted(answer(**wrong), UsageAnswer)


# ---- sentences -------------------------------------------------------------------------------------------------------

OPEN = {"vulnerabilities": {"mds": {"smt": "vulnerable"}, "l1tf": {"smt": "vulnerable"}, "gds": {"smt": "disabled"}}}
OPEN = facts_maker.made(**OPEN)
NAMELESS, NAMED = {"units": [None, None], "seconds": 102.5}, {"units": ["/a", "/b"], "seconds": 0.9}
GUEST = facts_maker.made(hypervisor="kvm")
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


def test_the_summary():
    for hosts, counted in (
        ([looked(**use(by_usage=0.1))], "1 host: 1 with more room than usage says."),
        ([looked(**use(bound=0.004, by_usage=0.1))], "1 host: 1 on which SMT cannot matter under this load"),
        ([looked(**ALONE)], "1 host: 1 without siblings online, 1 with less room than usage says."),
        ([looked(), cores_in_use.host("b", {}, [])], "2 hosts: 1 with less room than usage says, 1 without a look."),
        ([LOOKS["guest"]], "1 host: 1 virtual and without siblings in sight."),
    ):
        assert cores_in_use.summary(hosts).startswith(counted)
        assert cores_in_use.table(hosts)[-1] == cores_in_use.summary(hosts)


def test_of_four_threads_each_does_its_part_of_what_their_core_does():
    unit = {"unit": "/pg", "ran": 100.0, "beside": 100.0, "apart": 0.0}
    for gain, less in (([1.0, 1.3], 75), ([2.1, 2.4], 48)):
        said = " ".join(cores_in_use.sentences(looked(cores=[CORE], units=[unit], **use(gain=gain))))
        assert f"up to {less} % less" in said


def test_a_virtual_machine_that_sees_no_siblings_is_not_judged():
    one = LOOKS["guest"]
    assert cores_in_use.cells(one) == ("50 %", "-", "-", "-") and cores_in_use.described(one)["use"] is None
    # A machine that has siblings, all of them offline, is none of these, nor one that sees them, nor a partition of
    # which the processor says what it uses.
    off = facts_maker.made(hypervisor="phyp", supported=True, control="off")
    others = (answer(**ALONE), off), (answer(), GUEST), (answer(**ALONE, source=look.PURR), GUEST)
    assert not any(cores_in_use.host("a", found, [], facts).hides_siblings for found, facts in others)


def test_a_host_without_a_look_comes_first_and_then_those_with_the_least_room():
    gone = {"msg": "no such host", "unreachable": True}
    for registered, reason in ((gone, "no such host"), ({"failed": True, "msg": ["a"]}, "an earlier task failed")):
        one = cores_in_use.host("web02", registered, [])
        assert one.use is None and one.reason.endswith(reason)
        assert reason in cores_in_use.sentences(one)[0] and reason in "\n".join(cores_in_use.table([one]))
    full, empty = looked(**use(work=[0.97, 0.99])), looked(**use(work=[0.1, 0.2]))
    hosts = [
        HostLook("empty", None, empty.answer),
        HostLook("full", None, full.answer),
        HostLook("gone", "unreachable", None),
    ]
    assert [one.name for one in cores_in_use.ordered(hosts)] == ["gone", "full", "empty"]


def concluded(host, workload, name="gzip"):
    document = {**result_maker.result(blocks=8, workloads={name: workload}), "host": host}
    return decisions.conclude(result_maker.accepted(document), datetime.datetime.now(datetime.UTC))


def test_the_yield_is_the_work_with_smt_on_in_that_with_smt_off():
    # SMT off does so much of the work of SMT on.
    shares = {"web01": 0.8, "web02": 0.82, "web03": 0.81}
    hosts = [concluded(host, {**result_maker.GZIP, "share": 1 / (2 * share)}) for host, share in shares.items()]
    ((name, (of_gzip,)),) = yields.by_class(hosts[:1]).items()
    comparison = hosts[0].workloads["gzip", None]
    assert (name, of_gzip.workload, of_gzip.hosts) == (hosts[0].hardware_class, "gzip", 1)
    ends = [1 / end for end in (comparison.ci_high, comparison.ratio, comparison.ci_low)]
    assert [of_gzip.low, of_gzip.value, of_gzip.high] == pytest.approx(ends) and ends == sorted(ends)
    # Hosts are combined, and one that is of another class now does not count.
    ((of_gzip,),) = yields.by_class(hosts).values()
    assert of_gzip.hosts == 3 and of_gzip.low <= 1 / 0.81 <= of_gzip.high
    found = yields.by_class(hosts[:2], {"web01": hosts[0].hardware_class, "web02": "x86_64-other"})
    assert [of_gzip.hosts for (of_gzip,) in found.values()] == [1] and yields.by_class([]) == {}


def test_what_a_worker_waits_or_takes_is_no_yield():
    def takes(arm, _spot, workers):
        return [12.0 if arm == "smt_off" else 10.0] * len(workers)

    for aggregate, is_one in (("per_job", True), ("mean_per_job", False), ("max", False)):
        metrics = {"time": {"unit": "s", "better": "lower", "aggregate": aggregate}}
        conclusion = concluded("web01", {"title": "job", "metrics": metrics, "model": takes}, "job")
        assert [bool(found) for found in yields.by_class([conclusion]).values()] == [is_one], aggregate
