# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A service on a JVM under h2load, at rising numbers of connections."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    ServerDeclaration,
    Workload,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.http_load import (
    H2LOAD,
    H2LOAD_PACKAGE,
    URL,
    under_load,
)

PACKAGE = "default-jdk-headless"
SERVICE: ServerDeclaration = {
    "folders": [],
    "commands": {"java": PACKAGE, "javac": PACKAGE, H2LOAD: H2LOAD_PACKAGE},
    "user": "nobody",
    "files": ["jvm.java"],
    "prepare": [["javac", "-d", "{server}", "{server}/jvm.java"]],
    # G1 and its threads for all CPUs that the JVM finds, whatever it would choose by itself on a small host.
    "serve": [
        "java",
        "-XX:+UseG1GC",
        "-XX:-UsePerfData",
        "-Xms256m",
        "-Xmx256m",
        "-cp",
        "{server}",
        "Service",
        "{port}",
        "{server}/ready",
    ],
    "ready": ["test", "-e", "{server}/ready"],
    # What is hot is compiled before the samples.
    "fill": [[H2LOAD, "--h1", "-c", "8", "-n", "5000", URL]],
    "end": [],
    "in_each_arm": True,
    "has_own_cores": True,
    "stop": "SIGTERM",
    "kill": "SIGKILL",
}

WORKLOADS: "tuple[Workload, ...]" = (
    under_load(
        name="jvm",
        title="a Java service, objects and JSON for each request",
        description=(
            "a Java service makes, sorts and prints objects for each request, with as many garbage collector threads"
            " as the JVM takes for its CPUs; h2load as for `nginx`"
        ),
        server=SERVICE,
    ),
)
