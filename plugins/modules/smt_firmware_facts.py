#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_firmware_facts
short_description: What the firmware is set to, by its BMC, and whether the kernel shows the same
version_added: 1.0.0
description:
  - Asks a BMC by Redfish for the BIOS attribute that switches SMT, and returns its value now, the one that waits for
    the next boot, what they mean, and how it can be set, as C(ansible_facts['smt_firmware']).
  - With the facts of the host it finds out whether the kernel shows what the firmware says.
  - Nothing is written, but a session that is ended again. Only the host of O(baseuri) is asked; links and redirects to
    others are not followed.
  - It runs on any machine that reaches the BMC, such as the controller with C(delegate_to=localhost). The facts are
    those of the host in the inventory. The address and the credentials are taken from what the user wrote, and not from
    facts; so name each machine in the inventory instead of a loop over BMCs.
  - The names of attributes, and what to do about each finding, are in docs/firmware.md of the collection.
options:
  baseuri:
    description:
      - Name or address of the BMC, with its port where that is not 443, such as C(bmc.example.com). Always by HTTPS.
    type: str
    required: true
  username:
    description:
      - Name of a user who may read. With O(password).
    type: str
  password:
    description:
      - Password of the user.
    type: str
  auth_token:
    description:
      - Token of a session that exists already, instead of O(username) and O(password). That session is not ended.
    type: str
  auth_method:
    description:
      - V(session) signs in once, and out at the end. V(basic) sends the password with each request, for a BMC without
        sessions.
    type: str
    choices: [session, basic]
    default: session
  validate_certs:
    description:
      - Whether the certificate of the BMC is checked. Without that, whoever is between can read the password.
    type: bool
    default: true
  ca_path:
    description:
      - File with the certificates to check it by, on the machine where the module runs.
    type: path
  timeout:
    description:
      - Seconds for one request, from 1 to 600. All together take at most ten times as long.
    type: int
    default: 30
  resource_id:
    description:
      - Id of the only system to read, of a BMC that has several, such as V(System.Embedded.1). All are read without it.
    type: str
  kernel:
    description:
      - What M(threadwise.smt.smt_facts) has found on the host, C(ansible_facts['smt']), to be compared.
    type: dict
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  facts:
    support: full
    description: Returns C(ansible_facts), which are added to the host's.
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_facts
  - module: community.general.redfish_config
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Read what the kernel shows
  threadwise.smt.smt_facts:

- name: Ask the BMC of the same host
  threadwise.smt.smt_firmware_facts:
    baseuri: "{{ bmc_address }}"
    username: "{{ bmc_user }}"
    password: "{{ bmc_password }}"
    ca_path: /etc/ssl/certs/bmc-ca.pem
    kernel: "{{ ansible_facts['smt'] }}"
  delegate_to: localhost

- name: Say what does not fit
  ansible.builtin.debug:
    msg: "{{ ansible_facts['smt_firmware']['findings'] | map(attribute='sentence') }}"

- name: Stop where firmware and kernel disagree
  ansible.builtin.assert:
    that: ansible_facts['smt_firmware']['agrees'] is not false
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    smt_firmware:
      description: What the BMC says. All text of it is made safe to display.
      type: dict
      returned: always
      contains:
        vendor:
          description: Vendor of the BMC, as it says; null where it does not.
          type: str
          returned: always
        redfish_version:
          description: Version of the protocol that it says it has.
          type: str
          returned: always
        systems:
          description: Each system of the BMC.
          type: list
          elements: dict
          returned: always
          contains:
            id:
              description: Its id, for O(resource_id).
              type: str
              returned: always
            manufacturer:
              description: Who made it.
              type: str
              returned: always
            model:
              description: Its model.
              type: str
              returned: always
            bios_version:
              description: Version of its BIOS.
              type: str
              returned: always
            power:
              description: V(On), V(Off) or another word of Redfish.
              type: str
              returned: always
            attribute:
              description: Name of the BIOS attribute that switches SMT; null where none is known.
              type: str
              returned: always
            value:
              description: Its value now.
              type: str
              returned: always
            state:
              description: What that means - V(enabled), V(disabled), V(auto) or V(unknown).
              type: str
              returned: always
            staged_value:
              description: Value that waits for the next boot; null where none does, or where that is not known, which
                is then among the C(problems).
              type: str
              returned: always
            staged:
              description: What that means; null as above.
              type: str
              returned: always
            allowed:
              description: Values that the attribute can have; empty where the BMC has no registry for it.
              type: list
              elements: str
              returned: always
            core_limits:
              description: Settings that leave a part of the cores off, each C(attribute) and its C(value).
              type: list
              elements: dict
              returned: always
            processors:
              description: The BMC's inventory - C(sockets), C(cores) and C(threads), each null where it does not say.
                It is as old as the host's last start.
              type: dict
              returned: always
            tasks:
              description: By V(enabled) and V(disabled), the task of another collection that sets it, in one line of
                YAML without address and credentials; null where the value is not known.
              type: dict
              returned: always
            problems:
              description: Sentences about what could not be read or understood.
              type: list
              elements: str
              returned: always
        agrees:
          description: Whether firmware and kernel say the same; null where that cannot be said.
          type: bool
          returned: always
        findings:
          description:
            - What there is to know or to do - C(system), its id or null; C(about), V(staged), V(kernel), V(cores),
              V(inventory), V(power) or V(system); and a C(sentence).
          type: list
          elements: dict
          returned: always
        problems:
          description: Sentences about the BMC as a whole, such as a session that could not be ended.
          type: list
          elements: str
          returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.options import ranges
from ansible_collections.threadwise.smt.plugins.module_utils._know.firmware import (
    agreement,
    client,
    facts as firmware_facts,
)

SECONDS = (1, 600)


def main() -> None:
    """Read the facts of a BMC."""
    module = AnsibleModule(
        argument_spec={
            "baseuri": {"type": "str", "required": True},
            "username": {"type": "str"},
            "password": {"type": "str", "no_log": True},
            "auth_token": {"type": "str", "no_log": True},
            "auth_method": {"type": "str", "choices": ["session", "basic"], "default": "session"},
            "validate_certs": {"type": "bool", "default": True},
            "ca_path": {"type": "path"},
            "timeout": {"type": "int", "default": 30},
            "resource_id": {"type": "str"},
            "kernel": {"type": "dict"},
        },
        mutually_exclusive=[("auth_token", "username"), ("auth_token", "password")],
        required_together=[("username", "password")],
        required_one_of=[("auth_token", "username")],
        supports_check_mode=True,
    )
    given = module.params
    problem = ranges.problem(given["timeout"], SECONDS)
    if problem:
        module.fail_json(msg=f"timeout is {given['timeout']}: {problem}")
    try:
        kernel = agreement.kernel_of(given["kernel"]) if given["kernel"] is not None else None
        access = client.Access(
            client.host_of(given["baseuri"]),
            given["username"] or "",
            given["password"] or "",
            given["auth_token"] or "",
            given["validate_certs"],
            given["ca_path"],
            given["timeout"],
        )
        request = firmware_facts.Request(given["auth_method"] == "session", given["resource_id"], kernel)
        facts = firmware_facts.gather(client.Client(access, open_url), request)
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, ansible_facts={"smt_firmware": facts})


if __name__ == "__main__":
    main()
