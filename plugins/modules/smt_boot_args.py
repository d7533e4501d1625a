#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_boot_args
short_description: Boot arguments that turn SMT on or off, or choose the mitigations of CPU vulnerabilities
version_added: 1.0.0
description:
  - Sets the boot arguments C(nosmt), C(nosmt=force), C(maxcpus=N) or C(mitigations=auto,nosmt) in the boot loader's
    configuration, or takes away all that turn SMT off, and sets C(mitigations=). An argument is replaced, never
    repeated.
  - The boot loader is chosen from what is installed, and each is changed in its own way. For example, grub on Debian
    and Ubuntu gets a file of its own in C(/etc/default/grub.d), and the RHEL family and Fedora are changed by grubby. A
    boot loader that is not supported is refused, with a list of those that are.
  - The new configuration is written beside the old one, checked, and activated by a rename. A failure restores the old
    configuration, and the message says what has become of the files.
  - Nothing is rebooted. The role P(threadwise.smt.smt_boot#role) can do that.
options:
  smt:
    description:
      - V(enabled) removes every argument that turns SMT off, whoever set it, and returns what it removed.
      - V(disabled) boots with C(nosmt). SMT can be turned on again at run time.
      - V(on) and V(off), and YAML's V(true) and V(false), are other words for V(enabled) and V(disabled).
      - V(forced_off) boots with C(nosmt=force). SMT stays off until a reboot without it.
      - V(mitigations_nosmt) boots with C(mitigations=auto,nosmt), which turns SMT off only on processors whose
        vulnerabilities require it. Attack vectors that another C(mitigations) takes out (Linux 6.17 and later) stay
        out, in a second one behind it. C(no_cross_thread) goes.
    type: str
    choices: [enabled, disabled, forced_off, mitigations_nosmt, 'on', 'off']
  maxcpus:
    description:
      - The number of CPUs to start at boot, or V(one_per_core) for the number of cores.
      - It is refused when it would not leave exactly one thread of each core with each of the kernels that can be
        booted. That depends on how CPUs are numbered and on the kernel. O(smt=disabled) depends on neither.
    type: str
  mitigations:
    description:
      - V(auto) boots with C(mitigations=auto), V(auto_nosmt) with C(mitigations=auto,nosmt), V(off) with
        C(mitigations=off), which leaves every vulnerability of the processor open that the kernel can leave open.
      - Without it the C(mitigations) that a host has of its own is not touched, and one that this option set before is
        taken away again.
      - With V(auto) and V(auto_nosmt) the attack vectors that another C(mitigations) takes out (Linux 6.17 and later)
        stay out, in a second one behind it. V(off) takes out all of them, so another C(mitigations) goes, and is
        returned in RV(found).
      - Where the boot loader keeps arguments in the entries themselves, a host with a C(mitigations) of its own is
        refused, because it could not be put back as it was.
      - It can be combined with O(smt) and O(maxcpus). V(auto_nosmt) and O(smt=mitigations_nosmt) cannot be combined
        with anything.
    type: str
    choices: [auto, auto_nosmt, 'off']
  force:
    description: Takes a number in O(maxcpus) that would not leave one thread of each core.
    type: bool
    default: false
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
notes:
  - Needs root.
seealso:
  - module: threadwise.smt.smt_facts
  - module: threadwise.smt.smt_state
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: SMT off from the next boot on
  threadwise.smt.smt_boot_args:
    smt: disabled
  become: true

- name: Whatever turned SMT off, take it away
  threadwise.smt.smt_boot_args:
    smt: enabled
  become: true

- name: SMT on, and mitigations that turn it off only where the processor needs it
  threadwise.smt.smt_boot_args:
    mitigations: auto_nosmt
  become: true

- name: One CPU a core, where the numbering allows it
  threadwise.smt.smt_boot_args:
    maxcpus: one_per_core
  become: true
"""

RETURN = r"""
loader:
  description: The method that was used.
  returned: success
  type: str
  sample: grub_debian
arguments:
  description: The arguments that are set.
  returned: success
  type: list
  elements: str
  sample: [nosmt]
found:
  description: Removed arguments from settings outside this collection, and where each was set.
  returned: success
  type: list
  elements: dict
  sample: [{"argument": "maxcpus=4", "where": "/etc/default/grub"}]
configured_before:
  description: SMT-related arguments that every boot entry had, and C(mitigations) where O(mitigations) sets it or takes
    it away. So with the next two.
  returned: success
  type: list
  elements: str
configured:
  description: Those which every boot entry has afterwards, in check mode would have.
  returned: success
  type: list
  elements: str
running:
  description: SMT-related arguments of the running kernel.
  returned: success
  type: list
  elements: str
mitigations_running:
  description: All arguments C(mitigations) of the running kernel, whoever set them.
  returned: success
  type: list
  elements: str
reboot_required:
  description: Whether the next boot has other SMT-related arguments than the running kernel.
  returned: success
  type: bool
differences:
  description: Differences of the running system from a boot with these arguments. Empty when they are active.
  returned: success
  type: list
  elements: str
  sample: ["/proc/cmdline: nosmt is missing", "smt/active reads 1, expected is 0"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import transaction
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import states


def main() -> None:
    """Set the boot arguments."""
    module = AnsibleModule(
        argument_spec={
            "smt": {"type": "str", "choices": ["enabled", "disabled", "forced_off", "mitigations_nosmt", "on", "off"]},
            "maxcpus": {"type": "str"},
            "mitigations": {"type": "str", "choices": ["auto", "auto_nosmt", "off"]},
            "force": {"type": "bool", "default": False},
        },
        mutually_exclusive=[("smt", "maxcpus")],
        required_one_of=[("smt", "maxcpus", "mitigations")],
        supports_check_mode=True,
    )
    transaction.defer_termination_signals()
    given = module.params
    request = boot_change.Request(
        states.named(given["smt"]), given["maxcpus"], given["force"], module.check_mode, given["mitigations"]
    )
    try:
        result = boot_change.run(host_files.HostFs("/"), request)
    except boot_change.ERRORS as error:
        module.fail_json(msg=str(error))
    for warning in result.pop("warnings"):
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
