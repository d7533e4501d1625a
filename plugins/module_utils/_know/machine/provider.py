# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cloud decides about the threads of a core, by the name that SMBIOS has of it. No cloud is asked.

Sources: the providers' documentation of their instance types and of threads per core (AWS "CPU options for Amazon EC2
instances", Google "Set the number of threads per core", Alibaba "Specify CPU options").
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

_DMI = "sys/class/dmi/id/"
# Families of EC2 of which each CPU is a core: T2, Arm (a1, and those with a g behind the number), AMD since the seventh
# generation, and those for HPC, whose second threads are off.
_EC2_ONE_THREAD = re.compile(r"(?:t2|a1|[a-z]+[0-9]+g[a-z]*|[a-z]+[78]a[a-z]*|hpc[0-9]+[a-z]*)\.[a-z0-9-]+")
_EC2_TYPE = re.compile(r"[a-z0-9-]{2,20}\.[a-z0-9-]{2,20}")


def about_threads(fs: host_files.HostFs, supported: "bool | None") -> "str | None":
    """Return how the threads of a core of this machine are chosen where that is not on the host, as a sentence without
    a full stop; None elsewhere.

    Args:
        fs: the host's files.
        supported: whether the machine has SMT, as the facts say it.
    """
    vendor, product = (fs.read(_DMI + "sys_vendor") or "").strip(), (fs.read(_DMI + "product_name") or "").strip()
    chosen = _CHOSEN.get(vendor)
    if supported is not False or chosen is None:
        return None
    if vendor == "Amazon EC2" and _EC2_TYPE.fullmatch(product):
        if product.endswith(".metal") or ".metal-" in product:
            return f"{product} of EC2 is a machine of its own: it has the threads of its processor"
        if _EC2_ONE_THREAD.fullmatch(product):
            return f"each CPU of {product} of EC2 is a core, by its type: another type has two threads a core"
    return chosen


_CHOSEN: "t.Mapping[str, str]" = {
    "Amazon EC2": "EC2 gives an instance its threads per core when it is launched (CpuOptions, ThreadsPerCore)",
    "Google": "Google Cloud gives an instance its threads per core while it is stopped (--threads-per-core)",
    "Alibaba Cloud": "Alibaba Cloud gives an instance its threads per core when it is made (CpuOptions.ThreadsPerCore)",
    "Microsoft Corporation": (
        "the size of a machine in Azure, or HwThreadCountPerCore of Hyper-V, gives its threads per core"
    ),
}
