# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""arm64: its kernel has no smt/control, with and without siblings."""

from __future__ import annotations

from kinds.base import DEVICES
from kinds.direct import Direct
from shape import Shape


class Arm64(Direct):
    """QEMU's virt with Cortex-A72."""

    name = "arm64"
    title = "arm64 (virt)"
    debian_architecture = "arm64"
    architecture = "aarch64"
    kernel_package = "linux-image-cloud-arm64"
    console = "ttyAMA0"

    def machine(self, shape: Shape, memory: int) -> list[str]:
        return [
            "-machine",
            "virt",
            "-cpu",
            "cortex-a72",
            "-accel",
            "tcg,thread=multi",
            "-smp",
            shape.smp,
            "-m",
            str(memory),
            *DEVICES,
        ]


KINDS = (Arm64(),)
