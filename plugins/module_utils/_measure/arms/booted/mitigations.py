# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's mitigations of CPU vulnerabilities, by the boot argument ``mitigations``: what they cost here."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import OFFLINE, ONLINE, Boot, BootedArm


class Auto(BootedArm):
    """All mitigations that leave SMT on, the kernel's default."""

    pattern = "mitigations_auto"
    summary = "`mitigations=auto`: all mitigations that leave SMT on, the kernel's default"
    boot = Boot("mitigations=auto", mitigations="auto")
    siblings = ONLINE


class AutoNoSmt(BootedArm):
    """The same, and SMT off where the processor's vulnerabilities need it."""

    pattern = "mitigations_auto_nosmt"
    summary = "`mitigations=auto,nosmt`: the same, and SMT off where the processor's vulnerabilities need it"
    boot = Boot("mitigations=auto,nosmt", mitigations="auto_nosmt")
    siblings = OFFLINE


class Off(BootedArm):
    """No mitigation that can be left out."""

    pattern = "mitigations_off"
    title = "mitigations=off (every CPU vulnerability open)"
    summary = "`mitigations=off`: no mitigation that the kernel can leave out"
    needs = "`smt_eval_allow_mitigations_off`"
    boot = Boot("mitigations=off", mitigations="off")
    siblings = ONLINE
    allowed_by = "smt_eval_allow_mitigations_off"
    leaves_open = "every vulnerability of the processor that the kernel can leave open"


ARMS = (Auto, AutoNoSmt, Off)
