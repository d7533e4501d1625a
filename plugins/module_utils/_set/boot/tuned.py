# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments that TuneD gives to all entries, by a variable of GRUB that its plug-in `bootloader` sets
(tuned/plugins/plugin_bootloader.py of TuneD 2.20).

They are TuneD's: they would be back with its next start, so they are neither removed nor set a second time.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.text import printable
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import tuned_profiles
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    entries as boot_entries,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base


def left_to_set(
    fs: host_files.HostFs, entries: "t.Iterable[boot_entries.Entry]", desired: boot_arguments.DesiredArguments
) -> "tuple[boot_arguments.DesiredArguments, str | None]":
    """Return the desired arguments without those that TuneD sets, and the sentence that names it, where it sets any.

    What is set here already stays.

    Args:
        fs: the host's files.
        entries: the host's boot entries.
        desired: the desired arguments.

    Raises:
        BootLoaderError: TuneD sets an argument that is to be removed.
    """
    normal = [entry for entry in entries if not entry.is_rescue]
    given = {argument for entry in normal for argument in entry.borrowed}
    related = boot_arguments.related_arguments(sorted(given))
    wrong = boot_arguments.superfluous(related, desired)
    profile = printable((fs.read(tuned_profiles.ACTIVE) or "").strip()) or "unknown"
    if wrong:
        raise backend_base.BootLoaderError(
            f"TuneD sets {' '.join(wrong)} at each start, by its profile {profile} (section bootloader, and the"
            f" variable {boot_entries.TUNED} of GRUB): choose another profile (tuned-adm profile), or change what this"
            f" one has in {fs.path('etc/tuned')}, and run this again"
        )
    wanted = set(desired.arguments)
    is_set_here = all(wanted.issubset(entry.arguments) for entry in normal)
    if not all(wanted.issubset(entry.borrowed) for entry in normal) or is_set_here:
        return desired, None
    return boot_arguments.without_arguments(desired), (
        f"{' '.join(desired.arguments)} is set by TuneD's profile {profile}, and by nothing else: it goes with the"
        " profile."
    )
