# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show what came of the play's hosts, and write a page and a document for each host on the controller."""

from __future__ import annotations

import datetime
import json
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import ControllerAction, Options
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.registered import why
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Measured
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_hosts.proof import ProofAnswer
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.text import BorderError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places, result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof import document, findings, host_proof, page

display = terminal.Terminal()

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "facts": {"type": "str", "required": True},
    "results": {"type": "str", "required": True},
    "siblings": {"type": "str", "required": True},
    "measured": {"type": "str", "required": True},
    "run": {"type": "str", "required": True},
    "dest": {"type": "path", "required": True},
    "not_contacted": {"type": "list", "elements": "str", "default": []},
}
# Of more hosts the table alone is shown.
FEW_HOSTS = 5
MAX_TEXT = 300
FOLDER, PAGE = "proof", "index.html"


class ActionModule(ControllerAction):
    """The action of smt_proof_report; makes no call on any host."""

    arguments = ARGUMENTS
    from_user = ("run", "dest")
    once_for_all = True

    def act(self, options: Options, play: dict[str, t.Any]) -> dict[str, t.Any]:
        """Show what came of the play's hosts, and write it down."""
        try:
            directory = places.run_directory(options.dest, options.run)
            proofs = [self._proof(name, options, directory) for name in sorted(play["ansible_play_hosts_all"])]
            for line in page.table(proofs):
                display.display(line)
            for proof in proofs if len(proofs) <= FEW_HOSTS else []:
                for finding in findings.of(proof) if proof.reason is None else []:
                    display.display(
                        f"{proof.name}: {finding.part}: {findings.TITLES[finding.state]}. {finding.sentence}"
                    )
            self._write(directory / FOLDER, proofs)
        except BorderError as error:
            raise AnsibleActionFail(f"smt_proof_report: {error}") from None
        return {
            "changed": False,
            "page": str(directory / FOLDER / PAGE),
            "summary": page.summary(proofs),
            "failed_parts": {
                proof.name: [finding.part for finding in findings.of(proof) if finding.state == findings.FAILS]
                for proof in proofs
                if proof.reason is None
            },
        }

    def _proof(self, name: str, options: Options, directory: Path) -> host_proof.HostProof:
        if name in options.not_contacted:
            return host_proof.HostProof(name, compliance.NOT_CONTACTED)
        facts, answer, siblings, measured = (
            self.registered(getattr(options, kind), name) for kind in ("facts", "results", "siblings", "measured")
        )
        if "recorded" not in answer:
            failed = facts if answer.get("skipped") is True or not answer else answer
            return host_proof.HostProof(name, why(failed, MAX_TEXT) or "it was not looked at: an earlier task failed")
        by_measuring = (
            parts.converted(parts.untagged(siblings["measured"]), Measured) if siblings.get("measured") else None
        )
        reason = None if by_measuring else why(siblings, MAX_TEXT) or "this was left out"
        proof = host_proof.of_host(
            name,
            self.facts(options.facts, name),
            parts.converted(parts.untagged(answer), ProofAnswer),
            by_measuring,
            reason,
        )
        path = directory / f"{result_files.file_stem(name)}.json"
        if measured.get("path") is None or not path.exists():
            without = "--check measures nothing" if self._task.check_mode else "the measurement left no result"
            return host_proof.without_result(proof, why(measured, MAX_TEXT) or without)
        return host_proof.with_result(proof, result_files.load(path))

    def _write(self, directory: Path, proofs: list[host_proof.HostProof]) -> None:
        """Write the page and the documents, but not in check mode."""
        now = datetime.datetime.now(datetime.UTC)
        directory = places.directory(str(directory))
        dry = self._task.check_mode
        result_files.write_page(directory / PAGE, page.render(proofs, now.strftime("%Y-%m-%d %H:%M UTC")), dry)
        for proof in proofs:
            if proof.reason is None:
                path = directory / f"{result_files.file_stem(proof.name)}.json"
                places.see_that_ours(path)
                content = json.dumps(document.made(proof, now.strftime("%Y-%m-%d")), indent=1) + "\n"
                result_files.write_text(path, content, dry)
        if not dry:
            display.display(f"The page: {directory / PAGE}")
            display.display(f"Beside it, one document a host that names neither host nor owner: {directory}")
