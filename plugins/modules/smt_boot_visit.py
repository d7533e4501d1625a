#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_boot_visit
short_description: (internal) Boot arguments that a host undoes by itself
version_added: 1.0.0
description:
  - Used by the roles P(threadwise.smt.smt_eval#role) and P(threadwise.smt.smt_trial#role); not to be called directly.
  - Sets boot arguments like M(threadwise.smt.smt_boot_args), for a while. Before that it leaves a systemd service on
    the host, for this boot and each later one. It undoes them when it has no sign of its controller for O(seconds), and
    reboots the host if it was booted with them. It tries until the host was seen without them, says why it could not,
    and only then removes itself.
  - Does not reboot the host itself.
options:
  state:
    description:
      - V(begun) sets the arguments. The same O(owner) may go on with others, and its time starts anew with each call.
      - V(ended) undoes them. What brings the host back is removed when neither its boot configuration nor its running
        kernel has the arguments - after a reboot, by a second call or by the host itself.
    type: str
    choices: [begun, ended]
    default: begun
  owner:
    description: Who asks for it, as part of a sentence. Required for V(begun).
    type: str
  smt:
    description: As in M(threadwise.smt.smt_boot_args). V(enabled) is a boot with the host's own arguments among others.
    type: str
    choices: [enabled, disabled, forced_off, mitigations_nosmt]
  maxcpus:
    description: As in M(threadwise.smt.smt_boot_args).
    type: str
  mitigations:
    description: As in M(threadwise.smt.smt_boot_args).
    type: str
    choices: [auto, auto_nosmt, 'off']
  seconds:
    description: After so many without a sign of the controller the host goes back. They count from each call, each
      check of a trial, and each boot. While another process holds the host's lock, such as a measurement, it waits.
      Required for V(begun).
    type: int
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
  threadwise.smt.smt_boot_visit:
    owner: the evaluation 20260102T030405Z
    smt: disabled
    seconds: 600

- name: Undo it
  threadwise.smt.smt_boot_visit:
    state: ended
"""

RETURN = r"""
arguments:
  description: The boot arguments that were set, in check mode would be; none for V(ended).
  returned: success
  type: list
  elements: str
  sample: [nosmt]
reboot_required:
  description: Whether the next boot has other arguments than the running kernel.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import transaction
from ansible_collections.threadwise.smt.plugins.module_utils._boot.visit import change as visit, record
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files


def main() -> None:
    """Begin or end a visit."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["begun", "ended"], "default": "begun"},
            "owner": {"type": "str"},
            "smt": {"type": "str", "choices": ["enabled", "disabled", "forced_off", "mitigations_nosmt"]},
            "maxcpus": {"type": "str"},
            "mitigations": {"type": "str", "choices": ["auto", "auto_nosmt", "off"]},
            "seconds": {"type": "int"},
        },
        mutually_exclusive=[("smt", "maxcpus")],
        required_if=[
            ("state", "begun", ("owner",)),
            ("state", "begun", ("seconds",)),
            ("state", "begun", ("smt", "maxcpus", "mitigations"), True),
        ],
        supports_check_mode=True,
    )
    transaction.defer_termination_signals()
    fs = host_files.HostFs("/")
    try:
        _run(module, fs)
    except boot_change.ERRORS as error:
        later = "" if module.params["state"] == "begun" else f". {record.UNIT}.service on the host tries again"
        module.fail_json(msg=f"{error}{later}")


def _run(module: AnsibleModule, fs: host_files.HostFs) -> None:
    given = module.params
    if given["state"] == "ended":
        ended = visit.end(fs, module.check_mode)
        module.exit_json(changed=ended.changed, arguments=[], reboot_required=ended.reboot_required)
    request = boot_change.Request(given["smt"], given["maxcpus"], False, module.check_mode, given["mitigations"])
    if module.check_mode:
        obstacle = visit.why_not(fs, given["owner"])
        if obstacle is not None:
            raise visit.VisitError(obstacle)
        result = boot_change.run(fs, request)
    else:
        result = visit.begin(fs, request, given["seconds"], given["owner"])
    for warning in result["warnings"]:
        module.warn(warning)
    module.exit_json(changed=True, arguments=result["arguments"], reboot_required=result["reboot_required"])


if __name__ == "__main__":
    main()
