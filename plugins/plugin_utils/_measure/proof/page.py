# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proofs for people: a table on the terminal, and a page."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import recording
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof import findings
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof.host_proof import HostProof
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import frame, terminal_table, wording

COLUMNS = ("host", *findings.PARTS, "what came of it")
SIGNS = {findings.HOLDS: "yes", findings.FAILS: "NO", findings.OPEN: "?"}


def ordered(proofs: t.Iterable[HostProof]) -> list[HostProof]:
    """Return those on which something does not hold first, then those that were not looked at, then the others."""
    return sorted(proofs, key=lambda proof: (not _fails(proof), proof.reason is None, proof.name))


def _fails(proof: HostProof) -> bool:
    return proof.reason is None and any(finding.state == findings.FAILS for finding in findings.of(proof))


def table(proofs: t.Sequence[HostProof]) -> list[str]:
    """Format the proofs as lines of a table, and a last line with counts."""
    return terminal_table.of_hosts(COLUMNS, map(_cells, ordered(proofs)), summary(proofs))


def _cells(proof: HostProof) -> tuple[str, ...]:
    states = {} if proof.reason is not None else {finding.part: SIGNS[finding.state] for finding in findings.of(proof)}
    return (proof.name, *(states.get(part, "-") for part in findings.PARTS), findings.verdict(proof))


def summary(proofs: t.Sequence[HostProof]) -> str:
    """Describe all hosts in one sentence."""
    if len(proofs) == 1:
        return f"{proofs[0].name}: {findings.verdict(proofs[0])}"
    looked = [proof for proof in proofs if proof.reason is None]
    failed = sum(map(_fails, looked))
    counts = [
        (len(looked) - failed, "on which all holds that was tried"),
        (failed, "on which something does not"),
        (len(proofs) - len(looked), "that could not be looked at"),
    ]
    parts = ", ".join(f"{count} {words}" for count, words in counts if count)
    return f"{wording.counted(len(proofs), 'host')}: {parts}."


def render(proofs: t.Sequence[HostProof], at: str) -> str:
    """Render the proofs as one self-contained HTML page.

    Args:
        proofs: of the hosts of the play.
        at: when, as text.
    """
    return frame.render(
        "proof.html.j2",
        at=at,
        hosts=[proof for proof in ordered(proofs) if proof.reason is None],
        missing=[proof for proof in proofs if proof.reason is not None],
        summary=summary(proofs),
        findings=findings.of,
        parts=findings.PARTS,
        titles=findings.TITLES,
        shape=findings.shape,
        most_recorded=f"{recording.MAX_CHARACTERS:,}",
    )
