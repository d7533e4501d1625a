# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks of a policy over simulated hosts: rollout, rollback, going on, compliance, decisions from evidence."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import re
import shlex
import signal
import time

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._rollback import record
from simulated_fleet import Fleet
from this_machine import this_machine

HOSTS = ["h1", "h2", "h3", "h4", "h5"]
WAVES = {"smt_policy": "disabled", "smt_enforce_waves": [1, 2, 3], "smt_policy_scope": "both"}
COMPLIANCE = {"smt_policy": "disabled", "smt_policy_scope": "both"}
DONE = ["smt false", 'configured ["nosmt"]']
HEALTH = (
    "- name: Look\n  ansible.builtin.fail:\n    msg: the service is down\n  when: inventory_hostname in (sick |"
    " default([]))\n"
)
# Leaves word that a host's change is done and its health not yet known, and waits there for ever.
HELD = (
    "- name: Leave word\n  ansible.builtin.file:\n    path: '{{ held }}/{{ inventory_hostname }}'\n    state: touch\n  "
    "  mode: '0600'\n- name: Wait\n  ansible.builtin.wait_for:\n    path: '{{ held }}/never'\n    timeout: 3600\n "
    " when: inventory_hostname in waiting\n"
)
GONE = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}


def table(seen):
    """The last table of verdicts: host -> status."""
    lines = seen[seen.rindex("host  ") :].splitlines()[2:]
    return {line.split()[0]: line.split()[1] for line in lines[: lines.index("")]}


def recap(seen, counter):
    """The hosts that the last recap counts so."""
    return set(re.findall(rf"^(\S+) +:.* {counter}=[1-9]", seen[seen.rindex("PLAY RECAP") :], re.MULTILINE))


@pytest.fixture(name="fleet")
def _fleet(tmp_path):
    fleet = Fleet(tmp_path, {name: {} for name in HOSTS})
    (tmp_path / "health.yml").write_text(HEALTH)
    return fleet


def kill_in_wave_of(fleet, *hosts):
    """A rollout that is killed when these are changed and the health of the last is not known;
    the waves before are done.
    """
    (fleet.directory / "held.yml").write_text(HELD)
    held = fleet.directory / "held"
    held.mkdir()
    with fleet.start(
        "smt_enforce", **WAVES, smt_enforce_health_check="held.yml", held=str(held), waiting=[hosts[-1]]
    ) as process:
        while not all((held / host).exists() for host in hosts):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    # Ansible's workers have sessions of their own and outlive that; what they wait for on the host comes now, and they
    # have nobody to tell.
    (held / "never").touch()
    while fleet.at_work():
        time.sleep(0.1)


@pytest.mark.night
def test_a_rollout_is_checked_done_once_also_when_it_is_killed_and_kept(fleet):
    code, seen = fleet.play("smt_enforce", "--check", **WAVES)
    assert code == 0 and set(table(seen).values()) == {"drifted"}, seen
    assert "wave 1: h1\nwave 2: h2, h3\nwave 3: h4, h5\n" in seen
    assert fleet.changes() == {} and "changed=0" not in seen.split("PLAY RECAP")[1]

    kill_in_wave_of(fleet, "h2", "h3")
    code, seen = fleet.play("smt_compliance", **COMPLIANCE)
    assert re.search("h2 +compliant .* changed by a rollout that was interrupted", seen) and not re.search(
        "h1 .*interrupted", seen
    ), seen

    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml")
    assert (
        code == 0
        and set(table(seen).values()) == {"compliant"}
        and "interrupted" not in seen.rpartition("wave 1: h2, h3")[2]
    ), seen
    assert fleet.changes() == dict.fromkeys(HOSTS, DONE), "nothing is done twice"
    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml", sick=HOSTS)
    assert code == 0 and fleet.changes() == {}, "nobody waits for a health check any more"
    fleet.calls()

    fleet.set("h2", smt=True)
    fleet.set("h5", configured=[])
    code, seen = fleet.play("smt_compliance", **COMPLIANCE)
    assert code == 2 and {host for host, status in table(seen).items() if status == "drifted"} == {"h2", "h5"}, seen
    assert recap(seen, "failed") == {"h2", "h5"} and recap(seen, "unreachable") == set()
    assert (
        "running: smt/control reads 'on' instead of off; CPUs 2-3 are online" in seen
        and "configured: nosmt is missing" in seen
    )
    assert json.loads((fleet.directory / "smt_compliance.json").read_text())["counts"]["drifted"] == 2
    assert (
        'threadwise_smt_drifted{host="h5",hardware_class="x86_64-1s2c4t-split-00000000",aspect="configured"} 1'
        in (fleet.directory / "smt_compliance.prom").read_text()
    )
    assert fleet.changes() == {}
    assert set(fleet.calls().values()) == {1}, "a host costs one module call"

    code, seen = fleet.play("smt_enforce", **WAVES)
    assert code == 0 and set(table(seen).values()) == {"compliant"}, seen
    assert fleet.changes() == {"h2": ["smt false"], "h5": ['configured ["nosmt"]']}
    assert {host: calls for host, calls in fleet.calls().items() if calls > 1} == {"h2": 3, "h5": 3}

    code, seen = fleet.play("smt_enforce", "--check", **WAVES)
    assert code == 0 and set(table(seen).values()) == {"compliant"}, seen


@pytest.mark.night
def test_a_wave_that_fails_is_rolled_back_also_after_a_kill_and_the_next_run_goes_on(fleet):
    fleet.set("h3", configured=["nosmt"])
    before = dict({host: [] for host in HOSTS}, h1=["nosmt"], h3=["nosmt"])
    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml", sick=["h3"])
    assert code != 0 and "h3 was brought back to the state before the wave (smt true): the service is down" in seen, (
        seen
    )
    assert (
        r"h2 was brought back to the state before the wave (configured [] and smt true): too many hosts of its wave"
        r" failed: h3" in seen
    )
    assert fleet.get("smt") == {name: name != "h1" for name in HOSTS}
    assert fleet.get("configured") == before, "what was there before is back, not a guess"
    assert set(fleet.changes()) == {"h1", "h2", "h3"}

    kill_in_wave_of(fleet, "h2", "h3")
    assert fleet.get("smt") == {name: name in ("h4", "h5") for name in HOSTS}
    fleet.changes()
    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml", sick=["h2"])
    assert (
        code != 0
        and "h2 was brought back to the state before the wave (configured [] and smt true): the service is down" in seen
    ), seen
    assert fleet.get("smt") == {name: name != "h1" for name in HOSTS}
    assert fleet.get("configured") == before, "what was there before the first rollout"
    assert set(fleet.changes()) == {"h2", "h3"}

    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="health.yml")
    assert code == 0 and "wave 1: h2, h3\nwave 2: h4, h5\n" in seen, seen
    assert set(fleet.get("smt").values()) == {False}
    assert "h1" not in fleet.changes(), "nothing is done twice"


@pytest.mark.parametrize(
    "text",
    [None, "- name: [", "tasks: []", "- nosuch.collection.module: {}"],
    ids=["missing", "no YAML", "no list", "no module"],
)
def test_a_health_check_that_cannot_be_run_ends_the_rollout_before_any_change(tmp_path, text):
    fleet = Fleet(tmp_path, {"h1": {}, "h2": {}})
    if text is not None:
        (fleet.directory / "odd.yml").write_text(text)
    code, seen = fleet.play("smt_enforce", **WAVES, smt_enforce_health_check="odd.yml")
    # Before ansible-core 2.19 Ansible names the file in most of its messages.
    assert (
        code != 0
        and fleet.changes() == {}
        and ("odd.yml" in seen or "included task files must contain a list of tasks" in seen)
    ), seen


@pytest.mark.night
def test_few_failures_of_a_wave_stop_nothing_but_those_of_the_same_group(tmp_path):
    fleet = Fleet(
        tmp_path, {name: {"smt_policy_group": "db"} if name in ("h1", "h3", "h4") else {} for name in (*HOSTS, "h6")}
    )
    (tmp_path / "health.yml").write_text(HEALTH)
    code, seen = fleet.play(
        "smt_enforce",
        smt_policy="disabled",
        smt_enforce_waves=[2],
        smt_enforce_health_check="health.yml",
        sick=["h1"],
        smt_enforce_max_fail_percentage=60,
    )
    assert "wave 1: h1, h2\nwave 2: h3, h5\nwave 3: h4, h6\n" in seen, "hosts of a group are never in one wave"
    assert code != 0 and fleet.get("smt") == {name: name in ("h1", "h3", "h4") for name in fleet.hosts}, seen
    assert table(seen)["h1"] == "drifted" and "h2 was brought back" not in seen
    assert "h3 was left as it was: h1 of its smt_policy_group db failed before it" in seen
    assert "h4 was left as it was: h3 of its smt_policy_group db failed before it" in seen and set(fleet.changes()) == {
        "h1",
        "h2",
        "h5",
        "h6",
    }


@pytest.mark.night
def test_a_host_whose_change_waits_for_its_confirmation_is_named_and_left_alone(tmp_path):
    fleet = Fleet(tmp_path, {"h1": {}, "h2": {}})
    fleet.set("h1", pending_change={"by": "for user jo", "seconds_left": 90})
    (tmp_path / "role.yml").write_text("- hosts: h1\n  gather_facts: false\n  roles: [threadwise.smt.smt_policy]\n")
    for playbook in ("smt_enforce", "role.yml"):
        code, seen = fleet.play(playbook, smt_policy="disabled", smt_policy_reboot_ok=True, smt_policy_scope="both")
        assert (
            code == 2
            and "a change for user jo waits for its confirmation, and is rolled back in about 90 s without it:" in seen
        ), seen
    assert set(fleet.changes()) == {"h2"}


@pytest.mark.night
def test_without_a_rollout_the_role_can_be_rolled_back_too(tmp_path):
    fleet = Fleet(tmp_path, {"h1": {}})
    role = "  - ansible.builtin.include_role: {{name: threadwise.smt.smt_policy{more}}}\n"
    play = "- hosts: h1\n  gather_facts: false\n  tasks:\n" + role.format(more="")
    (tmp_path / "there.yml").write_text(play)
    (tmp_path / "back.yml").write_text(
        play + "  - ansible.builtin.debug: {var: smt_policy_before}\n" + role.format(more=", tasks_from: back")
    )
    code, seen = fleet.play("there.yml", **COMPLIANCE)
    assert code == 0 and fleet.changes() == {"h1": DONE}, seen
    code, seen = fleet.play("smt_compliance", **COMPLIANCE)
    assert code == 0 and "interrupted" not in seen, "nobody waits for it"
    code, seen = fleet.play("back.yml", **COMPLIANCE, smt_policy_classes={"x86_64-1s2c4t-split-00000000": "enabled"})
    assert code == 0 and '"smt_policy_before": "configured [\\"nosmt\\"] and smt false"' in seen, seen
    assert (fleet.get("smt"), fleet.get("configured")) == (
        {"h1": False},
        {"h1": ["nosmt"]},
    ), "the state before the last change, not before the first"


@pytest.mark.night
def test_a_group_waits_for_its_host_that_is_gone_and_the_others_for_nobody(tmp_path):
    fleet = Fleet(
        tmp_path,
        {
            "h1": dict(GONE, smt_policy_group="db"),
            "h2": {"smt_policy_group": "db"},
            "h3": {"smt_policy_group": ""},
            "h4": GONE,
        },
    )
    code, seen = fleet.play("smt_enforce", smt_policy="disabled")
    assert code != 0 and table(seen) == {
        "h1": "unreachable",
        "h2": "drifted",
        "h3": "compliant",
        "h4": "unreachable",
    }, seen
    assert "h2 is left out: h1 of its smt_policy_group db cannot be reached" in seen
    code, seen = fleet.play("smt_enforce", "--limit", "h2,h3", smt_policy="disabled")
    assert code == 0, seen


@pytest.mark.night
def test_a_controller_without_ssh_says_so_once_for_all_hosts_and_asks_the_others(tmp_path):
    lost = {"ansible_connection": "ssh", "ansible_ssh_executable": "no-such-ssh"}
    fleet = Fleet(tmp_path, {"h1": lost, "h2": {"smt_policy": "auto"}, "h3": lost, "h4": {"smt_policy": "enabled"}})
    message = "this controller has no no-such-ssh, which 2 of 4 hosts need for their connection (h1, h3): install it"
    code, seen = fleet.play("smt_compliance", smt_policy_results="nowhere")
    assert code == 4 and table(seen) == {
        "h1": "unreachable",
        "h3": "unreachable",
        "h2": "unknown",
        "h4": "compliant",
    }, seen
    assert recap(seen, "failed") == {"h2"} and recap(seen, "unreachable") == {"h1", "h3"}
    assert " ".join(seen.split()).count(message) == 1 and "Unable to execute" not in seen
    assert "the results cannot be read: nowhere" in seen, (
        "what is done once is done, although the first host is not reached"
    )
    code, seen = fleet.play("smt_survey")
    assert code == 4 and "4 hosts: " in seen and "2 without facts." in seen, seen
    assert (
        "Unable to execute" not in seen
        and recap(seen, "failed") == set()
        and recap(seen, "unreachable") == {"h1", "h3"}
    )


@pytest.mark.night
def test_a_policy_for_a_part_of_the_machine(tmp_path):
    """It reaches smt_state as it was written.

    A host that does not have the part gets a sentence, and others are changed.
    """
    policies = {
        "h1": {"disabled_on": {"package": 0}},
        "h2": {"disabled_on": {"node": 3}},
        "h3": "disabled",
        "h4": {"disabled_on": {"unit": "db.service"}},
    }
    fleet = Fleet(
        tmp_path,
        {host: {"smt_policy": policy, "smt_runtime_cores": {"cpus": "0-1"}} for host, policy in policies.items()},
    )
    code, seen = fleet.play("smt_enforce", smt_enforce_waves=["100%"])
    assert code == 2 and fleet.changes() == {"h1": ['cores {"package": 0}', "smt false"], "h3": ["smt false"]}, seen
    assert table(seen) == {"h1": "compliant", "h2": "bad_policy", "h3": "compliant", "h4": "bad_policy"}, seen
    assert "disabled_on: there is no node 3 on this host: it has nodes 0" in seen
    assert "a policy is compared with the facts of a host, which have no units" in seen
    fleet.calls()
    fleet.play("smt_compliance")
    assert fleet.calls()["h4"] == 0, "what no host could have takes no call"


def test_each_host_that_is_not_as_wanted_fails_itself_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("ANSIBLE_STRATEGY", "free")
    policies = {
        "h1": "disabled",
        "h2": "enabled",
        "h3": "disabledd",
        "h4": "auto",
        "h5": None,
        "h6": "enabled",
        "h7": "enabled",
    }
    fleet = Fleet(
        tmp_path,
        {host: {"smt_policy": policy} if policy else {} for host, policy in policies.items()}
        | {"h6": dict(GONE, smt_policy="enabled")},
    )
    statuses = {
        "h1": "drifted",
        "h2": "compliant",
        "h3": "bad_policy",
        "h4": "unknown",
        "h5": "bad_policy",
        "h6": "unreachable",
        "h7": "compliant",
    }
    code, seen = fleet.play("smt_compliance", smt_policy_results="nowhere")
    assert code == 4 and table(seen) == statuses, seen
    assert recap(seen, "failed") == {"h1", "h3", "h4", "h5"} and recap(seen, "unreachable") == {"h6"}, (
        "the compliant ones are neither"
    )
    written = json.loads((tmp_path / "smt_compliance.json").read_text())
    assert {host["host"]: host["status"] for host in written["hosts"]} == statuses
    assert written["counts"] == {
        "compliant": 2,
        "waived": 0,
        "drifted": 1,
        "bad_policy": 2,
        "unknown": 1,
        "unreachable": 1,
        "silent": 0,
        "unknown_to_server": 0,
    }
    assert fleet.calls() == {
        "h1": 1,
        "h2": 1,
        "h3": 0,
        "h4": 1,
        "h5": 0,
        "h6": 0,
        "h7": 1,
    }, "what is known beforehand takes no call"

    # The first host alone decides nothing; without the one that is gone the code is another.
    code, seen = fleet.play("smt_enforce", "--check", "--limit", "!h6", smt_policy_results="nowhere")
    assert code == 2 and recap(seen, "failed") == {"h3", "h4", "h5"}, "what would be changed is no error"
    code, seen = fleet.play("smt_enforce", "--limit", "!h6", smt_policy_results="nowhere")
    assert code == 2 and recap(seen, "failed") == {"h3", "h4", "h5"} and table(seen)["h1"] == "compliant", seen
    code, seen = fleet.play("smt_compliance", "--limit", "h6")
    assert code == 4 and table(seen) == {"h6": "unreachable"}, seen
    assert " enabled " in seen, "what is wanted of it is known without it"
    assert "1 host: 1 unreachable. Not checked: 6 other hosts of the inventory." in seen
    written = json.loads((tmp_path / "smt_compliance.json").read_text())
    assert written["counts"]["unreachable"] == 1 and written["left_out"] == ["h1", "h2", "h3", "h4", "h5", "h7"]
    metrics = (tmp_path / "smt_compliance.prom").read_text()
    assert all(f'threadwise_smt_compliant{{host="h{number}"' in metrics for number in range(1, 8))


@pytest.mark.night
def test_a_call_that_checks_nothing_says_so_and_leaves_no_result_of_another(tmp_path, monkeypatch):
    # What AWX and ansible-runner keep of a call.
    monkeypatch.setenv("ANSIBLE_SHOW_CUSTOM_STATS", "1")
    fleet = Fleet(tmp_path, {"h1": {"smt_policy": "enabled"}})
    (tmp_path / "site.yml").write_text(
        "- import_playbook: threadwise.smt.smt_compliance\n  tags: [smt]\n"
        "- import_playbook: threadwise.smt.smt_survey\n"
    )
    # Where nothing drifted there is no wave, and no warning of that.
    code, seen = fleet.play("smt_enforce")
    assert code == 0 and "WARNING" not in seen and "no hosts matched" in seen, seen
    results = {"smt_compliance.html", "smt_compliance.json", "smt_compliance.prom"}
    # In a playbook of one's own tags choose among what it imports.
    code, seen = fleet.play("site.yml", "--tags", "smt")
    assert code == 0 and {path.name for path in tmp_path.glob("smt_*")} == results, seen
    code, seen = fleet.play("site.yml", "--tags", "web")
    assert code == 0 and {path.name for path in tmp_path.glob("smt_*")} == results and "failed=1" not in seen, seen
    tags = "the tags of this call leave out all that it does"
    files = {"smt_compliance_junit": "smt_tests.xml", "smt_compliance_sarif": "smt_findings.sarif"}
    results |= set(files.values())
    code, seen = fleet.play("smt_compliance", "--tags", "web", **files)
    assert code == 1 and tags in " ".join(seen.split()), seen
    assert {path.name for path in tmp_path.glob("smt_*")} == results, seen
    for name in results - {"smt_compliance.prom"}:
        text = (tmp_path / name).read_text()
        # Alerts live by metrics, which have their own time.
        assert tags in text and '"h1"' not in text and ">h1<" not in text, name
    (tmp_path / "smt_compliance.json").write_text("{}")
    code, seen = fleet.play("smt_compliance", "--limit", "h1", **files)
    assert code == 1 and "this collection did not write it" in seen and fleet.calls()["h1"] == 2, seen
    assert "this collection did not write it" in (tmp_path / "smt_findings.sarif").read_text()
    (tmp_path / "smt_compliance.json").unlink()
    code, seen = fleet.play("smt_compliance", "--limit", "h1", **files)
    assert code == 0 and {path.name for path in tmp_path.glob("smt_*")} == results, seen
    statistic = " ".join(seen[seen.index("CUSTOM STATS") :].split())
    assert 'RUN: { "smt_compliance_counts": { "bad_policy": 0, "compliant": 1, "drifted": 0,' in statistic, seen
    document = json.loads((tmp_path / "smt_compliance.json").read_text())
    assert document["error"] is None and document["call"]["limit"] == "h1"
    assert [pathlib.Path(one).name for one in document["call"]["inventory"]] == ["inventory.yml"]
    assert json.loads((tmp_path / "smt_findings.sarif").read_text())["runs"][0]["results"] == []


@pytest.mark.night
def test_a_call_that_no_host_takes_part_in_leaves_no_answer_of_another(tmp_path):
    names = {"json": "c.json", "page": "c.html", "junit": "c.xml", "sarif": "c.sarif"}
    files = {f"smt_compliance_{name}": file for name, file in names.items()}
    # The inventory names the files: where no host takes part, Ansible has not read its variables.
    fleet = Fleet(tmp_path, {"h1": {"smt_policy": "enabled", "smt_survey_page": "s.html", **files}})
    code, seen = fleet.play("smt_compliance")
    assert code == 0 and fleet.play("smt_survey")[0] == 0, seen
    before = {path.name: path.read_bytes() for path in tmp_path.glob("[cs].*")}
    assert set(before) == {*names.values(), "s.html"}
    # What changes nothing changes no file.
    fleet.play("smt_compliance", "--check", smt_compliance_hosts="nosuch")
    fleet.play("smt_survey", "--list-hosts", smt_survey_hosts="nosuch")
    assert {path.name: path.read_bytes() for path in tmp_path.glob("[cs].*")} == before
    code, seen = fleet.play("smt_compliance", smt_compliance_hosts="nosuch")
    reason = "no host of the inventory matches smt_compliance_hosts=nosuch"
    assert code in (1, 4) and reason in " ".join(seen.split()), seen
    for name in names.values():
        text = (tmp_path / name).read_text()
        assert reason in text and '"h1"' not in text and ">h1<" not in text, name
    assert fleet.play("smt_survey", smt_survey_hosts="nosuch")[0] in (1, 4) and not (tmp_path / "s.html").exists()
    # The file of somebody else is theirs.
    (tmp_path / "c.xml").write_text("mine")
    extra = {"smt_compliance_json": "extra.json", "smt_compliance_hosts": "nosuch"}
    _code, seen = fleet.play("smt_compliance", **extra)
    assert "this collection did not write it" in seen and (tmp_path / "c.xml").read_text() == "mine", seen
    assert reason in (tmp_path / "extra.json").read_text()
    assert [path.name for path in tmp_path.glob("smt_*")] == ["smt_compliance.prom"], "all others are named otherwise"


def test_variables_of_a_host_that_cannot_be_read_end_the_call_and_the_host_is_named(tmp_path):
    fleet = Fleet(tmp_path, {"h1": {}, "h2": {}})
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/h2.yml").write_text("smt_policy_waiver: {until: 2027-02-30, reason: x, owner: y}\n")
    reason = "h2: its variables (of the inventory, host_vars and group_vars) cannot be read: "
    for playbook in ("smt_compliance", "smt_enforce"):
        code, seen = fleet.play(playbook, smt_policy="enabled", smt_compliance_junit="tests.xml")
        assert code in (1, 2) and reason in re.sub(r"\s+", " ", seen), seen
        assert fleet.calls() == {"h1": 0, "h2": 0}
        if playbook == "smt_compliance":
            document = json.loads((tmp_path / "smt_compliance.json").read_text())
            assert code == 1 and document["error"].startswith(reason) and document["counts"] is None
            assert reason in (tmp_path / "tests.xml").read_text()


def test_the_command_that_a_check_gives_mends_what_it_found(tmp_path):
    fleet = Fleet(tmp_path, {"h1": {}, "h2": {}, "my host": {}, "my": {}})
    code, seen = fleet.play("smt_compliance", smt_policy="disabled", smt_compliance_junit="tests.xml")
    assert code == 2, seen
    hosts = {one["host"]: one for one in json.loads((tmp_path / "smt_compliance.json").read_text())["hosts"]}
    words = shlex.split(hosts["h1"]["remediation"].partition(": ")[2])
    assert words[:5] == ["ansible-playbook", "-i", "inventory.yml", "-b", "threadwise.smt.smt_enforce"]
    code, seen = fleet.play("smt_enforce", *words[5:])
    assert code == 0 and fleet.changes() == {"h1": ["smt false"]}, seen
    # A host that a pattern cannot name is named as it is said there.
    assert "and --limit @FILE, a file with its name as a line" in hosts["my host"]["remediation"]
    (tmp_path / "file").write_text("my host\n")
    code, seen = fleet.play("smt_compliance", "--limit", "@file", smt_policy="disabled")
    written = json.loads((tmp_path / "smt_compliance.json").read_text())
    assert [one["host"] for one in written["hosts"]] == ["my host"] and written["call"]["inventory"] == [
        "inventory.yml"
    ]


def test_variables_of_a_role_in_a_play_of_ones_own_are_checked_and_what_is_not_defined_is_no_default(tmp_path):
    fleet = Fleet(
        tmp_path,
        {
            "h1": {"smt_policy": False},
            "h2": {"smt_policy": "enabled", "smt_policy_scop": "both"},
            "h3": {"smt_polcy": "disabled", "smt_policy": "enabled"},
            "h4": {"smt_policy": "{{ no_such }}"},
            "h5": {"smt_policy": "enabled", "smt_memory_overcommit": "{{ no_such }}"},
        },
    )
    (tmp_path / "own.yml").write_text("- hosts: all\n  gather_facts: false\n  roles: [threadwise.smt.smt_policy]\n")
    code, seen = fleet.play("own.yml", "--check")
    assert code == 2 and recap(seen, "failed") == {"h2", "h3", "h4", "h5"} and recap(seen, "changed") == {"h1"}, seen
    assert "is not a variable of threadwise.smt; the nearest is smt_policy_scope" in seen
    assert fleet.calls() == {"h1": 1, "h2": 0, "h3": 0, "h4": 0, "h5": 0}
    code, seen = fleet.play("smt_compliance", "--limit", "h1,h4,h5")
    assert code == 2 and table(seen) == {"h1": "drifted", "h4": "bad_policy", "h5": "bad_policy"}, seen
    assert seen.count("is set, and its value cannot be worked out: 'no_such' is undefined") >= 2, seen


def test_misspelt_and_malformed_variables_stop_each_playbook_before_any_host_is_touched(tmp_path):
    fleet = Fleet(
        tmp_path,
        {
            "h1": {"smt_policy_scop": "both"},
            "h2": {"smt_memory_overcommit": "strickt"},
            "h3": {"smt_policy_scope": "{{ not_there }}"},
        },
    )
    for playbook in ("smt_compliance", "smt_enforce", "smt_survey", "smt_eval"):
        code, seen = fleet.play(playbook, smt_eval_swich=False, smt_policy="disabled")
        # 2 is for hosts that do not comply.
        assert code == (1 if playbook == "smt_compliance" else 2) and "smt_eval_swich" in seen, seen
        assert re.search(
            r"smt_policy_scop \(set in \S+inventory.yml:\d+\) is not a variable of threadwise.smt; the nearest is"
            r" smt_policy_scope \[h1\]",
            seen,
        )
        assert re.search(
            r"smt_memory_overcommit is 'strickt' \(set in \S+inventory.yml:\d+\): it must be heuristic, always or"
            r" strict \[h2\]",
            seen,
        ), seen
        assert seen.count("smt_policy_scope") <= seen.count("smt_policy_scop "), (
            "what needs another variable is judged when it is used"
        )
    assert fleet.calls() == {"h1": 0, "h2": 0, "h3": 0}
    # What a program reads says the same, and is no result.
    assert {path.name for path in tmp_path.glob("smt_*")} == {"smt_compliance.html", "smt_compliance.json"}
    assert "smt_policy_scop " in json.loads((tmp_path / "smt_compliance.json").read_text())["error"]


@pytest.mark.parametrize("playbook", ["smt_compliance", "smt_enforce", "smt_eval", "smt_survey"])
def test_a_playbook_takes_the_hosts_that_it_is_given(tmp_path, playbook):
    fleet = Fleet(tmp_path, {"h1": {}, "h2": {}, "h3": {}})
    code, seen = fleet.play(playbook, "--list-hosts", **{f"{playbook}_hosts": "h2:h3:!h3"})
    assert code == 0 and set(re.findall(r"^ +(h\d)$", seen, re.MULTILINE)) == {"h2"}, seen
    code, seen = fleet.play(playbook, "--list-hosts")
    assert code == 0 and set(re.findall(r"^ +(h\d)$", seen, re.MULTILINE)) == {"h1", "h2", "h3"}, seen


def test_module_defaults_of_the_group_reach_the_modules(tmp_path):
    fleet = Fleet(tmp_path, {"h1": {}})
    play = "- hosts: all\n  gather_facts: false\n{}  tasks:\n    - threadwise.smt.smt_facts:\n"
    (tmp_path / "without.yml").write_text(play.format(""))
    (tmp_path / "with.yml").write_text(
        play.format("  module_defaults:\n    group/threadwise.smt.smt:\n      no_option: 1\n")
    )
    assert fleet.play("without.yml")[0] == 0
    code, seen = fleet.play("with.yml")
    assert code == 2 and "no_option" in seen, seen


def test_hosts_that_are_evaluated_one_after_the_other_are_one_run_and_a_failed_one_stops_nobody(tmp_path):
    # In check mode the host is only read: the one that is not there fails at the end of the play, and the other one is
    # announced.
    fleet = Fleet(tmp_path, {"h1": GONE, "h2": {}})
    with this_machine():
        code, seen = fleet.play("smt_eval", "--check", smt_eval_serial=1)
    assert (
        code == 4
        and recap(seen, "unreachable") == {"h1"}
        and recap(seen, "failed") == set()
        and seen.count("PLAY [Evaluate SMT]") == 1
    ), seen
    assert seen.index("h2: Sockets: ") < seen.index("fatal: [h1]"), seen


def test_results_that_are_not_there_concern_auto_alone(tmp_path):
    fleet = Fleet(tmp_path, {"h1": {"smt_policy": "enabled"}, "h2": {"smt_policy": "auto"}})
    code, seen = fleet.play("smt_compliance", smt_policy_results="nowhere")
    assert code == 2 and table(seen) == {"h2": "unknown", "h1": "compliant"}, seen
    assert "the results cannot be read: nowhere: cannot be listed: No such file or directory" in seen


def test_auto_takes_the_decision_of_the_same_class(tmp_path):
    kinds = {name: f"x86_64-1s2c4t-split-{name:08x}" for name in (1, 2, 3)}
    fleet = Fleet(tmp_path, {f"h{number}": {"simulated_class": kind} for number, kind in kinds.items()})
    run = tmp_path / "results/r1"
    run.mkdir(parents=True)
    for host, hardware_class, factor in (("e1", kinds[1], 0.5), ("e2", kinds[2], 4.0)):
        result = result_maker.result(host=host, run="r1", noise=0.0005, shape=(1, 2, 2))
        result["facts"].update(hardware_class=hardware_class, numbering="split")
        for sample in result["samples"]:
            if sample["arm"] == "smt_off":
                sample["metrics"]["throughput"]["value"] *= factor
        (run / f"{host}.json").write_text(json.dumps(result))
    code, seen = fleet.play("smt_enforce", smt_policy="auto", smt_policy_results="results")
    assert code != 0 and table(seen)["h3"] == "unknown" and f"no evaluation of hardware class {kinds[3]}" in seen, seen
    assert fleet.get("smt") == {"h1": True, "h2": False, "h3": True}, seen
    fleet.set("h1", kernel="6.1.0-40-amd64")
    fleet.set("h2", kernel="6.12.9-1-amd64")
    code, seen = fleet.play("smt_compliance", smt_policy="auto", smt_policy_results="results", smt_policy_max_age=9999)
    lines = re.sub(r"\s+", " ", seen)
    assert code == 2 and table(seen) == {"h1": "compliant", "h2": "compliant", "h3": "unknown"}, seen
    assert "is stale: it was measured on Linux 6.1, and the host runs 6.12" in lines and lines.count("is stale") == 1
    assert f"Decisions to measure again: {kinds[2]}." in lines
    hosts = {host["host"]: host for host in json.loads((tmp_path / "smt_compliance.json").read_text())["hosts"]}
    assert hosts["h2"]["wanted"] == "disabled" and "evaluation of e2 in run r1" in hosts["h2"]["decided_by"]
    # A re-check that holds confirms it.
    result["plan"]["goal"] = "recheck"
    result["environment"]["kernel"] = "6.12.9-1-amd64"
    result.update(run="r2", collected="2026-02-02T00:00:00Z")
    (tmp_path / "results/r2").mkdir()
    (tmp_path / "results/r2/e2.json").write_text(json.dumps(result))
    code, seen = fleet.play("smt_compliance", smt_policy="auto", smt_policy_results="results", smt_policy_max_age=9999)
    assert "is stale" not in re.sub(r"\s+", " ", seen) and table(seen)["h2"] == "compliant", seen
    document = json.loads((tmp_path / "smt_compliance.json").read_text())
    (decided_by,) = (host["decided_by"] for host in document["hosts"] if host["host"] == "h2")
    assert "in run r1" in decided_by and "confirmed on 2026-02-02 with Linux 6.12.9-1-amd64" in decided_by
    assert [one["state"] for of_class in document["decisions"] for one in of_class["rechecks"]] == ["holds"]


def evaluated(directory, host, run, hardware_class, off, better=None, blocks=10):
    """A result on disk: a user's own workload with another rate with SMT off, or gzip where no direction is given."""
    own = {
        **result_maker.GZIP,
        "metrics": {"rate": {"unit": "1/s", "better": better, "aggregate": {"higher": "sum"}.get(better, "max")}},
    }
    workloads = {"app": own} if better else None
    result = result_maker.result(
        host=host,
        run=run,
        noise=0.0005,
        shape=(1, 2, 2),
        blocks=blocks,
        seed=sum(map(ord, host + run)),
        workloads=workloads,
    )
    result["facts"].update(hardware_class=hardware_class, numbering="split")
    for sample in result["samples"]:
        if sample["arm"] == "smt_off":
            for metric in sample["metrics"].values():
                metric["value"] *= off
    (directory / "results" / run).mkdir(parents=True, exist_ok=True)
    path = directory / "results" / run / f"{host}.json"
    path.write_text(json.dumps(result))
    return path


@pytest.mark.night
def test_a_host_decides_for_the_class_that_it_has_and_no_other(tmp_path):
    kinds = {name: f"x86_64-1s2c4t-split-{name:08x}" for name in (1, 2, 3)}
    fleet = Fleet(
        tmp_path,
        {
            "h1": {"simulated_class": kinds[1]},
            "h2": {"simulated_class": kinds[2]},
            "liar": {"simulated_class": kinds[3]},
        },
    )
    # It says that each class is better off without SMT, by a run for each; the playbook asks it for its class.
    for run, number in (("r1", 3), ("r2", 1), ("r3", 2)):
        evaluated(tmp_path, "liar", run, kinds[number], 4.0)
    evaluated(tmp_path, "h1", "r4", kinds[1], 0.5)
    code, seen = fleet.play("smt_enforce", smt_policy="auto", smt_policy_results="results")
    assert fleet.get("smt") == {"h1": True, "h2": True, "liar": False}, seen
    assert code != 0 and table(seen) == {"h1": "compliant", "h2": "unknown", "liar": "compliant"}, seen
    reason = f"liar does not count by run r3: its facts show hardware class {kinds[3]}"
    assert f"the evaluations do not decide: no evaluation ({reason})" in re.sub(r"\s+", " ", seen), seen
    fleet.calls()
    code, seen = fleet.play("smt_compliance", smt_policy="auto", smt_policy_results="results")
    hosts = {host["host"]: host for host in json.loads((tmp_path / "smt_compliance.json").read_text())["hosts"]}
    assert (
        "which alone decides for all hosts of this class" in hosts["liar"]["decided_by"]
        and "liar does not count by run r2" in hosts["h1"]["decided_by"]
    )
    assert fleet.calls() == {"h1": 2, "h2": 1, "liar": 2}, "a host that was evaluated is asked once more"


@pytest.mark.parametrize("liar", ["a_first", pytest.param("z_last", marks=pytest.mark.night)])
def test_one_host_of_seven_does_not_turn_a_decision(tmp_path, liar):
    kind = "x86_64-1s2c4t-split-00000000"
    fleet = Fleet(tmp_path, {"h1": {}})
    paths = [evaluated(tmp_path, f"e{number}", "r1", kind, 1.18, "higher") for number in range(6)]
    code, seen = fleet.play("smt_compliance", smt_policy="auto", smt_policy_results="results")
    assert (
        code == 0
        and "evaluation of 6 hosts (e0, e1, e2 and 3 more) in run r1" in (tmp_path / "smt_compliance.json").read_text()
    ), seen
    paths.append(evaluated(tmp_path, liar, "r1", kind, 1.18, "lower"))
    code, seen = fleet.play("smt_compliance", smt_policy="auto", smt_policy_results="results")
    assert code == 2 and table(seen) == {"h1": "unknown"}, seen
    said = json.loads((tmp_path / "smt_compliance.json").read_text())["hosts"][0]["sentence"]
    assert (
        "Its hosts declare gzip of a fixed stream differently: rate in 1/s, higher is better, sum of its workers on e"
        in said
    )
    assert f"rate in 1/s, lower is better, max of its workers on {liar}." in said

    # The same of a workload of this collection is that host's failure, and the others decide.
    for path in paths:
        path.unlink()
    honest = [evaluated(tmp_path, f"e{number}", "r1", kind, 1.18) for number in range(6)]
    false = evaluated(tmp_path, liar, "r1", kind, 1.18)
    document = json.loads(false.read_text())
    document["plan"]["workloads"][0]["metrics"]["throughput"]["better"] = "lower"
    for sample in document["samples"]:
        sample["metrics"]["throughput"]["better"] = "lower"
    false.write_text(json.dumps(document))
    code, seen = fleet.play("smt_compliance", smt_policy="auto", smt_policy_results="results")
    assert code == 0 and "evaluation of 6 hosts" in (tmp_path / "smt_compliance.json").read_text(), seen
    code, seen = fleet.play("smt_report", smt_report_run_dir=str(honest[0].parent))
    assert (
        "gzip has better lower instead of higher for throughput: a workload of this collection is declared by it alone"
        in re.sub(r"\s+", " ", seen)
    ), seen
    report = json.loads((tmp_path / "results/r1/results.json").read_text())
    assert (report["classes"][0]["recommendation"], report["classes"][0]["workloads"][0]["n"]) == ("on", 6) and len(
        report["refused"]
    ) == 1


def test_a_waiver_of_a_host_is_said_and_kept_to_everywhere_and_is_no_fact(tmp_path):
    today = datetime.datetime.now(datetime.UTC).date()
    said = {"reason": "{{ 'the vendor ' ~ 'counts' }}", "owner": "jo"}
    waived = {"until": today, **said}
    fleet = Fleet(
        tmp_path,
        {
            "h1": {"smt_policy_waiver": waived},
            "h2": {"smt_policy_waiver": {"until": today - datetime.timedelta(days=2), **said}},
            "h3": {"smt_policy_waiver": {"until": "soon", **said}},
            "h4": {"smt_policy_waiver": "{{ no_such }}"},
            "h5": {"smt_policy_waiver": {}},
            "h6": dict(GONE, smt_policy_waiver=waived),
            # As chef's inspec_7391 had it: a day of YAML where none was expected.
            "h7": {"smt_policy_classes": {"c": today}},
        },
    )
    bad = dict.fromkeys(["h3", "h4", "h7"], "bad_policy")
    statuses = {"h1": "waived", "h2": "drifted", "h5": "drifted", "h6": "unreachable", **bad}
    code, seen = fleet.play("smt_compliance", smt_policy="disabled")
    assert code == 4 and table(seen) == statuses and recap(seen, "failed") == {"h2", "h5", *bad}, seen
    lines = re.sub(r"\s+", " ", seen)
    assert f"waived until {today} (UTC, its last day) by jo: the vendor counts" in lines
    assert (
        f"Waivers that ended: h2 ({today - datetime.timedelta(days=2)}). Waivers that end within 30 days: h1" in lines
    )
    assert "smt_policy_waiver has until 'soon': it must be a day" in lines and "'no_such' is undefined" in lines
    hosts = {one["host"]: one for one in json.loads((tmp_path / "smt_compliance.json").read_text())["hosts"]}
    assert hosts["h1"]["waiver"]["state"] == "ending" and hosts["h1"]["running"]["status"] == "drifted"
    assert 'status="waived"} 1' in (tmp_path / "smt_compliance.prom").read_text()

    here = "h1,h2,h5"
    code, seen = fleet.play("smt_enforce", "--limit", here, smt_policy="disabled")
    assert code == 0 and table(seen) == {"h1": "waived", "h2": "compliant", "h5": "compliant"}, seen
    assert f"h1 is left out: it is waived until {today}" in re.sub(r"\s+", " ", seen)
    # What a host says, and what passes it on, waives nothing.
    fact = {"smt_policy_waiver": {"until": str(today), **said}}
    fleet.set("h5", smt=True)
    plays = [
        {"hosts": "h1", "gather_facts": False, "roles": ["threadwise.smt.smt_policy"]},
        {"hosts": "h5", "gather_facts": False, "tasks": [{"ansible.builtin.set_fact": fact}]},
        {"ansible.builtin.import_playbook": "threadwise.smt.smt_compliance"},
    ]
    (tmp_path / "site.yml").write_text(json.dumps(plays))
    code, seen = fleet.play("site.yml", "--limit", here, smt_policy="disabled")
    lines = re.sub(r"\s+", " ", seen)
    assert code == 2 and table(seen) == {"h1": "waived", "h2": "compliant", "h5": "unknown"}, seen
    assert "h1 is left as it is: running: " in lines
    assert "h5 is refused: set_fact or register gave it the variable smt_policy_waiver" in lines, seen
    assert set(fleet.changes()) == {"h2", "h5"}


@pytest.mark.night
def test_an_interrupted_rollout_of_a_waived_host_waits_for_the_end_of_its_waiver_and_says_so(tmp_path):
    said = {"reason": "the vendor", "owner": "jo"}
    fleet = Fleet(tmp_path, {"h1": {"smt_policy_waiver": {"until": datetime.date(2099, 3, 1), **said}}})
    saved = {"saved_at": "2026-03-01T12:00:00Z", "rollout": True, "host": {"smt": True}, "back_to": "smt true"}
    (tmp_path / "hosts/h1/var/lib/threadwise-smt").mkdir(parents=True)
    assert record.FILE.save(host_files.HostFs(str(tmp_path / "hosts/h1")), saved)
    fleet.set("h1", smt=False)
    code, seen = fleet.play("smt_compliance", smt_policy="disabled")
    assert code == 0 and table(seen) == {"h1": "compliant"}, seen
    (host,) = json.loads((tmp_path / "smt_compliance.json").read_text())["hosts"]
    assert host["remediation"].startswith("Nothing before its waiver ends."), host
    code, seen = fleet.play("smt_enforce", smt_policy="disabled")
    left_out = "h1 is left out: a rollout of it was interrupted, and it is waived until 2099-03-01 (UTC) by jo"
    assert code == 0 and left_out in re.sub(r"\s+", " ", seen), seen
    # When it is over, the rollout is finished, and a host that is not healthy is what it was before.
    (tmp_path / "sick.yml").write_text("- ansible.builtin.fail:\n")
    over = {"smt_policy": "disabled", "smt_policy_waiver": {"until": "2026-03-01", **said}}
    code, seen = fleet.play("smt_enforce", smt_enforce_health_check="sick.yml", **over)
    assert code == 2 and fleet.changes() == {"h1": ["smt true"]}, seen
