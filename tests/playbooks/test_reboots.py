# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reboots: what smt_boot sets and takes away, and slots as roles, playbooks and pulls take them."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import uuid

import boot_maker
import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import record
from fleetlock_server import FULL, FleetLock
from pulled_host import BIN, PulledHost
from simulated_fleet import ROOT, SHEBANG, Fleet
from this_machine import line

HEAD = 'import os\nfrom ansible.module_utils.basic import AnsibleModule\nROOT = os.environ["SMT_HOST"] + "/root"\n'
COLLECTION = "from ansible_collections.threadwise.smt.plugins.module_utils."
MODULES = {
    "smt_facts": (
        f"""{COLLECTION}_set import facts
{COLLECTION}_host import files
module = AnsibleModule({{"sysroot": {{}}}}, supports_check_mode=True)
module.exit_json(changed=False, ansible_facts={{"smt": facts.gather(files.HostFs(ROOT))}})
"""
    ),
    "smt_boot_args": (
        f"""{COLLECTION}_set.boot import change
{COLLECTION}_host import files
names = ("smt", "maxcpus", "mitigations")
more = {{"affinity_conflicts_of": {{"type": "list"}}, "consumers": {{"type": "dict"}}, "force": {{"type": "bool"}}}}
plain = {{name: {{}} for name in (*names, "affinity_conflicts")}}
module = AnsibleModule(dict(more, **plain), supports_check_mode=True)
given = module.params
request = change.Request(given["smt"], given["maxcpus"], given["force"], module.check_mode, given["mitigations"])
try:
    result = change.run(files.HostFs(ROOT), request, "x86_64", "6.1.0-13-amd64")
except change.ERRORS as error:
    module.fail_json(msg=str(error))
result.pop("warnings")
module.exit_json(**result)
"""
    ),
    "simulated_reboot": f"""import glob, uuid
{COLLECTION}_set.boot import entries
{COLLECTION}_host import files
module = AnsibleModule({{"reboot_timeout": {{}}, "msg": {{}}}}, supports_check_mode=True)
arguments = entries.read_grub_cfg(files.HostFs(ROOT), "boot/grub/grub.cfg")[0].arguments
shown = [one for one in arguments if one.split("=")[0] in ("nosmt", "maxcpus", "mitigations")]
with open(os.environ["SMT_HOST"] + "/log", "a") as stream:
    stream.write("boot %s\\n" % " ".join(shown))
if os.path.exists(os.environ["SMT_HOST"] + "/fails-with-" + arguments[2]):
    module.fail_json(msg="it does not come back")
def put(path, text):
    with open(ROOT + "/" + path, "w") as stream:
        stream.write(text + "\\n")
if os.path.exists(os.environ["SMT_HOST"] + "/on-reboot"):
    os.system(os.environ["SMT_HOST"] + "/on-reboot")
put("proc/cmdline", " ".join(arguments))
primaries = open(ROOT + "/primaries").read()
cpus = "sys/devices/system/cpu/"
off = "nosmt" in arguments or "nosmt=force" in arguments or "mitigations=auto,nosmt" in arguments
put(cpus + "online", primaries if off or "maxcpus=4" in arguments else "0-7")
put(cpus + "smt/control", "forceoff" if "nosmt=force" in arguments else "off" if off else "on")
put(cpus + "smt/active", "0" if off or "maxcpus=4" in arguments else "1")
put("../boot_id", str(uuid.uuid4()))
put("../proc/sys/kernel/random/boot_id", str(uuid.uuid4()))
put(cpus + "vulnerabilities/mds", "Vulnerable; SMT vulnerable" if "mitigations=off" in arguments
    else "Mitigation: Clear CPU buffers; SMT vulnerable")
for note in glob.glob(ROOT + "/run/threadwise-smt/*"):
    os.remove(note)
module.exit_json(changed=True)
""",
}
REBOOT = """from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        return dict(self._execute_module("threadwise.smt.simulated_reboot", self._task.args, task_vars=task_vars))
"""
ROLE = [{"hosts": "all", "gather_facts": False, "roles": ["threadwise.smt.smt_boot"]}]


class BootFleet(Fleet):
    """One host with a made-up kernel, grub and a boot loader's configuration."""

    def __init__(self, directory: pathlib.Path, name: str = "db1", **variables) -> None:
        super().__init__(directory, {name: variables})
        self.place = directory / "hosts" / name
        defaults = 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n'
        self.tree = boot_maker.grub_tree(self.place / "root", defaults)
        boot_maker.running(self.tree, "root=UUID=1 ro quiet", numbering="split")
        (self.tree / "run/systemd/system").mkdir(parents=True)
        boot_maker.write(self.tree, "primaries", "0-3")
        vulnerability = "sys/devices/system/cpu/vulnerabilities/mds"
        boot_maker.write(self.tree, vulnerability, "Mitigation: Clear CPU buffers; SMT vulnerable\n")
        collection = directory / "collections/ansible_collections/threadwise/smt"
        for module, text in MODULES.items():
            path = collection / f"plugins/modules/{module}.py"
            path.unlink(missing_ok=True)
            real = ROOT / f"plugins/modules/{module}.py"
            # The controller reads what a module documents; it does not run it.
            documented = real.read_text().partition("from ansible.module_utils")[0] if real.exists() else ""
            program = 'if __name__ == "__main__":\n' + textwrap.indent(HEAD + text, "    ")
            path.write_text(SHEBANG + documented.replace(SHEBANG, "") + program)
        simulate_reboots(collection, self.place)
        (collection / "roles").unlink()
        shutil.copytree(ROOT / "roles", collection / "roles")
        (directory / "boot.yml").write_text(yaml.safe_dump(ROLE))
        self.before = boot_maker.snapshot(self.tree)

    def assert_as_before(self):
        """The boot configuration has the bytes that it had, and the host runs as it did."""
        assert boot_maker.snapshot(self.tree) == self.before
        assert (self.tree / "sys/devices/system/cpu/online").read_text() == "0-7\n"
        assert not (self.tree / "var/lib/threadwise-smt/boot-mitigations.json").exists()


def simulate_reboots(collection: pathlib.Path, place: pathlib.Path) -> None:
    """Have the collection's own code reboot the host by the module simulated_reboot."""
    for folder in ("plugins/action", "plugins/plugin_utils"):
        (collection / folder).unlink()
        shutil.copytree(ROOT / folder, collection / folder)
    (collection / "plugins/action/simulated_reboot.py").write_text(REBOOT)
    path = collection / "plugins/plugin_utils/_measure/boots/reboot.py"
    text = path.read_text()
    for real, simulated in (
        ('"ansible.builtin.reboot"', '"threadwise.smt.simulated_reboot"'),
        ("/proc/sys/kernel/random/boot_id", f"{place}/boot_id"),
        ("PAUSE_SECONDS = 30.0", "PAUSE_SECONDS = 0.5"),
    ):
        assert real in text
        text = text.replace(real, simulated)
    path.write_text(text)
    (place / "boot_id").write_text(f"{uuid.uuid4()}\n")
    boot_maker.write(place, "proc/sys/kernel/random/boot_id", f"{uuid.uuid4()}\n")


# Down for a while, so that two at once would be seen.
ON_REBOOT = """#!{python}
import json, sys, time, urllib.request
for where in ("down", "up"):
    request = urllib.request.Request("{url}/" + where, json.dumps({{"host": "{host}"}}).encode(), method="POST")
    urllib.request.urlopen(request).close()
    time.sleep(1)
"""
FREE = {"db": set()}


@pytest.fixture(name="server")
def a_server():
    with FleetLock().running() as server:
        yield server
    assert server.faults == []


def hook(place, server, name):
    """Tell the server of each reboot of a host."""
    path = place / "on-reboot"
    path.write_text(ON_REBOOT.format(python=sys.executable, url=server.url, host=name))
    path.chmod(0o755)


class Booted(BootFleet):
    """A controller of its own, with a host of its own that tells the server when it is down."""

    def __init__(self, directory, server, name="db1"):
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, name=name, smt_policy_group="db")
        self.name, self.slot = name, {"smt_slot": {"fleetlock": server.url}}
        hook(self.place, server, name)

    def begin(self, *words, **variables):
        known = {"smt_boot_reboot_ok": True, "smt_boot_smt": "disabled", **self.slot}
        return self.start("boot.yml", *words, **{**known, **variables})

    def boot(self, *words, **variables):
        with self.begin(*words, **variables) as process:
            seen = process.communicate()[0]
        return process.returncode, line(seen)

    @property
    def kept(self):
        path = self.place / record.FILE.path
        return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.night
def test_a_host_that_does_not_come_back_keeps_its_slot_until_somebody_releases_it(tmp_path, server):
    lost, other = (Booted(tmp_path / name, server, name) for name in ("db1", "db2"))
    (lost.place / "fails-with-nosmt").touch()
    code, seen = lost.boot()
    assert code != 0 and server.holders == {"db": {"db1"}} and lost.kept["is_held"], seen
    assert f"db1 keeps its slot of the group db at {server.url}" in seen
    # Others wait for smt_slot_timeout and no longer.
    code, seen = other.boot(smt_slot_timeout=1)
    assert code != 0 and "db2 is not rebooted: it has waited since" in seen and FULL["value"] in seen
    assert other.kept is None and other.changes() == {} and server.holders == {"db": {"db1"}}
    # The command that was printed, on a machine that is none of the hosts.
    (printed,) = set(re.findall(r"by its name, HOST: (ansible localhost [^']*'[^']*')", seen))
    command = shlex.split(printed.replace("HOST", "db1"))
    done = subprocess.run([BIN / command[0], *command[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and server.holders == FREE, done.stdout + done.stderr
    code, seen = other.boot()
    assert code == 0 and other.changes() == {"db2": ["boot nosmt"]}, seen


@pytest.mark.night
def test_the_next_run_gives_back_what_a_killed_controller_has_left(tmp_path, server):
    fleet = Booted(tmp_path, server)
    with fleet.begin() as process:

        def kill(path):
            if path.endswith("steady-state"):
                os.killpg(process.pid, signal.SIGKILL)
                raise ConnectionError

        server.before = kill
        process.communicate()
    server.before = lambda _path: None
    assert process.returncode == -signal.SIGKILL and server.boots == 1
    assert fleet.kept["is_held"] and server.holders == {"db": {"db1"}}
    code, seen = fleet.boot()
    assert code == 0 and fleet.kept is None and server.holders == FREE, seen


@pytest.mark.night
def test_check_mode_asks_nobody_and_kured_reboots_instead(tmp_path, server):
    fleet = Booted(tmp_path, server)
    code, seen = fleet.boot("--check")
    assert code == 0 and f"db1: would ask for a slot of the group db at {server.url}" in seen, seen
    assert fleet.kept is None
    code, seen = fleet.boot(smt_slot={"kured": "/var/run/reboot-required"})
    assert code == 0 and "db1: kured reboots it" in seen and fleet.changes() == {}, seen
    assert (fleet.place / "var/run/reboot-required").exists() and server.asked == []


@pytest.mark.night(after=1)
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"smt_slot": {"fleetlock": "lock.example.com"}}, "smt_slot: fleetlock is no address"),
        ({"smt_reboot_window": {"from": 2, "to": 5}}, "smt_reboot_window: its from"),
        ({"smt_slot_timeout": 0}, "smt_slot_timeout is 0"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_changed(tmp_path, server, variables, said):
    fleet = Booted(tmp_path, server)
    code, seen = fleet.boot(**variables)
    assert code != 0 and said in seen and server.asked == [], seen
    fleet.assert_as_before()


POLICY = {"smt_policy": "disabled", "smt_policy_scope": "boot", "smt_policy_reboot_ok": True}
BOOTS = f"""{SHEBANG}
import json, os, uuid
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({{"reboot_timeout": {{}}, "msg": {{}}}}, supports_check_mode=True)
place = os.environ["SMT_HOST"]
os.system(place + "/on-reboot")
host = json.load(open(place + "/host.json"))
with open(place + "/host.json", "w") as stream:
    json.dump(dict(host, booted=host["configured"]), stream)
for path in ("boot_id", "proc/sys/kernel/random/boot_id"):
    with open(place + "/" + path, "w") as stream:
        stream.write(str(uuid.uuid4()))
module.exit_json(changed=True)
"""


@pytest.mark.night
def test_a_rollout_holds_the_slot_until_the_host_is_found_healthy(tmp_path, server):
    fleet = Fleet(tmp_path, {"h1": {"smt_policy_group": "db"}})
    place, collection = tmp_path / "hosts/h1", tmp_path / "collections/ansible_collections/threadwise/smt"
    simulate_reboots(collection, place)
    (collection / "plugins/modules/simulated_reboot.py").write_text(BOOTS)
    hook(place, server, "h1")
    (tmp_path / "health.yml").write_text(
        "- ansible.builtin.command: 'false'\n  when: unhealthy | default(false)\n"
        f"- ansible.builtin.shell: cat {place}/{record.FILE.path} >{tmp_path}/seen\n"
    )
    slot = {"smt_slot": {"fleetlock": server.url}}
    given = {**POLICY, **slot, "smt_enforce_health_check": str(tmp_path / "health.yml")}
    code, seen = fleet.play("smt_enforce", **given, unhealthy=True)
    assert code != 0 and "h1 was brought back to the state before the wave" in line(seen), seen
    assert "h1 holds a slot of the group db at" in line(seen) and "by hand: ansible localhost -m" in line(seen), seen
    # It was rebooted, and what the rollout has done is put back, which the next boot has.
    assert server.holders == {"db": {"h1"}} and server.boots == 1
    for asked, said in (({}, "smt_slot names nobody here"), (slot, f"a slot of the group db at {server.url} since 2")):
        code, seen = fleet.play("smt_compliance", **POLICY, **asked)
        assert "h1 holds a slot" in line(seen) and said in line(seen), seen
    code, seen = fleet.play("smt_enforce", **given)
    assert code == 0 and server.holders == FREE and not (place / record.FILE.path).exists(), seen
    assert json.loads((tmp_path / "seen").read_text())["is_held"]


@pytest.mark.night
def test_a_host_that_pulls_reboots_in_its_slot_and_gives_it_back_after_the_boot(tmp_path, server):
    host = PulledHost(tmp_path, **POLICY, smt_slot={"fleetlock": server.url}, smt_policy_group="web")
    place, asked, masked = tmp_path / "hosts/h1", tmp_path / "asked", tmp_path / "masked"
    boot_id = place / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("1\n")
    (tmp_path / "bin").mkdir()
    systemctl = tmp_path / "bin/systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >>{asked}\ntest ! -e {masked}\n')
    systemctl.chmod(0o755)
    host.environment["PATH"] = f"{tmp_path}/bin:{host.environment['PATH']}"
    # Another one of its group is down.
    server.holders = {"web": {"other"}}
    host.commit({"inventory.yml": (host.repository / "inventory.yml").read_text() + "  vars: {smt_slot_timeout: 1}\n"})
    code, seen = host.pull()
    assert "h1 is not rebooted" in seen and not asked.exists(), seen
    server.holders = {}
    masked.touch()
    code, seen = host.pull()
    assert code == 1 and "keeps its slot until the next pull" in seen and server.holders == {"web": {"h1"}}, seen
    masked.unlink()
    asked.unlink()
    code, seen = host.pull()
    assert code == 0 and "h1 reboots, as its policy asks for" in seen, seen
    assert asked.read_text() == "reboot\n" and server.holders == {"web": {"h1"}}
    assert "holds a slot of the group web" in (host.place / "smt_compliance.json").read_text()
    host.set("h1", booted=["nosmt"])
    boot_id.write_text("2\n")
    asked.unlink()
    code, seen = host.pull()
    assert code == 0 and server.holders == {"web": set()} and not (place / record.FILE.path).exists(), seen
    assert not asked.exists()


@pytest.mark.night
@pytest.mark.parametrize(
    ("variables", "booted"),
    [
        ({"smt_boot_smt": "disabled", "smt_boot_mitigations": "auto"}, "nosmt mitigations=auto"),
        ({"smt_boot_smt": "disabled"}, "nosmt"),
        ({"smt_boot_maxcpus": 4}, "maxcpus=4"),
        ({"smt_boot_mitigations": "off"}, "mitigations=off"),
    ],
)
def test_the_role_sets_what_is_asked_for_and_enabled_takes_it_away(tmp_path, variables, booted):
    fleet = BootFleet(tmp_path)
    for asked in (variables, {"smt_boot_smt": "enabled"}):
        code, seen = fleet.play("boot.yml", smt_boot_reboot_ok=True, **asked)
        assert code == 0, seen
    assert fleet.changes()["db1"] == [f"boot {booted}", "boot "]
    fleet.assert_as_before()


@pytest.mark.night
@pytest.mark.parametrize(
    ("variables", "said"),
    [({}, "set smt_boot_smt"), ({"smt_boot_smt": "disabled", "smt_boot_maxcpus": 4}, "are both set")],
)
def test_the_role_refuses_nothing_and_what_excludes_each_other(tmp_path, variables, said):
    fleet = BootFleet(tmp_path)
    code, seen = fleet.play("boot.yml", **variables)
    assert code == 2 and said in seen, seen
    fleet.assert_as_before()
