# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts whose SMT can be switched without a machine."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import this_machine
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Each host has an interpreter of its own, which tells a module whose state it works on. It has Ansible's part of a
# module loaded from the environment's byte code: a module brings it as sources, whose compilation takes most of the
# time of a call that does next to nothing.
INTERPRETER = '#!/bin/sh\nSMT_HOST={place} PYTHONPATH={loaded} exec {python} "$@"\n'
LOADED = "import ansible.module_utils.basic\n"

SHEBANG = "#!/usr/bin/python\n"
COMMON = r"""
import json, os
from ansible.module_utils.basic import AnsibleModule
PATH = os.environ["SMT_HOST"] + "/host.json"
with open(PATH) as stream:
    host = json.load(stream)

def end(module, name, value, **result):
    changed = host[name] != value
    if changed and not module.check_mode:
        host[name] = value
        with open(PATH + ".new", "w") as stream:
            json.dump(host, stream)
        os.rename(PATH + ".new", PATH)
        with open(os.environ["SMT_HOST"] + "/log", "a") as stream:
            stream.write("%s %s\n" % (name, json.dumps(value)))
    module.exit_json(changed=changed, **result)
"""

STAND_INS = {
    "smt_facts": r"""
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.rollback import record
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import record as slot_record
module = AnsibleModule({"sysroot": {"type": "path"}}, supports_check_mode=True)
with open(os.environ["SMT_HOST"] + "/asked", "a") as stream:
    stream.write("x")
on = host["smt"]
module.exit_json(changed=False, ansible_facts={"smt": {
    "supported": True, "control": "on" if on else "off", "active": on, "sockets": 1, "cores": 2, "complete": True,
    "hardware_class": host["hardware_class"],
    "threads_per_core": {"min": 2, "max": 2, "online_max": 1 + on}, "sibling_groups": ["0,2", "1,3"],
    "packages": ["0-3"], "nodes": {"0": "0-3"},
    "primaries": "0-1", "secondaries": "2-3", "numbering": "split", "source": "sysfs", "measured": None,
    "vulnerabilities": {}, "hypervisor": None, "kernel": host.get("kernel"),
    "cpus": {"present": "0-3", "possible": "0-3", "online": "0-3" if on else "0-1", "offline": "" if on else "2-3",
        "isolated": ""},
    "boot": {"running": host.get("booted", []), "configured": host["configured"], "loader": "grub_debian",
        "reboot_required": host["configured"] != host.get("booted", [])},
    "reboot_slot": slot_record.pending(host_files.HostFs(module.params["sysroot"] or os.environ["SMT_HOST"])),
    "methods": {"runtime": {"chosen": "smt_control", "possible": ["smt_control"], "impossible": {}},
                "boot": {"chosen": "grub_debian", "possible": ["grub_debian"], "impossible": {}}},
    # As much as large machines say.
    "problems": ["x" * 3000] * 10, "pending_change": host.get("pending_change"),
    "pending_rollback": record.pending(host_files.HostFs(module.params["sysroot"] or os.environ["SMT_HOST"]))}})
""",
    "smt_state": r"""
module = AnsibleModule({"state": {}, "threads_per_core": {"type": "int"}, "method": {}, "affinity_conflicts": {},
    "affinity_conflicts_of": {}, "persist": {},
    "neutralise_udev_rules": {"type": "bool"}, "siblings": {"type": "raw"}, "cores": {"type": "dict"},
    "consumers": {"type": "dict"}, "consumers_custom": {"type": "list"}}, supports_check_mode=True)
if host.get("refuses"):
    module.fail_json(msg="the kernel refuses CPU 3", affinity_conflicts=[])
now = {"control": "on", "active": True, "online": "0-3"}
if module.params["cores"]:
    with open(os.environ["SMT_HOST"] + "/log", "a") as stream:
        stream.write("cores %s\n" % json.dumps(module.params["cores"]))
if module.params["consumers"] and not module.check_mode:
    with open(os.environ["SMT_HOST"] + "/log", "a") as stream:
        stream.write("consumers %s\n" % json.dumps(module.params["consumers"], sort_keys=True))
end(module, "smt", module.params["state"] == "enabled" or module.params["threads_per_core"] == 2, before=now, after=now,
    affinity_conflicts=[], not_restored=[], consumers=[], rollback_pending=False, rollback_started=False, diff=[])
""",
    "smt_boot_args": r"""
module = AnsibleModule({"smt": {}, "maxcpus": {}, "mitigations": {}, "force": {"type": "bool"},
    "affinity_conflicts": {}, "affinity_conflicts_of": {"type": "list"}, "consumers": {"type": "dict"}},
    supports_check_mode=True)
wanted = {"enabled": [], "disabled": ["nosmt"]}[module.params["smt"]]
end(module, "configured", wanted, reboot_required=wanted != host.get("booted", []), found=[], reboot_in_vain=None,
    loader="grub_debian", arguments=[], configured_before=[], configured=[], running=[],
    mitigations_running=[], differences=[], affinity_conflicts=[], diff=[])
""",
    # The file is where the real one has it, and facts read it as they do the real one.
    "smt_rollback": r"""
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.rollback import record
module = AnsibleModule({"state": {}, "parts": {"type": "list"}, "reboot": {"type": "bool"}, "rollout": {"type": "bool"},
    "reboot_ok": {"type": "bool"}, "interrupted_since": {}},
                       supports_check_mode=True)
given, fs = module.params, host_files.HostFs(os.environ["SMT_HOST"])
known = record.FILE.load(fs, dict)
back_to, changed = known and known["back_to"], False
if given["state"] == "saved":
    if known and known["rollout"] and known["saved_at"] != given["interrupted_since"]:
        module.fail_json(msg="another rollout has begun to change this host")
    older = known if known and known["rollout"] else {"saved_at": "2026-03-01T12:00:00Z", "rollout": given["rollout"],
        "host": {}}
    fields = {"running": "smt", "configured": "configured"}
    now = {fields[part]: host[fields[part]] for part in given["parts"] if part in fields}
    older["host"] = {**now, **older["host"]}
    back_to = older["back_to"] = " and ".join("%s %s" % (name, json.dumps(value))
        for name, value in sorted(older["host"].items()))
    changed = not module.check_mode and record.FILE.save(fs, older)
elif given["state"] == "confirmed":
    changed = not module.check_mode and record.FILE.remove(fs)
elif known:
    for name, value in known["host"].items():
        if host[name] != value:
            changed = True
            with open(os.environ["SMT_HOST"] + "/log", "a") as stream:
                stream.write("%s %s\n" % (name, json.dumps(value)))
    host.update(known["host"])
    with open(PATH + ".new", "w") as stream:
        json.dump(host, stream)
    os.rename(PATH + ".new", PATH)
module.exit_json(changed=changed, back_to=back_to, not_back=[], reboot_required=False, diff=[])
""",
    # The real one would change the machine that runs the tests.
    "smt_memory": """
print(json.dumps({"failed": True, "msg": "a simulated host has no memory settings to change"}))
""",
}


class Fleet:
    """Simulated hosts and the directory from which playbooks are called."""

    def __init__(self, directory: pathlib.Path, hosts: dict[str, dict], python: str = sys.executable):
        self.directory = directory
        self.python = python
        self.hosts = list(hosts)
        collection = directory / "collections/ansible_collections/threadwise/smt"
        modules = collection / "plugins/modules"
        modules.mkdir(parents=True)
        _link(ROOT, collection, {"plugins", ".git", ".venv", ".cache"})
        _link(ROOT / "plugins", collection / "plugins", {"modules"})
        _link(ROOT / "plugins/modules", modules, {"smt_slot.py", *(f"{name}.py" for name in STAND_INS)})
        # The module itself, and the files of the host.
        slot = (ROOT / "plugins/modules/smt_slot.py").read_text()
        assert 'HostFs("/")' in slot
        slot = slot.replace('HostFs("/")', 'HostFs(os.environ["SMT_HOST"])')
        (modules / "smt_slot.py").write_text(slot.replace("import typing", "import os\nimport typing"))
        for name, text in STAND_INS.items():
            # The controller reads what a module documents; it does not run it.
            source = (ROOT / f"plugins/modules/{name}.py").read_text()
            documented = re.findall(r'^RETURN = r""".*?"""\n', source, re.DOTALL | re.MULTILINE)
            program = 'if __name__ == "__main__":\n' + textwrap.indent(COMMON + text, "    ")
            (modules / f"{name}.py").write_text(SHEBANG + "".join(documented) + program)
        loaded = directory / "loaded"
        loaded.mkdir()
        (loaded / "sitecustomize.py").write_text(LOADED)
        inventory = {}
        for name, variables in hosts.items():
            place = directory / "hosts" / name
            place.mkdir(parents=True)
            (place / "python").write_text(INTERPRETER.format(place=place, loaded=loaded, python=python))
            (place / "python").chmod(0o755)
            known = {"ansible_python_interpreter": str(place / "python"), "smt_facts_sysroot": str(place)}
            inventory[name] = {**known, "ansible_connection": "local", **variables}
            kind = variables.get("simulated_class", "x86_64-1s2c4t-split-00000000")
            self.set(name, smt=True, configured=[], hardware_class=kind)
        (directory / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": inventory}}, sort_keys=False))

    def set(self, host: str, **state) -> None:
        """Change a host by hand."""
        path = self.directory / "hosts" / host / "host.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(dict(known, **state)))

    def get(self, name: str) -> dict[str, object]:
        """Host -> a field of its state."""
        paths = {host: self.directory / "hosts" / host / "host.json" for host in self.hosts}
        return {host: json.loads(path.read_text())[name] for host, path in paths.items()}

    def changes(self) -> dict[str, list[str]]:
        """Host -> what was changed on it since the last call; hosts without a change are left out."""
        logs = {host: self.directory / "hosts" / host / "log" for host in self.hosts}
        found = {host: log.read_text().splitlines() for host, log in logs.items() if log.exists()}
        for host in found:
            logs[host].unlink()
        return found

    def calls(self) -> dict[str, int]:
        """Host -> how often its facts were read since the last call."""
        logs = {host: self.directory / "hosts" / host / "asked" for host in self.hosts}
        found = {host: len(log.read_text()) if log.exists() else 0 for host, log in logs.items()}
        for log in logs.values():
            log.unlink(missing_ok=True)
        return found

    def at_work(self) -> list[int]:
        """Processes that run on a simulated host."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.fsencode(self.directory / "hosts") in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    def start(self, playbook: str, *arguments: str, **variables) -> subprocess.Popen:
        """Start a playbook of the collection, or a file in the directory, in a session of its own."""
        collections = str(self.directory / "collections")
        environment = {"ANSIBLE_COLLECTIONS_PATH": collections, "ANSIBLE_PIPELINING": "1"}
        known = {"python": self.python, "environment": environment}
        return this_machine.start(self.directory, playbook, "-i", "inventory.yml", *arguments, **known, **variables)

    def play(self, playbook: str, *arguments: str, **variables) -> tuple[int, str]:
        """Call a playbook of the collection. Returns (exit code, what a person sees)."""
        with self.start(playbook, *arguments, **variables) as process:
            seen = process.communicate()[0]
        return process.returncode, seen


def _link(source: pathlib.Path, target: pathlib.Path, without: set[str]) -> None:
    for path in source.iterdir():
        if path.name not in without:
            (target / path.name).symlink_to(path)
