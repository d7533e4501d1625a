# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a proof says of a host, in sentences: what holds, what does not, and what could not be tried."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof.host_proof import EFFECT, HostProof
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

# What came of a part: it holds, it does not, or nothing is known of it.
HOLDS, FAILS, OPEN = "holds", "fails", "open"
TITLES = {HOLDS: "holds", FAILS: "does not hold", OPEN: "not known"}
# Sentences of one kind.
MAX_NAMED = 5
# Names of what can be different after a switch, for people: one of it, and many.
KINDS = {
    "cpus": ("CPU", "CPUs or controls"),
    "masks": ("mask", "CPU masks"),
    "cpusets": ("cpuset", "cpusets"),
    "interrupts": ("interrupt", "interrupts"),
}
# The kinds that a document for others has: no sentence of a host is in it.
PARTS = ("facts", "siblings", "switch", "equal arms", "known effect", "instruments", "quiet")


class ProofFinding(t.NamedTuple):
    """What came of one part.

    Attributes:
        part: one of :data:`PARTS`.
        state: ``HOLDS``, ``FAILS`` or ``OPEN``.
        sentence: what came of it; a host's words may be in it.
    """

    part: str
    state: str
    sentence: str


def of(proof: HostProof) -> list[ProofFinding]:
    """Return what came of each part of a host that was looked at."""
    return [
        _of_facts(proof),
        _of_siblings(proof),
        _of_switch(proof),
        _of_equal(proof),
        _of_planted(proof),
        _of_instruments(proof),
        *([] if proof.equal is None else [_of_quiet(proof)]),
    ]


def _of_facts(proof: HostProof) -> ProofFinding:
    """The kernel's own files decide; a tool that differs from them, as lscpu does on some Arm machines, is named."""
    different = [difference for view in proof.views for difference in view.differences]
    is_wrong = any(view.differences for view in proof.views if view.is_of_kernel)
    same = [view.source for view in proof.views if view.reason is None and not view.differences]
    silent = [f"{view.source} ({view.reason})" for view in proof.views if view.is_of_kernel and view.reason is not None]
    sentences = [f"{'; '.join(different[:MAX_NAMED])}{_more(different)}."] if different else []
    if same and not is_wrong:
        sentences.append(f"The facts say what these say of CPUs and cores: {wording.join(same)}.")
    if silent:
        sentences.append(f"Not known: {'; '.join(silent)}.")
    state = FAILS if is_wrong else HOLDS if same else OPEN
    return ProofFinding("facts", state, " ".join(sentences) or "No source of CPUs and cores could be read.")


def _more(names: t.Sequence[t.Any]) -> str:
    return f"; and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""


def _of_siblings(proof: HostProof) -> ProofFinding:
    if proof.measured is None:
        return ProofFinding("siblings", OPEN, f"Siblings were not measured: {proof.siblings_reason or 'no answer'}.")
    if proof.disagreement is not None:
        return ProofFinding("siblings", FAILS, proof.disagreement)
    pairs = proof.measured.pairs
    shared = (
        f"CPUs {' and '.join(pairs[:MAX_NAMED])}{_more(pairs)} share cores" if pairs else "no two CPUs share a core"
    )
    if proof.measured.agrees_with_kernel:
        return ProofFinding("siblings", HOLDS, f"By measuring, {shared}, as the kernel says.")
    return ProofFinding(
        "siblings", OPEN, f"By measuring, {shared}; of CPUs {proof.measured.unclear} it did not become clear."
    )


def _of_switch(proof: HostProof) -> ProofFinding:
    switch = proof.switch
    if switch is None:
        return ProofFinding("switch", OPEN, "Siblings were not switched (smt_proof_switch is false).")
    if switch.refused is not None:
        state = FAILS if switch.failed else OPEN
        return ProofFinding("switch", state, f"Siblings were not switched: {wording.clause(switch.refused)}.")
    if switch.seconds_off is None or switch.seconds_back is None or not switch.different:
        return ProofFinding("switch", OPEN, f"Siblings {switch.cpus} would be switched.")
    times = (
        f"CPUs {switch.cpus} were offline after {switch.seconds_off:.1f} s and back after {switch.seconds_back:.1f} s"
    )
    if switch.is_as_before:
        compared = wording.join([title for kind, (title, _many) in KINDS.items() if kind in switch.different])
        left_out = "" if "interrupts" in switch.different else "; irqbalance runs, so interrupts were not compared"
        return ProofFinding("switch", HOLDS, f"{times}, and each {compared} is as before{left_out}.")
    # What was not restored says why, too.
    left = list(switch.not_restored)
    left += [
        difference
        for kind in KINDS
        for difference in switch.different.get(kind, ())
        if not any(sentence.startswith(difference) for sentence in switch.not_restored)
    ]
    return ProofFinding(
        "switch", FAILS, f"{times}, but not all is as before: {'; '.join(left[:MAX_NAMED])}{_more(left)}."
    )


def _of_equal(proof: HostProof) -> ProofFinding:
    part, equal = "equal arms", proof.equal
    if equal is None:
        return ProofFinding(part, OPEN, f"Equal arms were not compared: {proof.not_compared or 'no answer'}.")
    measured = wording.change_and_interval(equal.change)
    least = f" {_least(proof)}" if equal.least is not None else ""
    if equal.is_called:
        return ProofFinding(
            part, FAILS, f"Two equal arms were called different, {measured}: differences of this size say nothing here."
        )
    return ProofFinding(part, HOLDS, f"Two equal arms were not called different: {measured}.{least}")


def _least(proof: HostProof) -> str:
    """Return the smallest effect that this host can show in this time."""
    if proof.equal is None or proof.equal.least is None:
        return ""
    return f"An effect has to be {wording.percent(proof.equal.least)} at least to be found in as much time."


def _of_planted(proof: HostProof) -> ProofFinding:
    part, planted = "known effect", proof.planted
    if planted is None:
        return ProofFinding(part, OPEN, f"A known effect was not measured: {proof.not_compared or 'no answer'}.")
    begun = f"{wording.percent(EFFECT)} more work"
    measured = wording.change_and_interval(planted.change)
    if not planted.is_called:
        return ProofFinding(part, FAILS, f"{begun} was not found: its time changed by {measured}.")
    if not planted.holds_the_effect:
        return ProofFinding(
            part, FAILS, f"{begun} took {measured} of time: its interval does not have the planted effect in it."
        )
    return ProofFinding(part, HOLDS, f"{begun} was found: its time changed by {measured}.")


def _of_instruments(proof: HostProof) -> ProofFinding:
    missing = [
        f"{instrument.name} ({instrument.reason})" for instrument in proof.instruments if instrument.reason is not None
    ]
    there = [instrument.name for instrument in proof.instruments if instrument.reason is None]
    sentence = f"Of use here: {wording.join(there)}." if there else ""
    if missing:
        sentence += f" Not of use: {'; '.join(missing)}."
    # A coarse clock is the only one that a comparison cannot do without.
    coarse = any(
        instrument.reason is not None for instrument in proof.instruments if instrument.name in ("clock", "timer")
    )
    return ProofFinding("instruments", FAILS if coarse else HOLDS, sentence.strip())


def _of_quiet(proof: HostProof) -> ProofFinding:
    if proof.disturbances:
        return ProofFinding("quiet", FAILS, " ".join(proof.disturbances))
    return ProofFinding("quiet", HOLDS, "Nothing else disturbed the measurement.")


def announcement(facts: Facts | None, *, check: bool) -> str:
    """Return what will be done to a host, before it is.

    Args:
        facts: of the host; without them the host may have second threads.
        check: whether it is only said.
    """
    if facts and not cpulist.parse_or_empty(facts.cpus.online) & cpulist.parse_or_empty(facts.secondaries):
        return "no second thread is online, so none is taken offline."
    return (
        f"{'would take' if check else 'taking'} its second threads offline once, for some seconds, and"
        f" {'bring' if check else 'bringing'} each CPU back as it is now; a rollback timer does that where this is"
        " interrupted (-e smt_proof_switch=false leaves it out)."
    )


def verdict(proof: HostProof) -> str:
    """Return what came of a host in one sentence."""
    if proof.reason is not None:
        return proof.reason
    findings = of(proof)
    failed, unknown = ([finding.part for finding in findings if finding.state == state] for state in (FAILS, OPEN))
    if failed:
        return f"{wording.capital(wording.join(failed))}: {TITLES[FAILS]} here."
    return f"All that was tried holds{f'; not tried: {wording.join(unknown)}' if unknown else ''}."


def shape(proof: HostProof) -> str:
    """Return what the host is: its cores and threads."""
    if proof.facts is None:
        return "unknown cores, 0 CPUs online"
    cores, online = proof.facts.cores, cpulist.parse(proof.facts.cpus.online)
    return f"{'unknown' if cores is None else cores} cores, {len(online)} CPUs online"
