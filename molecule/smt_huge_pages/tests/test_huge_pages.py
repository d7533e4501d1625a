# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random reads with and without transparent huge pages, in a guest whose emulator looks up addresses as a processor
does: a page table has a level less for a huge page.
"""

from __future__ import annotations

import os
import pathlib

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import comparisons

RESULT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "results" / "pages" / "smt-huge-pages.json"


def test_random_reads_differ_between_the_arms_with_their_interval():
    found = {
        (one["metric"], one["parameter"]): one
        for one in comparisons.compare_host(result_files.load(RESULT))
        if one["effect"] == "thp_always"
    }
    for (metric, size), one in found.items():
        print(
            f"{metric}, {size:g} MiB: {100 * one['change']:+.1f} % ({100 * one['change_low']:+.1f} to"
            f" {100 * one['change_high']:+.1f} %), {one['verdict']}, {one['n']} blocks"
        )
    assert found["throughput", 256]["verdict"] == "gain" and found["throughput", 256]["change_low"] > 0


def test_the_guest_has_the_pages_that_it_had(host):
    assert "[never]" not in host.file("/sys/kernel/mm/transparent_hugepage/enabled").content_string
