#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_user_values
short_description: (internal) Values that the user wrote, whatever a host says of itself
version_added: 1.0.0
description:
  - Used by the playbook C(threadwise.smt.smt_enforce) and by roles of this collection; not to be called directly.
  - Works out values from extra variables, the play and the inventory. In Ansible a host's facts take precedence over
    its inventory's variables, also facts of an earlier play or of a fact cache. Here they do not count.
  - Fails a host that has facts with names of variables of this collection.
  - Fails a host for which a variable is misspelt or has a value that cannot be used. In playbooks of users the roles
    find this with it.
options:
  given:
    description: The values, by any names.
    type: dict
    default: {}
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Take the path of a file of the controller from the user
  threadwise.smt.smt_user_values:
    given:
      path: "{{ smt_enforce_health_check }}"
  register: smt_user_values_result
"""

RETURN = r"""
given:
  description: The values.
  returned: success
  type: dict
"""
