# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The task that sets a BIOS attribute: writing is left to the collections that vendors and Ansible's community keep."""

import json
import re
import typing as t

# Names, values and paths as they are on real BMCs. What has more in it might be pasted into a play, where it would be a
# template.
_PLAIN = re.compile(r"[\w .,:()\[\]/+@$~=&?%-]{1,300}")


def needs_job(manufacturer: str) -> bool:
    """Return whether a BMC makes nothing of a value that is merely staged, as iDRAC."""
    return "dell" in manufacturer.lower()


def task(
    manufacturer: str, system: str, attribute: str, value: t.Any, settings: "str | None", is_linked: bool
) -> "str | None":
    """Return the task that sets an attribute at the next boot, in one line of YAML; None where something of it is not
    what a BMC has that means well.

    Args:
        manufacturer: of the system.
        system: its id.
        attribute: its name.
        value: the one to set, as text or as bool.
        settings: the path where values are staged; None where the BMC has no such resource.
        is_linked: whether the BMC says where it is: without that, redfish_config refuses to write.
    """
    if not all(_PLAIN.fullmatch(part) for part in (system, attribute, str(value), settings or "/")):
        return None
    wanted = json.dumps({attribute: value})
    if needs_job(manufacturer):
        return f"dellemc.openmanage.idrac_bios: {{apply_time: OnReset, attributes: {wanted}}}"
    if is_linked:
        return (
            f"community.general.redfish_config: {{category: Systems, command: SetBiosAttributes, resource_id: "
            f"{json.dumps(system)}, bios_attributes: {wanted}}}"
        )
    if settings is not None and settings.startswith("/"):
        url = json.dumps(f"https://BMC{settings}")
        return (
            f"ansible.builtin.uri: {{url: {url}, method: PATCH, force_basic_auth: true, body_format: json,"
            f' body: {{"Attributes": {wanted}}}}}'
        )
    return f"the BMC's own pages: set {attribute} to {value} there; it does not say where Redfish may write"
