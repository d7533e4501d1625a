#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_usage
short_description: How much of what a host can do it does, and whose work shares cores
version_added: 1.0.0
description:
  - Reads how busy each CPU is over a time, and from random short windows of the scheduler's switches how long siblings
    were busy together, and with whose work. Nothing is switched, and nothing is traced between two windows.
  - CPU usage counts a busy thread as one, whether it has its core for itself or shares it. C(use) has what that means
    for the room that is left.
  - The switches need root and tracefs. Without them the host's counters bound the same numbers, and C(reason) says why.
    An instance of tracefs is used, so that other tracers notice nothing; it goes with this module, however that ends.
options:
  seconds:
    description: How long to look.
    type: float
    default: 600
  windows:
    description: How many windows of switches there are in that time, V(0) for none, at most 1000.
    type: int
    default: 60
  window_seconds:
    description: The length of each. They become shorter where there are very many switches.
    type: float
    default: 0.5
  yields:
    description:
      - The work of a core with all threads busy, in that of one thread alone, as evaluations of such hosts found it.
        The lowest and the highest of them count. Without any, a guess of 1.0 to 1.3 is used.
    type: list
    elements: dict
    default: []
    suboptions:
      workload:
        description: The workload that was measured.
        type: str
        required: true
      low:
        description: The lower end of the interval.
        type: float
        required: true
      high:
        description: The upper end.
        type: float
        required: true
  textfile:
    description:
      - File for the textfile collector of node_exporter, with a name that ends in C(.prom). It says which CPUs share a
        core, O(yields) and what was seen, of which C(examples/prometheus-rules.yml) makes the room that is left at any
        time.
    type: path
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
    details: Looks as without it, and writes no O(textfile).
  diff_mode:
    support: none
seealso:
  - module: threadwise.smt.smt_facts
author: threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Look for a minute
  threadwise.smt.smt_usage:
    seconds: 60
    windows: 30
  become: true
  register: usage

- name: Say what usage does not
  ansible.builtin.debug:
    msg: "usage {{ (100 * usage.use.usage) | round }} %, of its work {{ (100 * usage.use.work[0]) | round }} to
      {{ (100 * usage.use.work[1]) | round }} %"
  when: usage.use
"""

RETURN = r"""
method:
  description: V(switches) where windows were taken, V(counters) where only the counters were read.
  returned: success
  type: str
reason:
  description: Why the switches could not be watched, or null.
  returned: success
  type: str
seconds:
  description: How long was looked.
  returned: success
  type: float
windows:
  description: How many windows were taken.
  returned: success
  type: int
watched_seconds:
  description: How long they were together.
  returned: success
  type: float
cut:
  description: How many of them ended early because a buffer was full.
  returned: success
  type: int
switches_a_second:
  description: Switches of all CPUs, or null without windows.
  returned: success
  type: int
cores:
  description: Each core with an online CPU.
  returned: success
  type: list
  elements: dict
  contains:
    cpus:
      description: Its online CPUs.
      type: list
      elements: int
    usage:
      description: The mean share of the time in which they were busy.
      type: float
    busy:
      description: The share of the time in which at least one was busy, between two limits.
      type: list
      elements: float
    several:
      description: The share in which at least two were busy, between two limits; with windows those of a 95 % interval.
      type: list
      elements: float
use:
  description: The use of the whole host, or null where nothing could be read.
  returned: success
  type: dict
  contains:
    usage:
      description: The share of its CPUs' time in which they were busy.
      type: float
    busy:
      description: The share of its cores' time in which at least one thread was busy, between two limits.
      type: list
      elements: float
    several:
      description: The share of it in which at least two were, between two limits.
      type: list
      elements: float
    work:
      description: The share that it does of the work it can do, between two limits.
      type: list
      elements: float
    room:
      description: How much more it could do, as a share of what it does, between two limits; null for an idle host.
      type: list
      elements: float
    by_usage:
      description: What usage says of that; null for an idle host.
      type: float
    bound:
      description: The share of its work by which SMT off could change it at most, under the load that was seen.
      type: float
shared_ratio:
  description: Time of cores in which several threads were busy, by second of CPU time, between two limits; or null.
  returned: success
  type: list
  elements: float
guessed:
  description: Whether the yield was guessed.
  returned: success
  type: bool
units:
  description:
    - The cgroups that ran most in the windows (systemd units, containers, virtual machines, sessions), in seconds of
      CPU time an hour. V(null) is what could not be looked up.
  returned: success
  type: list
  elements: dict
  contains:
    unit:
      description: The cgroup.
      type: str
    ran:
      description: The CPU time.
      type: float
    beside:
      description: Of it, the time beside a busy sibling.
      type: float
    apart:
      description: Of that, the time beside a sibling that ran another unit.
      type: float
pairs:
  description: The pairs of units that shared cores most.
  returned: success
  type: list
  elements: dict
  contains:
    units:
      description: The two.
      type: list
      elements: str
    seconds:
      description: Seconds an hour in which both ran on one core.
      type: float
"""

import signal
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._topology import topology
from ansible_collections.threadwise.smt.plugins.module_utils._usage import look, program, room, textfile
from ansible_collections.threadwise.smt.plugins.module_utils._usage.cores import Span


def main() -> None:
    """Look at how a host's cores are used."""
    module = AnsibleModule(
        argument_spec={
            "seconds": {"type": "float", "default": 600.0},
            "windows": {"type": "int", "default": 60},
            "window_seconds": {"type": "float", "default": 0.5},
            "yields": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "workload": {"type": "str", "required": True},
                    "low": {"type": "float", "required": True},
                    "high": {"type": "float", "required": True},
                },
            },
            "textfile": {"type": "path"},
        },
        supports_check_mode=True,
    )
    for name, (low, high) in look.RANGES.items():
        if not low <= module.params[name] <= high:
            module.fail_json(msg=f"{name} is {module.params[name]}: it must be from {low} to {high}")
    yields = module.params["yields"]
    for one in yields:
        if not room.LIMITS.low <= one["low"] <= one["high"] <= room.LIMITS.high:
            module.fail_json(
                msg=f"yields: that of {one['workload']} is from {one['low']} to {one['high']}: it must be from"
                f" {room.LIMITS.low} to {room.LIMITS.high}, the lower end first"
            )
    # As an exception, so that what was begun is ended.
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    fs = HostFs("/")
    gain = Span(min(one["low"] for one in yields), max(one["high"] for one in yields)) if yields else None
    plan = look.Plan(module.params["seconds"], module.params["windows"], module.params["window_seconds"])
    known = [(one["workload"], one["low"], one["high"]) for one in yields]
    path = module.params["textfile"]
    changed = False
    try:
        if path:
            # Not after a look of ten minutes.
            textfile.write(fs, path, program.text(fs, known, None), is_dry=True)
        found = look.take(fs, topology.read_topology(fs).cores, plan, gain)
        if path:
            # Which CPUs are online may have changed.
            changed = textfile.write(fs, path, program.text(fs, known, found["shared_ratio"]), module.check_mode)
    except textfile.TextfileError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=changed, guessed=not yields, **found)


def _end(_number: int, _frame: object) -> "t.NoReturn":
    raise SystemExit(143)


if __name__ == "__main__":
    main()
