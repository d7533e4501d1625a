# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NUMA memory policy of this process, which the programs that it executes inherit (set_mempolicy(2),
Linux 2.6.7).
"""

import ctypes
import errno
import os

from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError

# The C library has no function for it. The numbers are those of the kernel's syscall tables.
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "ppc64": 261, "ppc64le": 261, "riscv64": 237, "s390x": 270}
_MPOL_BIND = 2
_LONG_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)
_REASONS = {
    errno.EINVAL: "it has no memory, or this process may not use it",
    errno.ENOSYS: "the kernel has no NUMA memory policies",
    errno.EPERM: "this process may not set a memory policy, as in a container",
}


class MemoryPolicyError(HostError):
    """The memory policy cannot be set; the message names the node and the reason."""


def bind(node: int) -> None:
    """Let all memory that this process allocates from now on come from one NUMA node.

    Args:
        node: the node's number.

    Raises:
        MemoryPolicyError: the kernel refused, or the system call is not known on this architecture.
    """
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if number is None:
        raise MemoryPolicyError(
            f"memory of node {node} cannot be chosen: the number of set_mempolicy(2) on {os.uname().machine} is not"
            " known here"
        )
    words = (ctypes.c_ulong * (node // _LONG_BITS + 1))()
    words[node // _LONG_BITS] = 1 << node % _LONG_BITS
    # The kernel reads one bit less than the number says (get_nodes() of mm/mempolicy.c).
    bits = ctypes.c_ulong(len(words) * _LONG_BITS + 1)
    if ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), ctypes.c_int(_MPOL_BIND), words, bits) != 0:
        failure = ctypes.get_errno()
        raise MemoryPolicyError(f"memory of node {node} cannot be used: {_REASONS.get(failure, os.strerror(failure))}")
