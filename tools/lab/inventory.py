# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests as an Ansible inventory."""

from __future__ import annotations

import json
import pathlib
import shlex
from collections.abc import Iterable

from guest import Guest
from image import image
from login import ssh_options
from rootfs import LOGIN_KEY


def host_variables(guest: Guest, image_directory: pathlib.Path) -> dict[str, str | int]:
    """What Ansible has to know of a guest. Paths are absolute: pytest-testinfra reads them without templating."""
    return {
        "ansible_host": "127.0.0.1",
        "ansible_port": guest.port,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(image_directory / LOGIN_KEY),
        "ansible_ssh_common_args": shlex.join(ssh_options(image_directory)),
        "ansible_python_interpreter": "/usr/bin/python3",
        "lab_kind": guest.configuration.kind.name,
        "lab_shape": str(guest.configuration.shape),
        "lab_numbering": guest.configuration.numbering,
    }


def inventory(guests: Iterable[Guest]) -> str:
    """YAML with the guests in the group ``lab``.

    A JSON string is a YAML string, so nothing in a path can break out of it.
    """
    lines = ["---", "lab:", "  hosts:"]
    for guest in guests:
        lines.append(f"    {guest.name}:")
        lines.extend(
            f"      {name}: {json.dumps(value)}"
            for name, value in host_variables(guest, image(guest.configuration.image)).items()
        )
    return "\n".join(lines) + "\n"
