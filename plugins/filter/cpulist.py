# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: cpulist
short_description: The kernel's CPU lists to lists of numbers, and back
version_added: 1.0.0
description:
  - Turns a CPU list as the kernel writes it (V(0-3,8)) into a list of numbers, and a list of numbers into the shortest
    CPU list.
  - Numbers come out sorted, each once. The empty text is the empty list.
  - What is neither is an error that names the part that is wrong; nothing is skipped.
options:
  _input:
    description: A CPU list, or a list of CPU numbers. CPU numbers are whole numbers from 0 to 65535.
    type: raw
    required: true
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Each sibling by itself
  ansible.builtin.debug:
    msg: "CPU {{ item }} shares a core with another"
  loop: "{{ ansible_facts['smt']['secondaries'] | threadwise.smt.cpulist }}"

- name: The first threads that are not isolated
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['smt']['primaries'] | threadwise.smt.cpulist)
             | difference(ansible_facts['smt']['cpus']['isolated'] | threadwise.smt.cpulist)
             | threadwise.smt.cpulist }}"
"""

RETURN = r"""
_value:
  description: A list of numbers for a text, a text for a list of numbers.
  type: raw
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist as kernel_cpulist


def cpulist(value: t.Any) -> list[int] | str:
    """Convert a CPU list to CPU numbers, or CPU numbers to a CPU list.

    Args:
        value: a CPU list (str), or CPU numbers (list, tuple, set or range of int).

    Returns:
        The CPU numbers of a text; the text of CPU numbers.

    Raises:
        AnsibleFilterError: neither of the two; the message names the part that is wrong.
    """
    try:
        if isinstance(value, str):
            return list(kernel_cpulist.parse(value))
        if isinstance(value, (list, tuple, set, frozenset, range)):
            return kernel_cpulist.render(value)
    except kernel_cpulist.CpuListError as error:
        raise AnsibleFilterError(f"threadwise.smt.cpulist: {error}") from error
    raise AnsibleFilterError(
        "threadwise.smt.cpulist: a CPU list such as 0-3,8 or a list of CPU numbers is wanted, not"
        f" {type(value).__name__}"
    )


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, t.Callable[[t.Any], list[int] | str]]:
        """Return the filter by name."""
        return {"cpulist": cpulist}
