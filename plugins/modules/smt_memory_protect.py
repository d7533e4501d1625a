#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: smt_memory_protect
short_description: Services that the OOM killer should spare
version_added: 0.1.0
description:
  - Gives systemd services an OOM score of -900 by a drop-in with C(OOMScoreAdjust=), and the processes that already run as well, without
    restarting them. They are killed only when nothing else is left.
  - The list is the whole of it. A service that this module protected earlier and that is not named any more gets back the score it had.
  - A service that has -900 or less by itself is left alone, and so are processes that have given themselves another score than their service has.
options:
  units:
    description: Services, with or without C(.service) at the end.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows the services with their drop-ins and processes before and after.
seealso:
  - module: threadwise.smt.smt_memory_facts
  - module: threadwise.smt.smt_memory_state
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Let the OOM killer take something else than the data base
  threadwise.smt.smt_memory_protect:
    units:
      - postgresql@15-main
  become: true
"""

RETURN = r"""
protected:
  description: Services that were given the score, by their own names.
  returned: always
  type: list
  elements: str
released:
  description: Services that got back the score they had.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._host.locks import HostLockError
from ansible_collections.threadwise.smt.plugins.module_utils._memory import change as memory_change
from ansible_collections.threadwise.smt.plugins.module_utils._memory.oom_score import UnitError
from ansible_collections.threadwise.smt.plugins.module_utils._memory.snapshot import MemorySnapshotError


def main() -> None:
    """Protect services from the OOM killer."""
    module = AnsibleModule(argument_spec={"units": {"type": "list", "elements": "str", "required": True}}, supports_check_mode=True)
    try:
        result = memory_change.protect(module.run_command, module.params["units"], module.check_mode)
    except (MemorySnapshotError, UnitError, HostLockError, OSError) as error:
        module.fail_json(msg=str(error))
    for sentence in result.pop("overrides"):
        module.warn(sentence)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
