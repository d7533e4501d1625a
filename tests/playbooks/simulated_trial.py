# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated hosts for trials: their shell has a systemctl and a list of online CPUs of its own,
and their smt_state starts a rollback timer.
"""

from __future__ import annotations

import pathlib
import textwrap

from simulated_fleet import COMMON, SHEBANG, Fleet

# The shell of a host: what it runs finds these programs first.
SHELL = '#!/bin/sh\nPATH={place}/bin:$PATH SMT_HOST={place} exec /bin/sh "$@"\n'
PROGRAMS = {
    "cat": (
        r"""#!/bin/sh
[ "$*" = /sys/devices/system/cpu/online ] || exec /bin/cat "$@"
if grep -q '"smt": false' "$SMT_HOST/host.json"; then echo 0-1; else echo 0-3; fi
"""
    ),
    "systemctl": (
        r"""#!/bin/sh
timer=$SMT_HOST/timer
case "$*" in
  "kill --kill-who=main --signal=HUP threadwise-smt-rollback.service") [ -e "$timer" ] ;;
  "kill --kill-who=main --signal=USR1 threadwise-smt-rollback.service")
    sed -i 's/"smt": false/"smt": true/' "$SMT_HOST/host.json"; rm -f "$timer" ;;
  "is-active --quiet threadwise-smt-rollback.service"*) [ -e "$timer" ] ;;
  *) false ;;
esac
"""
    ),
}
SMT_STATE = r"""
module = AnsibleModule({"state": {}, "affinity_conflicts": {}, "affinity_conflicts_of": {"type": "list"},
    "rollback_after": {"type": "int"}, "consumers": {"type": "dict"}, "consumers_custom": {"type": "list"}},
                       supports_check_mode=True)
wanted = module.params["state"] == "enabled"
if not module.check_mode:
    open(os.environ["SMT_HOST"] + "/timer", "w").close()
now = {"control": "on" if host["smt"] else "off", "active": host["smt"], "online": "0-3" if host["smt"] else "0-1"}
after = {"control": "on" if wanted else "off", "active": wanted, "online": "0-3" if wanted else "0-1"}
end(module, "smt", wanted, before=now, after=after, affinity_conflicts=[], not_restored=[], consumers=[],
    rollback_pending=True, rollback_started=True, diff=[])
"""


class TrialFleet(Fleet):
    """Simulated hosts that a trial can switch."""

    def __init__(self, directory: pathlib.Path, hosts: dict[str, dict]):
        places = {name: directory / "hosts" / name for name in hosts}
        shells = {name: {"ansible_shell_executable": str(place / "sh")} for name, place in places.items()}
        super().__init__(directory, {name: {**shells[name], **variables} for name, variables in hosts.items()})
        modules = directory / "collections/ansible_collections/threadwise/smt/plugins/modules"
        head = (modules / "smt_state.py").read_text().partition("if __name__")[0]
        assert head.startswith(SHEBANG)
        (modules / "smt_state.py").write_text(
            head + 'if __name__ == "__main__":\n' + textwrap.indent(COMMON + SMT_STATE, "    ")
        )
        for place in places.values():
            (place / "bin").mkdir()
            for path, text in {
                "sh": SHELL.format(place=place),
                **{f"bin/{name}": text for name, text in PROGRAMS.items()},
            }.items():
                (place / path).write_text(text)
                (place / path).chmod(0o755)
