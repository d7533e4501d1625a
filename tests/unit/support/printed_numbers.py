# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is concluded of numbers that workers print, on a machine whose truth is known."""

import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion

# What SMT gives: the work of a core with both threads busy, of that with one.
YIELDS = (1.3, 1.1, 0.9, 0.75)


def concluded(metric, value_of, seed=1, compared=True):
    """The result of a machine of four cores; ``value_of(arm, workers)`` is what each worker prints."""
    workload = {
        "title": "own",
        "metrics": {metric["name"]: {key: metric[key] for key in ("unit", "better", "aggregate")}},
        "model": lambda arm, _spot, workers: [value_of(arm, len(workers))] * len(workers),
    }
    how = {
        "shape": (1, 4, 2),
        "blocks": 8,
        "noise": 0.002,
        "names": ["all_threads"],
        "seed": seed,
        "compared": compared,
    }
    document = result_maker.result(workloads={"own": workload}, **how)
    return conclusion.conclude(result_maker.analysed(document))
