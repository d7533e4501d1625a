#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: smt_facts
short_description: Which CPUs share a core, and what is known about SMT on a host
version_added: 0.1.0
description:
  - Reads the CPU topology, the state of simultaneous multithreading (SMT, Hyper-Threading), boot arguments, vulnerabilities and what can be
    changed here and how, and returns them as C(ansible_facts['smt']).
  - Nothing is written and no program is run. What cannot be known is null or empty, never a guess.
options:
  sysroot:
    description:
      - Directory that stands for C(/). With another value than V(/) a recorded tree of another machine is read.
    type: path
    default: /
attributes:
  check_mode:
    support: full
    description: Can run in check mode and return the same facts.
  diff_mode:
    support: none
    description: Will return details on what has changed (or possibly needs changing in check_mode), when in diff mode.
  platform:
    support: full
    platforms: Linux
    description: Target OS/families that can be operated against.
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Read the facts
  threadwise.smt.smt_facts:

- name: Say which CPUs are siblings of another
  ansible.builtin.debug:
    msg: "{{ ansible_facts['smt']['secondaries'] if ansible_facts['smt']['complete'] else 'not known' }}"

- name: Read a recorded tree instead of this machine
  threadwise.smt.smt_facts:
    sysroot: /srv/recorded/db01
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    smt:
      description: What is known about SMT on this host.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.threadwise.smt.plugins.module_utils import facts, hostfs


def main():
    module = AnsibleModule(argument_spec={'sysroot': {'type': 'path', 'default': '/'}}, supports_check_mode=True)
    module.exit_json(changed=False, ansible_facts={'smt': facts.gather(hostfs.HostFs(module.params['sysroot']))})


if __name__ == '__main__':
    main()
