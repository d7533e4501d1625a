# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows the verdicts on a play's hosts and writes them as files on the controller."""

from __future__ import annotations

import datetime
import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.threadwise.smt.plugins.module_utils import hostfs
from ansible_collections.threadwise.smt.plugins.plugin_utils import compliance, compliance_report

display = Display()

FORMS = {"json": compliance_report.document, "metrics": compliance_report.metrics, "page": compliance_report.page}
ARGUMENTS = {"verdicts": {"type": "str", "required": True}, **{name: {"type": "path"} for name in FORMS}}


class ActionModule(ActionBase):
    """The controller's side of smt_compliance; no host is asked anything."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        dummy, options = self.validate_argument_spec(argument_spec=ARGUMENTS)
        judged = [(host, self._verdict(task_vars["hostvars"][host].get(options["verdicts"]))) for host in sorted(task_vars["ansible_play_hosts_all"])]
        for line in compliance_report.table(judged):
            display.display(line)
        now = datetime.datetime.now(datetime.timezone.utc)
        written = [self._write(options[name], form(judged, now)) for name, form in FORMS.items() if options[name]]
        return {"changed": bool(written), "files": written, "compliant": not compliance_report.exit_worthy(judged),
                "counts": compliance_report.counts(judged), "summary": compliance_report.sentence(judged)}

    @staticmethod
    def _verdict(result):
        if isinstance(result, dict) and isinstance(result.get("verdict"), dict):
            return result["verdict"]
        told = result if isinstance(result, dict) else {}
        return compliance.refused(told.get("msg") or "it was not asked", compliance.UNREACHABLE if told.get("unreachable") else compliance.UNKNOWN)

    def _write(self, dest, text):
        """Writes a file, but not in check mode. Returns its path."""
        if not self._task.check_mode:
            try:
                hostfs.HostFs("/").write(os.path.abspath(os.path.expanduser(dest)).lstrip("/"), text)
            except OSError as error:
                raise AnsibleActionFail(f"{dest} cannot be written: {error.strerror}") from error
        return dest
