#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_proof_host
short_description: (internal) what a host shows of itself, and a switch of its siblings there and back
version_added: 1.0.0
description:
  - Used by the playbook smt_proof.yml; not to be called directly.
  - Compares the facts with what the kernel's files and other tools say, tries what there is to measure with, takes
    siblings offline once and brings the host back, and looks whether each CPU, mask, cpuset and interrupt is as it was.
    Affinity conflicts of services refuse that, as in M(threadwise.smt.smt_state).
  - The rollback timer of M(threadwise.smt.smt_state) brings the host back where this module dies in between.
options:
  switch:
    description: Whether siblings go offline at all.
    type: bool
    default: true
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
    details: Says whether the switch would be refused.
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_state
  - module: threadwise.smt.smt_proof_report
author: threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Look, and switch nothing
  threadwise.smt.smt_proof_host:
    switch: false
  become: true
"""

RETURN = r"""
kernel:
  description: Release of the running kernel.
  returned: success
  type: str
views:
  description: What each source says of CPUs.
  returned: success
  type: list
  elements: dict
  contains:
    source:
      description: A file of the kernel, or a tool.
      type: str
    reason:
      description: Why it says nothing, or which CPUs it says nothing of, or null.
      type: str
    cores:
      description: How many cores it knows, or null.
      type: int
    differences:
      description: In which it differs from the facts, one sentence each.
      type: list
      elements: str
instruments:
  description: What there is to measure with.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The instrument.
      type: str
    reason:
      description: Why it cannot be used, or null.
      type: str
    detail:
      description: What it is on this host.
      type: str
    cost:
      description: The share of a CPU that reading it before and after samples of a second takes, or null.
      type: float
switch:
  description: How taking siblings offline and bringing them back went; null where it was not asked for.
  returned: success
  type: dict
  contains:
    refused:
      description: Why nothing was switched, or nothing that stayed, or null.
      type: str
    failed:
      description: Whether that is because the kernel did not do it.
      type: bool
    conflicts:
      description: Number of affinity conflicts that refused it.
      type: int
    seconds_off:
      description: Seconds until siblings were offline, or null.
      type: float
    seconds_back:
      description: Seconds until the host was back, or null.
      type: float
    cpus:
      description: The siblings, a CPU list.
      type: str
    different:
      description:
        - What is not as before, by kind (cpus, masks, cpusets, interrupts); without a kind that was not compared, as
          interrupts where C(irqbalance) runs, which moves them whenever it likes.
      type: dict
    not_restored:
      description: What could not be restored, one sentence each.
      type: list
      elements: str
recorded:
  description:
    - Path -> text of the kernel's files about CPUs, and of what says which kind of machine it is, without what names
      the host; empty for a very large one.
  returned: success
  type: dict
"""

import os
import platform

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache, topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import (
    instruments,
    recording,
    switching,
    views,
)


def main() -> None:
    """Look at a host, and switch its siblings there and back."""
    module = AnsibleModule(argument_spec={"switch": {"type": "bool", "default": True}}, supports_check_mode=True)
    fs = HostFs("/")
    # Before the switch, which can only make the facts richer.
    shown = topology.read_topology(fs, topology_cache.load(fs))
    seen = [(view, views.differences(shown, view)) for view in views.read(fs, shown.online)]
    recorded = recording.read(fs)
    switched = None
    if module.params["switch"]:
        try:
            switched = switching.there_and_back(module.run_command, os.sysconf("SC_CLK_TCK"), module.check_mode)
        except HostError as error:
            module.fail_json(
                msg=f"the host is not as before: {error}. Its rollback timer goes on trying, within"
                f" {switching.ROLLBACK_SECONDS} s"
            )
    module.exit_json(
        changed=False,
        kernel=platform.release(),
        views=[
            {
                "source": view.source,
                "reason": view.reason,
                "cores": None if view.cores is None else len(view.cores),
                "differences": different,
            }
            for view, different in seen
        ],
        instruments=[instrument._asdict() for instrument in instruments.try_all(fs)],
        switch=switched and dict(switched._asdict(), different=dict(switched.different)),
        recorded=recorded,
    )


if __name__ == "__main__":
    main()
