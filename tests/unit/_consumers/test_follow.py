# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that follow a change of CPUs, and follow it back whatever becomes of it."""

from __future__ import annotations

import errno
import shutil

import counting
import fake_host
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._consumers import (
    find,
    follow,
    history,
    settings as consumer_settings,
)
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._resident import service
from ansible_collections.threadwise.smt.plugins.module_utils._smt import watchdog
from ansible_collections.threadwise.smt.plugins.module_utils._smt.at_boot import persistence
from ansible_collections.threadwise.smt.plugins.module_utils._smt.change import ChangeRefusedError
from ansible_collections.threadwise.smt.plugins.module_utils._smt.errors import SmtError
from ansible_collections.threadwise.smt.plugins.module_utils._smt.rollback import program

NGINX = consumer_settings.Settings({"nginx": "restart"})
RESTART = ["systemctl", "restart", "nginx.service"]
ONLINE = "sys/devices/system/cpu/online"


class Services(fake_host.Host):
    """A host whose services count its CPUs when systemctl restarts them."""

    def __init__(self, sysroot):
        super().__init__(sysroot)
        self.processes = counting.Processes(sysroot)
        self.before_command = self.obey
        self.does = lambda _service: None  # what a restart does beside
        self.log = sysroot / "log"
        self.start("nginx.service")

    def count(self):
        return len(cpulist.parse(self.read(ONLINE)))

    def start(self, service, number=None):
        number = number or self.count()
        first = {"nginx.service": 100, "app.service": 200}[service]
        for pid in range(first, first + 50):
            shutil.rmtree(self.processes.folder / "proc" / str(pid), ignore_errors=True)
        now = history.ticks()
        if service == "app.service":
            self.processes.start(first, ["java"], "java", unit=service, mask="0-7", started=now)
            return
        self.processes.start(first, ["nginx: master process"], "nginx", unit=service, started=now)
        for pid in range(first + 1, first + 1 + number):
            self.processes.start(pid, ["nginx: worker process"], "nginx", first, service, started=now)

    def obey(self, command):
        with self.log.open("a") as log:
            log.write(" ".join(command) + "\n")
        if command[:2] == ["systemctl", "restart"]:
            self.start(command[2])

    def workers(self):
        return len(list((self.processes.folder / "proc").glob("1[0-4][0-9]"))) - 1

    def restarts(self):
        return [line.split()[-1] for line in self.log.read_text().splitlines() if " restart " in line]


@pytest.fixture(name="host")
def a_host(tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog, "PAUSES_SECONDS", ())
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.01)
    for kind in find.KINDS.values():
        monkeypatch.setitem(find.KINDS, kind.name, kind._replace(settle_seconds=0.1))
    return Services(tmp_path)


def test_a_service_follows_and_follows_back_without_being_named_again(host):
    assert host.workers() == 8
    result = host.ask("disabled", consumers=NGINX)
    assert (host.count(), host.workers()) == (4, 4)
    assert result["consumers"] == ["nginx.service: systemctl restart nginx.service"]
    assert not any("nginx" in warning for warning in result["warnings"])
    assert "nginx.service: 8 worker processes for 8 CPUs" in result["diff"][-1]["before"]
    assert "nginx.service: 4 CPUs, by systemctl restart nginx.service" in result["diff"][-1]["after"]
    # There is nothing left to do.
    assert host.ask("disabled", consumers=NGINX)["changed"] is False
    host.ask("restored")
    assert (host.count(), host.workers(), host.saved()) == (8, 8, None)
    assert host.restarts() == ["nginx.service"] * 2


def test_check_mode_says_the_same_and_does_nothing(host):
    result = host.ask("disabled", consumers=NGINX, check=True)
    assert (result["changed"], result["consumers"]) == (True, ["nginx.service: systemctl restart nginx.service"])
    assert host.workers() == 8 and RESTART not in host.commands


def test_who_is_wrong_since_an_earlier_change_is_made_right_later(host):
    host.ask("disabled")
    assert host.workers() == 8
    for check in (True, False):
        result = host.ask("disabled", consumers=NGINX, check=check)
        assert (result["changed"], bool(result["consumers"])) == (True, True)
    assert host.workers() == 4
    host.ask("restored")
    assert host.workers() == 8


def test_what_is_left_alone_is_not_named(host):
    result = host.ask("disabled", consumers=consumer_settings.Settings({"nginx": consumer_settings.NONE}))
    assert (host.workers(), result["consumers"]) == (8, [])
    assert not any("nginx" in warning for warning in result["warnings"])


def test_a_service_that_fails_ends_the_change_and_the_host_is_as_it_was(host):
    host.status["restart"] = 1
    host.before_command = lambda command: None
    with pytest.raises(
        SmtError, match=r"nginx.service does not follow: systemctl restart nginx.service ended with"
    ) as error:
        host.ask("disabled", consumers=NGINX)
    assert "The host is as it was before" in str(error.value)
    assert (host.count(), host.workers(), host.saved()) == (8, 8, None)


def test_whoever_followed_before_another_one_failed_follows_back(host):
    host.start("app.service")
    both = consumer_settings.Settings({"nginx": "restart", "java": "restart"})

    def obey(command):
        # The second one, of nginx, changes nothing.
        if command != RESTART or host.count() == 8:
            host.obey(command)

    host.before_command = obey
    with pytest.raises(
        SmtError, match=r"nginx.service does not follow: 0.1 s after .* not active with 4 CPUs"
    ) as error:
        host.ask("disabled", consumers=both)
    assert "The host is as it was before" in str(error.value)
    assert (host.count(), host.workers()) == (8, 8)
    # nginx has its number still; the JVM counted four.
    assert host.restarts() == ["app.service"] * 2


def test_a_number_that_somebody_chose_does_not_follow(host):
    host.before_command = lambda command: host.start("nginx.service", 8) if command == RESTART else None
    with pytest.raises(SmtError, match="does not follow"):
        host.ask("disabled", consumers=NGINX)
    assert (host.count(), host.workers()) == (8, 8)


def test_a_service_that_dies_of_its_restart_ends_the_change(host):
    def obey(command):
        host.obey(command)
        if command == RESTART and host.count() == 4:
            host.status["is-active"] = 3

    host.before_command = obey
    with pytest.raises(SmtError, match="it is not active with 4 CPUs"):
        host.ask("disabled", consumers=NGINX)
    assert (host.count(), host.workers()) == (8, 8)


def test_a_jvm_follows_once_and_only_if_it_has_counted_since(host):
    host.start("app.service")
    java = consumer_settings.Settings({"java": "restart"})
    host.ask("disabled")
    # It has counted eight, and is not restarted when they come back.
    host.ask("enabled", consumers=java)
    assert not host.log.exists() or host.restarts() == []
    host.ask("disabled", consumers=java)
    host.ask("disabled", consumers=java)
    assert host.restarts() == ["app.service"]
    host.ask("enabled", consumers=java)
    assert host.restarts() == ["app.service"] * 2


def test_the_timer_that_rolls_back_takes_the_services_with_it(host):
    host.ask("disabled", consumers=NGINX, rollback_after=60)
    assert (host.count(), host.workers()) == (4, 4)
    host.roll_back()
    assert (host.count(), host.workers()) == (8, 8)
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
    assert (host.count(), host.workers(), len(waits) > 1) == (8, 8, True)


def test_what_services_take_is_not_taken_from_the_time_for_the_confirmation(host):
    def obey(command):
        if command == RESTART:
            begun.append(host.pending()["since"])
        host.obey(command)

    begun = []
    host.before_command = obey
    host.ask("disabled", consumers=NGINX, rollback_after=60)
    assert host.pending()["since"] > begun[0]
    assert host.pending()["cpu"]["online"] == list(range(8)) and host.pending()["snapshot"] is None


def test_a_rollback_of_what_followed_later_takes_it_too(host):
    host.ask("disabled", rollback_after=60)
    host.ask("disabled", consumers=NGINX)
    assert host.workers() == 4
    host.roll_back()
    assert (host.count(), host.workers()) == (8, 8)


def test_a_confirmation_does_nothing_to_services(host):
    host.ask("disabled", consumers=NGINX, rollback_after=60)
    host.ask("disabled", consumers=NGINX, confirm=True)
    assert host.restarts() == ["nginx.service"] and host.pending() is None


def test_a_process_of_an_ordinary_user_is_named_and_left_alone(host):
    host.put("etc/login.defs", "UID_MIN 1000\n")
    shutil.rmtree(host.processes.folder / "proc")
    for number, unit in enumerate(("cron.service", "user@1000.service", "docker-0.scope")):
        host.processes.start(300 + number, ["java"], "java", unit=unit, uid=1000, mask="0-7")
    (host.processes.folder / "proc/self").mkdir()
    host.put("proc/sys/kernel/random/boot_id", "first")
    host.put("proc/self/mounts", "")
    result = host.ask("disabled", consumers=consumer_settings.Settings({"java": "restart"}))
    assert result["consumers"] == [] and not host.log.exists()
    for unit in ("cron.service", "user@1000.service", "docker-0.scope"):
        assert any(
            one.startswith(f"{unit} has a JVM") and "it is no service of the system, and is left alone" in one
            for one in result["warnings"]
        )


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ({"apache": "restart"}, "consumers names 'apache': the kinds are haproxy, java, kubelet, nginx"),
        (
            {"nginx": "reload"},
            "consumers has 'reload' for nginx: it takes restart or none. To make it right, ",
        ),
        ({"nginx": ["restart"]}, r"consumers has \['restart'\] for nginx"),
    ],
)
def test_what_cannot_be_asked_for_is_said(actions, text):
    with pytest.raises(consumer_settings.ConsumerError, match=text):
        consumer_settings.parse({"actions": actions, "custom": []})


OWN = consumer_settings.parse(
    {
        "actions": {},
        "custom": [{"unit": "in*.service", "number": ["count", "{unit}"], "remedy": ["recount", "{unit}"]}],
    }
)


class Own(Services):
    """A host with a service that a user has declared."""

    def __init__(self, sysroot, number=8):
        super().__init__(sysroot)
        self.number, self.output = number, None

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


def test_a_users_own_service_follows_and_follows_back(own):
    assert own.ask("disabled", consumers=OWN, check=True)["consumers"] == ["ingest.service: recount ingest.service"]
    assert own.number == 8
    own.ask("disabled", consumers=OWN)
    assert own.number == 4
    own.ask("restored")
    assert own.number == 8


def test_a_users_own_service_with_a_number_of_its_own_is_left_alone(own):
    own.number = 6
    assert own.ask("disabled", consumers=OWN)["consumers"] == []
    assert own.number == 6


@pytest.mark.parametrize("output", ["", "eight\n", "8 workers\n", "-1\n", "\x1b[31m8\n", "9" * 99], ids=repr)
def test_a_number_that_is_none_ends_the_change_before_it_begins(own, output):
    own.output = output
    for check in (True, False):
        with pytest.raises(ChangeRefusedError, match=r"has to print a number, .* Nothing was changed") as error:
            own.ask("disabled", consumers=OWN, check=check)
        assert str(error.value).isprintable()
    assert own.count() == 8


def test_switches_that_cannot_be_read_are_said_and_forgotten(tmp_path, host):
    host.ask("disabled")
    host.put(
        history.PATH,
        '{"schema": "threadwise.smt/switches", "schema_version": 1, "boot_id": "first", "switches": [[1]]}',
    )
    fs = host_files.HostFs(str(tmp_path))
    assert history.load(fs, [0]).earlier == ()
    assert "Which CPUs were online earlier is not known" in fs.problems[0]


def test_switches_of_another_boot_say_nothing(tmp_path, host):
    host.ask("disabled")
    fs = host_files.HostFs(str(tmp_path))
    assert len(history.load(fs, [0]).earlier) == 1
    host.boot("second")
    assert history.load(fs, [0]).earlier == ()


def test_the_facts_name_who_is_wrong_since_a_change_and_nobody_before(tmp_path, host):
    def known():
        return facts.gather(host_files.HostFs(str(tmp_path)))["consumers"]

    assert known() == []
    host.ask("disabled")
    (one,) = known()
    assert (one["program"], one["unit"], one["is_service"]) == ("nginx", "nginx.service", True)
    assert (one["counted"], one["cpus"]) == (8, 4)
    assert one["has"] == "nginx.service has 8 worker processes for 8 CPUs"
    host.ask("disabled", consumers=NGINX)
    assert known() == []


def test_a_hundred_are_enough_for_facts(tmp_path, host):
    host.ask("disabled")
    for pid in range(1000, 1200):
        host.processes.start(pid, ["java"], "java", unit=f"app-{pid}.service", mask="0-7")
    assert len(facts.gather(host_files.HostFs(str(tmp_path)))["consumers"]) == find.MAX_FACTS


@pytest.mark.parametrize("persist", ["none", "systemd"])
def test_cpus_that_stay_and_services_that_are_made_right(host, persist):
    """What keeps a setting over boots stays, too."""
    host.ask("disabled", persist=persist)
    kept = [host.read(path) for path in persistence.PATHS]
    result = host.ask("unchanged", consumers=NGINX, check=True)
    assert (result["changed"], host.count(), host.workers()) == (True, 4, 8)
    result = host.ask("unchanged", consumers=NGINX)
    assert (result["changed"], host.count(), host.workers()) == (True, 4, 4)
    assert [host.read(path) for path in persistence.PATHS] == kept
    assert host.ask("unchanged", consumers=NGINX)["changed"] is False
    host.ask("restored")
    assert (host.count(), host.workers()) == (8, 8)


def test_where_nothing_was_changed_unchanged_changes_nothing(host):
    assert host.ask("unchanged", consumers=NGINX)["changed"] is False and host.saved() is None
