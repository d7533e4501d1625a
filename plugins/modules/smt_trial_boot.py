#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_trial_boot
short_description: Boot arguments that a host undoes by itself
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_trial#role); not to be called directly.
  - Sets boot arguments like M(threadwise.smt.smt_boot_args), and starts a systemd timer that undoes them and reboots the host. The timer is enabled for the
    next boot too, and starts anew there. It does not reboot a host that was not rebooted since.
  - Does not reboot the host itself.
options:
  smt:
    description: As in M(threadwise.smt.smt_boot_args).
    type: str
    choices: [disabled, forced_off]
  maxcpus:
    description: As in M(threadwise.smt.smt_boot_args).
    type: str
  mitigations:
    description: As in M(threadwise.smt.smt_boot_args).
    type: str
    choices: [auto, auto_nosmt]
  seconds:
    description: The time of the timer.
    type: int
    required: true
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_boot_args
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Boot without SMT until ten minutes after the boot
  threadwise.smt.smt_trial_boot:
    smt: disabled
    seconds: 600
"""

RETURN = r"""
arguments:
  description: The boot arguments that were set, in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [nosmt]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import transaction
from ansible_collections.threadwise.smt.plugins.module_utils._boot_visit import visit
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files


def main() -> None:
    """Set the boot arguments."""
    module = AnsibleModule(
        argument_spec={
            "smt": {"type": "str", "choices": ["disabled", "forced_off"]},
            "maxcpus": {"type": "str"},
            "mitigations": {"type": "str", "choices": ["auto", "auto_nosmt"]},
            "seconds": {"type": "int", "required": True},
        },
        mutually_exclusive=[("smt", "maxcpus")],
        required_one_of=[("smt", "maxcpus", "mitigations")],
        supports_check_mode=True,
    )
    transaction.defer_termination_signals()
    given = module.params
    fs = host_files.HostFs("/")
    request = boot_change.Request(given["smt"], given["maxcpus"], False, module.check_mode, given["mitigations"])
    try:
        if module.check_mode:
            obstacle = visit.why_not(fs)
            if obstacle is not None:
                raise visit.VisitError(obstacle)
            result = boot_change.run(fs, request)
        else:
            result = visit.begin(fs, request, given["seconds"])
    except (visit.VisitError, *boot_change.ERRORS) as error:
        module.fail_json(msg=str(error))
    for warning in result["warnings"]:
        module.warn(warning)
    module.exit_json(changed=True, arguments=result["arguments"])


if __name__ == "__main__":
    main()
