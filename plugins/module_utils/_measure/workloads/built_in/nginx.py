# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""nginx under h2load, at rising numbers of connections."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    ServerDeclaration,
    Workload,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.http_load import (
    H2LOAD,
    H2LOAD_PACKAGE,
    under_load,
)

# Some 8 kB of numbers, the same on every host, which gzip halves.
PAGE = (
    'BEGIN { for (x = 1; n < 1680; n++) { x = x * 16807 % 2147483647; printf "%d ", x % 9973 > "pages/index.html" } }'
)
NGINX: ServerDeclaration = {
    # Ordinary users do not have it in their search path.
    "folders": ["/usr/sbin"],
    "commands": {"nginx": "nginx", H2LOAD: H2LOAD_PACKAGE},
    "user": "nobody",
    "files": ["nginx.conf"],
    "prepare": [["mkdir", "pages"], ["awk", PAGE]],
    "serve": ["nginx", "-p", "{server}", "-c", "{server}/nginx.conf"],
    # nginx writes it when it listens.
    "ready": ["test", "-s", "{server}/nginx.pid"],
    "fill": [],
    "end": [],
    "in_each_arm": True,
    "has_own_cores": True,
    # Fast shutdown (nginx, "Controlling nginx").
    "stop": "SIGTERM",
    "kill": "SIGTERM",
}

WORKLOADS: "tuple[Workload, ...]" = (
    under_load(
        name="nginx",
        title="nginx, a page compressed for each request",
        description=(
            "nginx compresses a page of 8 kB for each request; h2load asks for it over rising numbers of connections, a"
            " half to four times the CPUs, from a quarter of the cores, which nginx does not use"
        ),
        server=NGINX,
    ),
)
