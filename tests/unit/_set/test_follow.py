# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that follow a change of CPUs, and follow it back whatever becomes of it."""

import errno
import math
import re
import shutil

import counting
import fake_host
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import service
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import (
    find,
    history,
    settings as consumer_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds import base
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts, follow
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import watchdog
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.change import ChangeRefusedError
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.errors import SmtError
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import program

NGINX = consumer_settings.Settings({"nginx": "restart"})
JAVA = consumer_settings.Settings({"java": "restart"})
RESTART = ["systemctl", "restart", "nginx.service"]
STEP = ["nginx.service: systemctl restart nginx.service"]
ONLINE = "sys/devices/system/cpu/online"


class Services(fake_host.Host):
    """A host whose services count its CPUs when systemctl restarts them."""

    def __init__(self, sysroot):
        super().__init__(sysroot)
        self.processes = counting.Processes(sysroot)
        self.before_command, self.log = self.obey, sysroot / "log"
        self.start("nginx.service")

    def count(self):
        return len(cpulist.parse(self.read(ONLINE)))

    def start(self, unit, number=None):
        first = {"nginx.service": 100, "app.service": 200}[unit]
        for pid in range(first, first + 50):
            shutil.rmtree(self.processes.folder / "proc" / str(pid), ignore_errors=True)
        now = history.ticks()
        if unit == "app.service":
            self.processes.start(first, ["java"], "java", unit=unit, mask="0-7", started=now)
            return
        self.processes.start(first, ["nginx: master process"], "nginx", unit=unit, started=now)
        for pid in range(first + 1, first + 1 + (number or self.count())):
            self.processes.start(pid, ["nginx: worker process"], "nginx", first, unit, started=now)

    def obey(self, command):
        if command[:2] == ["systemctl", "restart"]:
            # In a file: a watchdog of its own undoes what failed.
            self.log.write_text("\n".join([*self.restarts(), command[2]]))
            self.start(command[2])

    def restarts(self):
        return self.log.read_text().split() if self.log.exists() else []

    def both(self):
        """The CPUs, and the workers of nginx."""
        return self.count(), len(list((self.processes.folder / "proc").glob("1[0-4][0-9]"))) - 1


@pytest.fixture(name="host")
def a_host(tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog, "PAUSES_SECONDS", ())
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.01)
    for kind in find.KINDS.values():
        monkeypatch.setitem(find.KINDS, kind.name, kind._replace(settle_seconds=0.1))
    return Services(tmp_path)


def test_a_service_follows_and_follows_back_without_being_named_again(host):
    for check, after in ((True, (8, 8)), (False, (4, 4))):
        result = host.ask("disabled", consumers=NGINX, check=check)
        assert (result["changed"], result["consumers"], host.both()) == (True, STEP, after)
        assert not any("nginx" in warning for warning in result["warnings"])
    assert "8 worker processes for 8 CPUs" in result["diff"][-1]["before"]
    assert "4 CPUs, by systemctl restart nginx.service" in result["diff"][-1]["after"]
    # There is nothing left to do.
    assert host.ask("disabled", consumers=NGINX)["changed"] is False
    host.ask("restored")
    assert (*host.both(), host.saved(), host.restarts()) == (8, 8, None, ["nginx.service"] * 2)


@pytest.mark.parametrize("persist", ["none", "systemd"])
@pytest.mark.parametrize("state", ["disabled", "unchanged"])
def test_who_is_wrong_since_an_earlier_change_is_made_right_later(host, state, persist):
    """What keeps a setting over boots stays, too."""
    assert host.ask("unchanged", consumers=NGINX)["changed"] is False and host.saved() is None
    host.ask("disabled", persist=persist)
    kept = [host.read(path) for path in persistence.PATHS]
    for check, after in ((True, (4, 8)), (False, (4, 4))):
        result = host.ask(state, consumers=NGINX, persist=persist if state == "disabled" else "none", check=check)
        assert (result["changed"], bool(result["consumers"]), host.both()) == (True, True, after)
    assert [host.read(path) for path in persistence.PATHS] == kept
    host.ask("restored")
    assert host.both() == (8, 8)


def test_what_is_left_alone_is_not_named(host):
    result = host.ask("disabled", consumers=consumer_settings.Settings({"nginx": consumer_settings.NONE}))
    assert (host.both(), result["consumers"]) == ((4, 8), [])
    assert not any("nginx" in warning for warning in result["warnings"])


def fails(host):
    host.status["restart"] = 1
    host.before_command = lambda command: None


def chosen(host):
    host.before_command = lambda command: host.start("nginx.service", 8) if command == RESTART else None


def dies(host):
    def obey(command):
        host.obey(command)
        if command == RESTART and host.count() == 4:
            host.status["is-active"] = 3

    host.before_command = obey


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (fails, "systemctl restart nginx.service ended with status 1"),
        (chosen, "0.1 s after systemctl restart nginx.service it is not active with 4 CPUs (it had 8 worker processes"),
        (dies, "it is not active with 4 CPUs"),
    ],
)
def test_a_service_that_does_not_follow_ends_the_change_and_the_host_is_as_it_was(host, what, said):
    what(host)
    with pytest.raises(SmtError) as error:
        host.ask("disabled", consumers=NGINX)
    assert "nginx.service does not follow: " in str(error.value) and said in str(error.value)
    assert "The host is as it was before" in str(error.value)
    assert (*host.both(), host.saved()) == (8, 8, None)


def test_whoever_followed_before_another_one_failed_follows_back(host):
    host.start("app.service")
    # The second one, of nginx, changes nothing.
    host.before_command = lambda command: host.obey(command) if command != RESTART or host.count() == 8 else None
    with pytest.raises(SmtError, match=r"nginx.service does not follow"):
        host.ask("disabled", consumers=JAVA.over(NGINX))
    # nginx has its number still; the JVM counted four.
    assert host.both() == (8, 8) and host.restarts() == ["app.service"] * 2


def test_a_jvm_follows_once_and_only_if_it_has_counted_since(host):
    host.start("app.service")
    host.ask("disabled")
    # It has counted eight, and is not restarted when they come back.
    host.ask("enabled", consumers=JAVA)
    assert host.restarts() == []
    host.ask("disabled", consumers=JAVA)
    host.ask("disabled", consumers=JAVA)
    assert host.restarts() == ["app.service"]
    host.ask("enabled", consumers=JAVA)
    assert host.restarts() == ["app.service"] * 2


@pytest.mark.parametrize("later", [True, False])
def test_the_timer_that_rolls_back_takes_the_services_with_it(host, later):
    if later:
        host.ask("disabled", rollback_after=60)
    host.ask("disabled", consumers=NGINX, rollback_after=None if later else 60)
    assert host.both() == (4, 4)
    host.roll_back()
    assert host.both() == (8, 8)
    assert host.ask("disabled", consumers=NGINX, check=True)["consumers"] != []


def test_services_follow_back_also_where_the_kernel_refused_the_first_attempt(host):
    host.ask("disabled", consumers=NGINX, rollback_after=60, method="cpu_online")
    host.refusals = {(7, True): errno.EBUSY}
    waits = []

    def wait(_seconds):
        # It is asked for at once, and pauses after the attempt that was refused.
        waits.append(1)
        if len(waits) > 1:
            assert host.count() == 7
            host.refusals = {}
        return service.UNDO_NOW

    program.Program(host, host.pending(), wait, run_command=host.run_command).run()
    assert host.both() == (8, 8) and len(waits) > 1


def test_what_services_take_is_not_taken_from_the_time_for_the_confirmation_which_does_nothing_to_them(host):
    def obey(command):
        if command == RESTART:
            begun.append(host.pending()["since"])
        host.obey(command)

    begun = []
    host.before_command = obey
    host.ask("disabled", consumers=NGINX, rollback_after=60)
    assert host.pending()["since"] > begun[0]
    assert host.pending()["cpu"]["online"] == list(range(8)) and host.pending()["snapshot"] is None
    host.ask("disabled", consumers=NGINX, confirm=True)
    assert host.restarts() == ["nginx.service"] and host.pending() is None


def test_a_process_of_an_ordinary_user_is_named_and_left_alone(host):
    host.put("etc/login.defs", "UID_MIN 1000\n")
    shutil.rmtree(host.processes.folder / "proc/100")
    units = ("cron.service", "user@1000.service", "docker-0.scope")
    for number, unit in enumerate(units):
        host.processes.start(300 + number, ["java"], "java", unit=unit, uid=1000, mask="0-7")
    result = host.ask("disabled", consumers=JAVA)
    assert result["consumers"] == [] and host.restarts() == []
    named = [one for one in result["warnings"] if "it is no service of the system, and is left alone" in one]
    assert [any(one.startswith(f"{unit} has a JVM") for one in named) for unit in units] == [True] * 3


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ({"apache": "restart"}, "consumers names 'apache': the kinds are haproxy, java, kubelet, nginx"),
        ({"nginx": "reload"}, "'reload' for nginx: it takes restart or none. To make it right, restart it"),
        ({"nginx": ["restart"]}, "consumers has ['restart'] for nginx"),
    ],
)
def test_what_cannot_be_asked_for_is_said(actions, text):
    with pytest.raises(consumer_settings.ConsumerError, match=re.escape(text)):
        consumer_settings.parse({"actions": actions, "custom": []})


CUSTOM = {"unit": "in*.service", "number": ["count", "{unit}"], "remedy": ["recount", "{unit}"]}
OWN = consumer_settings.parse({"actions": {}, "custom": [CUSTOM]})


class Own(Services):
    """A host with a service that a user has declared."""

    def __init__(self, sysroot):
        super().__init__(sysroot)
        self.number, self.output = 8, None

    def run_command(self, command):
        status, output, errors = super().run_command(command)
        if command[:2] == ["systemctl", "list-units"]:
            assert command[-2:] == ["--", "in*.service"]
            output = "ingest.service loaded active running Ours\n--now.service x\nbad name.service\n"
        if command[0] == "count":
            assert command == ["count", "ingest.service"]
            output = f"{self.number}\n" if self.output is None else self.output
        if command == ["recount", "ingest.service"]:
            self.number = self.count()
        return status, output, errors


@pytest.fixture(name="own")
def a_host_with_its_own(tmp_path, host):
    return Own(tmp_path)


@pytest.mark.parametrize(("number", "steps", "after"), [(8, ["ingest.service: recount ingest.service"], 4), (6, [], 6)])
def test_a_users_own_service_follows_and_follows_back_but_not_with_a_number_of_its_own(own, number, steps, after):
    own.number = number
    assert own.ask("disabled", consumers=OWN, check=True)["consumers"] == steps and own.number == number
    own.ask("disabled", consumers=OWN)
    assert own.number == after
    own.ask("restored")
    assert own.number == number


@pytest.mark.parametrize("output", ["", "eight\n", "8 workers\n", "-1\n", "\x1b[31m8\n", "9" * 99], ids=repr)
def test_a_number_that_is_none_ends_the_change_before_it_begins(own, output):
    own.output = output
    for check in (True, False):
        with pytest.raises(ChangeRefusedError, match="has to print a number") as error:
            own.ask("disabled", consumers=OWN, check=check)
        assert str(error.value).isprintable()
    assert own.count() == 8


def test_switches_that_cannot_be_read_are_said_and_forgotten_and_those_of_another_boot_say_nothing(tmp_path, host):
    host.ask("disabled")
    fs = host_files.HostFs(str(tmp_path))
    assert len(history.load(fs, [0]).earlier) == 1
    text = host.read(history.PATH)
    host.put(history.PATH, text.replace('"switches": [', '"switches": [[1], '))
    assert host.read(history.PATH) != text
    assert history.load(fs, [0]).earlier == () and "online earlier is not known" in fs.problems[0]
    host.put(history.PATH, text)
    host.boot("second")
    assert history.load(fs, [0]).earlier == () and len(fs.problems) == 1


def test_the_facts_name_who_is_wrong_since_a_change_and_who_would_be_before_anybody_switches(tmp_path, host):
    def known(*names):
        found = facts.gather(host_files.HostFs(str(tmp_path)))
        return [found[name] for name in ("consumers", "consumers_after_switch")]

    now, after = known()
    assert now == [] and [(one["unit"], one["counted"], one["cpus"]) for one in after] == [("nginx.service", 8, 4)]
    host.ask("disabled")
    ((one,), after) = known()
    assert after == [] and (one["program"], one["unit"], one["is_service"]) == ("nginx", "nginx.service", True)
    assert (one["counted"], one["cpus"]) == (8, 4) and one["has"].endswith("8 worker processes for 8 CPUs")
    host.ask("disabled", consumers=NGINX)
    assert known()[0] == []
    # Enough are enough.
    for pid in range(1000, 1101):
        host.processes.start(pid, ["java"], "java", unit=f"app-{pid}.service", mask="0-7")
    assert len(known()[0]) == find.MAX_FACTS


ALL, FIRST = range(4), (0, 2)
WORKERS = (
    "nginx.service has {} worker processes for {} CPUs, and {} have {}: restart it, as a reload keeps the number, or"
    " edit worker_processes where that is a number"
)
JVM = "{} has a JVM with its garbage collector and pools for {}, and will have {}: restart it"


class Counting(counting.Processes):
    """What is said of its processes."""

    def said(self, before=ALL, after=FIRST):
        change = base.Online(frozenset(after), ((math.inf, frozenset(before)),))
        return follow.Consumers(self.files, consumer_settings.NOTHING, None).warnings(change, True)


@pytest.fixture(name="found")
def processes_that_count(tmp_path):
    return Counting(tmp_path)


@pytest.mark.parametrize(
    ("workers", "before", "after", "gets"),
    # Siblings that come back are not used either; a number that was chosen is nobody's mistake.
    [(4, ALL, FIRST, 2), (4, ALL, ALL, None), (2, FIRST, ALL, 4), (3, ALL, FIRST, None), (8, ALL, FIRST, None)],
)
def test_nginx_keeps_a_worker_for_each_cpu_of_its_start(found, workers, before, after, gets):
    found.nginx(workers)
    assert found.said(before, after) == ([WORKERS.format(workers, workers, "will", gets)] if gets else [])


def test_a_jvm_counts_the_cpus_that_it_may_run_on(found):
    found.start(200, ["/usr/bin/java", "-jar", "app.jar"], "java", unit="app.service")
    found.start(201, ["java"], "java", unit="bound.service", mask="0,2")
    found.start(202, ["java", "-XX:ActiveProcessorCount=4"], "java", unit="given.service")
    found.start(203, ["java"], "java", mask="1-3")
    # Bound to CPUs that go offline: an affinity conflict.
    found.start(204, ["java"], "java", mask="1,3")
    assert found.said() == [JVM.format("app.service", "4 CPUs", 2), JVM.format("java (pid 203)", "3 CPUs", 1)]
    assert JVM.format("java (pid 203)", "1 CPU", 3) in found.said(before=FIRST, after=ALL)


def test_a_jvm_counts_no_more_cpus_than_the_smallest_quota_of_its_cgroups_has(found):
    (found.folder / "proc/self").mkdir(parents=True)
    (found.folder / "proc/self/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    # Two CPUs are two before and after; two and a half are three.
    for pid, (unit, limit) in enumerate({"two": "200000", "half": "250000", "none": "max"}.items(), 200):
        found.start(pid, ["java"], "java", unit=f"{unit}.service")
        group = found.folder / f"sys/fs/cgroup/system.slice/{unit}.service"
        group.mkdir(parents=True)
        (group / "cpu.max").write_text(f"{limit} 100000\n")
    assert found.said() == [JVM.format("half.service", "3 CPUs", 2), JVM.format("none.service", "4 CPUs", 2)]


def test_haproxy_has_a_thread_for_each_cpu(found):
    found.start(300, ["/usr/sbin/haproxy", "-Ws"], "haproxy", unit="haproxy.service")
    found.start(301, ["/usr/sbin/haproxy", "-Ws"], "haproxy", 300, "haproxy.service", threads=4)
    # Those that are no children of each other are distinguished by their units.
    found.start(399, ["haproxy"], "haproxy", unit="edge.service", threads=4)
    found.start(400, ["haproxy"], "haproxy", unit="chosen.service", threads=3)
    remedy = "has 4 threads for 4 CPUs, and will have 2: reload it, or edit nbthread where that is a number"
    assert found.said() == [f"{unit}.service {remedy}" for unit in ("haproxy", "edge")]


def test_whatever_a_process_calls_itself_is_one_line_and_many_are_counted(found):
    found.start(1, ["java"], "java", unit="\x1b[31mred\x07.service")
    found.start(2, [], "java")
    (found.folder / "proc" / "3").mkdir()
    (found.folder / "proc" / "3" / "comm").write_text("nginx\n")
    for pid in range(100, 140):
        found.start(pid, ["java"], "java", unit=f"app-{pid}.service")
    said = found.said()
    assert len(said) == follow.MAX_SENTENCES + 1 and said[-1] == "22 more programs count CPUs when they start"
    assert all(sentence.isprintable() for sentence in said)


@pytest.mark.parametrize("check", [True, False])
def test_a_change_says_who_will_be_wrong_and_check_mode_says_it_too(tmp_path, check):
    host = fake_host.Host(tmp_path)
    Counting(tmp_path).nginx(8)

    def said(*asked, **options):
        return [one for one in host.ask(*asked, **options)["warnings"] if "nginx" in one]

    assert said("disabled", check=check) == [WORKERS.format(8, 8, "will", 4)]
    # What changes nothing says who is wrong since.
    wrong = WORKERS.format(8, 8, "now", 4).replace("now have", "now has")
    assert said("enabled" if check else "disabled") == [wrong][check:]
