# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is rebooted without a machine: its boot loader's configuration is a tree that the collection's own code
reads and writes, and a reboot sets what a kernel would make of it.
"""

from __future__ import annotations

import pathlib
import shutil
import sys
import textwrap
import uuid

import yaml
from simulated_fleet import ROOT, SHEBANG, Fleet

sys.path.insert(0, str(ROOT / "tests/unit/support"))
import boot_maker

HEAD = 'import os\nfrom ansible.module_utils.basic import AnsibleModule\nROOT = os.environ["SMT_HOST"] + "/root"\n'
COLLECTION = "from ansible_collections.threadwise.smt.plugins.module_utils."
MODULES = {
    "smt_facts": (
        f"""{COLLECTION}_facts import facts
{COLLECTION}_host import files
module = AnsibleModule({{"sysroot": {{}}}}, supports_check_mode=True)
module.exit_json(changed=False, ansible_facts={{"smt": facts.gather(files.HostFs(ROOT))}})
"""
    ),
    "smt_boot_args": (
        f"""{COLLECTION}_boot import change
{COLLECTION}_host import files
names = ("smt", "maxcpus", "mitigations")
more = {{"affinity_conflicts_of": {{"type": "list"}}, "consumers": {{"type": "dict"}}, "force": {{"type": "bool"}}}}
module = AnsibleModule(dict(more, **{{name: {{}} for name in (*names, "affinity_conflicts")}}),
    supports_check_mode=True)
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
    "simulated_reboot": (
        f"""import glob, uuid
{COLLECTION}_boot import entries
{COLLECTION}_host import files
module = AnsibleModule({{"reboot_timeout": {{}}, "msg": {{}}}}, supports_check_mode=True)
arguments = entries.read_grub_cfg(files.HostFs(ROOT), "boot/grub/grub.cfg")[0].arguments
with open(os.environ["SMT_HOST"] + "/log", "a") as stream:
    stream.write("boot %s\\n" % " ".join(one for one in arguments
        if one.split("=")[0] in ("nosmt", "maxcpus", "mitigations")))
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
"""
    ),
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
            (collection / "plugins/modules" / f"{module}.py").unlink(missing_ok=True)
            documented = (
                ""
                if module == "simulated_reboot"
                else (ROOT / f"plugins/modules/{module}.py").read_text().partition("from ansible.module_utils")[0]
            )
            # The controller reads what a module documents; it does not run it.
            program = (
                SHEBANG
                + documented.replace(SHEBANG, "")
                + 'if __name__ == "__main__":\n'
                + textwrap.indent(HEAD + text, "    ")
            )
            (collection / "plugins/modules" / f"{module}.py").write_text(program)
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
    """Have the collection's own code reboot the host by the module simulated_reboot, and read the id of its boot there.

    Args:
        collection: a simulated fleet's.
        place: of the host.
    """
    for folder in ("plugins/action", "plugins/plugin_utils"):
        (collection / folder).unlink()
        shutil.copytree(ROOT / folder, collection / folder)
    (collection / "plugins/action/simulated_reboot.py").write_text(REBOOT)
    for file, real, simulated in (
        ("reboot", '"ansible.builtin.reboot"', '"threadwise.smt.simulated_reboot"'),
        ("reboot", "/proc/sys/kernel/random/boot_id", f"{place}/boot_id"),
        ("reboot", "PAUSE_SECONDS = 30.0", "PAUSE_SECONDS = 0.5"),
    ):
        path = collection / f"plugins/plugin_utils/_measure/boots/{file}.py"
        text = path.read_text()
        assert real in text
        path.write_text(text.replace(real, simulated))
    (place / "boot_id").write_text(f"{uuid.uuid4()}\n")
    boot_maker.write(place, "proc/sys/kernel/random/boot_id", f"{uuid.uuid4()}\n")
