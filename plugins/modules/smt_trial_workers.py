#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_trial_workers
short_description: (internal) Services with as many workers as there were CPUs
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_trial#role); not to be called directly.
  - Lists the systemd services that run as many processes or threads as there were CPUs before a switch. They counted
    the CPUs when they started. Also lists the programs that M(threadwise.smt.smt_state) knows, and that believe in
    another number of CPUs than there is.
options:
  cpus:
    description: The number of online CPUs before the switch.
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
  - module: threadwise.smt.smt_state
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Services with eight workers
  threadwise.smt.smt_trial_workers:
    cpus: 8
"""

RETURN = r"""
workers:
  description: The systemd unit, the name of its processes, and C(kind), V(processes) or V(threads), of each.
  returned: success
  type: list
  elements: dict
  sample: [{unit: ingest.service, name: ingest, kind: processes}]
consumers:
  description: The systemd unit of each such program, or the program itself, and what it C(has).
  returned: success
  type: list
  elements: dict
  sample: [{unit: nginx.service, has: 4 worker processes for 4 CPUs}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import worker_counts
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import find, history
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state


def main() -> None:
    """List the services."""
    module = AnsibleModule(argument_spec={"cpus": {"type": "int", "required": True}}, supports_check_mode=True)
    host = kernel_files.KernelFiles("/")
    try:
        online = history.load(host_files.HostFs("/"), smt_state.read(files=host)["online"])
    except HostError as error:
        module.fail_json(msg=str(error))
    consumers = [
        {"unit": entry.consumer.process.title, "has": entry.counted}
        for entry in find.wrong(host, online)[: find.MAX_FACTS]
    ]
    known = {consumer["unit"] for consumer in consumers}
    workers = worker_counts.of_services(host, module.params["cpus"])
    module.exit_json(
        changed=False, workers=[worker for worker in workers if worker["unit"] not in known], consumers=consumers
    )


if __name__ == "__main__":
    main()
