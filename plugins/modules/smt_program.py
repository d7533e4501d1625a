#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_program
short_description: (internal) A program that a unit of a role runs on the host
version_added: 1.0.0
description:
  - Used by the roles P(threadwise.smt.smt_pull#role) and P(threadwise.smt.smt_usage#role); not to be called directly.
  - Leaves the program that the unit of the role runs on the host, in one file.
options:
  program:
    description: V(pull) pulls the host's policy, V(usage) looks how its cores are used.
    type: str
    choices: [pull, usage]
    required: true
  path:
    description: Absolute path of the file.
    type: path
    required: true
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
notes:
  - Needs root.
seealso:
  - module: threadwise.smt.smt_status
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Leave the program
  threadwise.smt.smt_program:
    program: pull
    path: /var/lib/threadwise-smt-pull/program
"""

RETURN = r"""
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import archive
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull import program as pull
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import program as usage

PROGRAMS = {"pull": pull.__name__, "usage": usage.__name__}


def main() -> None:
    """Leave the program."""
    module = AnsibleModule(
        argument_spec={
            "program": {"type": "str", "choices": sorted(PROGRAMS), "required": True},
            "path": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    fs = host_files.HostFs("/")
    name = module.params["program"]
    try:
        changed = archive.install(fs, module.params["path"].lstrip("/"), PROGRAMS[name], check=module.check_mode)
    except OSError as error:
        module.fail_json(msg=f"the program of smt_{name} cannot be written: {error}. Nothing else was changed")
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
