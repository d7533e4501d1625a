# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kinds of x86 guests share: the machine, and the processor."""

from __future__ import annotations

from emulator import accelerator
from kinds.base import DEVICES, Kind
from shape import Shape


class X86(Kind):
    """A guest of QEMU's q35."""

    def machine(self, shape: Shape, memory: int) -> list[str]:
        # Under emulation "-cpu max" is an AMD processor, and those show no siblings without more ado; an Intel model
        # does.
        processor = (
            ["-accel", "kvm", "-cpu", "host"]
            if accelerator() == "kvm"
            else ["-accel", "tcg,thread=multi", "-cpu", "Haswell-noTSX"]
        )
        return ["-machine", "q35", *processor, "-smp", shape.smp, "-m", str(memory), *DEVICES]
