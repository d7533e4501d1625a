# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""openssl speed of one cipher or digest, at its largest blocks."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe

RECIPE = Recipe(
    name="openssl",
    number="1000s of bytes per second, of the largest blocks",
    metrics=[
        throughput(
            "kB/s",
            {
                "pattern": r"(?m)^(?!Doing)\S+(?: +[0-9.]+k)* +([0-9.]+)k *$",
                "one": "choose one cipher or digest, such as -evp aes-128-gcm",
            },
        )
    ],
    example=["openssl", "speed", "-elapsed", "-seconds", "{seconds}", "-bytes", "16384", "-evp", "aes-128-gcm"],
    tested="3.0.19",
)
