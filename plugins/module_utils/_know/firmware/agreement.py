# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the firmware says beside what the kernel of the host shows: whether they agree, and what is to be done if not.

Pure rules. Siblings that the kernel holds offline are no disagreement: it has them from the firmware.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._know.firmware import attributes

_HIDING = ("nr_cpus=", "maxcpus=", "possible_cpus=", "nosmp")
MAX_ARGUMENTS = 100
_PLAIN = (attributes.ENABLED, attributes.DISABLED)

Counts = t.Mapping[str, "t.Optional[int]"]


class Kernel(t.NamedTuple):
    """What the kernel shows.

    Attributes:
        has_threads: whether a core has second threads, also offline ones; None where that is not known.
        is_active: whether they are in use; None where that is not known.
        hypervisor: under which it runs; None on a machine of its own.
        hiding: boot arguments that keep CPUs from it.
    """

    has_threads: "bool | None"
    is_active: "bool | None"
    hypervisor: "str | None"
    hiding: "tuple[str, ...]"


def kernel_of(facts: t.Mapping[str, t.Any]) -> Kernel:
    """Return what the facts ``smt`` of a host say. They may have anything in them: a fact of another type is not known.

    Raises:
        HostError: they are other facts.
    """
    if "supported" not in facts:
        raise HostError("kernel has no fact 'supported': give what smt_facts returns, ansible_facts['smt']")
    boot = facts.get("boot")
    running = boot.get("running") if isinstance(boot, dict) else None
    arguments = (
        [argument for argument in running[:MAX_ARGUMENTS] if isinstance(argument, str)]
        if isinstance(running, list)
        else []
    )
    hypervisor = facts.get("hypervisor")
    return Kernel(
        facts["supported"] if isinstance(facts["supported"], bool) else None,
        facts["active"] if isinstance(facts.get("active"), bool) else None,
        host_text.printable(hypervisor, 100) if isinstance(hypervisor, str) else None,
        tuple(host_text.printable(argument, 100) for argument in hiding(arguments)),
    )


def hiding(arguments: "t.Iterable[str]") -> "list[str]":
    """Return the boot arguments by which the kernel does not look at all CPUs."""
    return [argument for argument in arguments if argument.startswith(_HIDING)]


class Seen(t.NamedTuple):
    """What the BMC says of a system.

    Attributes:
        system: its id.
        attribute: the one that switches SMT; None where there is none.
        value: its value now.
        state: what that means.
        staged: what the value means that waits for the next boot; None where none does.
        staged_value: that value.
        is_off: whether the BMC says that the host is off.
        core_limits: settings that leave a part of the cores off, each as a text.
        counts: the BMC's inventory: sockets, cores and threads.
        tasks: by state, the task that sets it; None where the value is not known.
        needs_job: whether a staged value has no effect without a job.
    """

    system: str
    attribute: "str | None"
    value: "str | None"
    state: str
    staged: "str | None"
    staged_value: "str | None"
    is_off: bool
    core_limits: "tuple[str, ...]"
    counts: Counts
    tasks: "t.Mapping[str, str | None]"
    needs_job: bool

    @property
    def setting(self) -> str:
        """The attribute and its value, for a sentence."""
        return f"{self.attribute}={self.value}"

    def task(self, state: str) -> str:
        """Return the end of a sentence with the task that sets a state; empty where there is none."""
        return f" ({self.tasks[state]})" if self.tasks.get(state) else ""


class FirmwareFinding(t.NamedTuple):
    """Something to know or to do.

    Attributes:
        system: id of the system; None where it is about none.
        about: staged, kernel, cores, inventory, power or system.
        sentence: what it is, and the way out.
    """

    system: "str | None"
    about: str
    sentence: str


class Compared(t.NamedTuple):
    """What came of it.

    Attributes:
        agrees: whether firmware and kernel say the same; None where that cannot be said.
        findings: what there is to know.
    """

    agrees: "bool | None"
    findings: "list[FirmwareFinding]"


def compare(systems: "t.Sequence[Seen]", kernel: "Kernel | None") -> Compared:
    """Compare what a BMC says with what the kernel of the host shows.

    Args:
        systems: those of the BMC.
        kernel: of the host; None where nothing is compared.
    """
    findings = [finding for system in systems for finding in _alone(system)]
    if kernel is None:
        return Compared(None, findings)
    with_setting = [system for system in systems if system.attribute is not None]
    chosen = with_setting or list(systems)
    if len(chosen) > 1:
        names = ", ".join(system.system for system in chosen)
        sentence = f"which of the systems {names} is the host is not known: nothing is compared. Set resource_id"
        return Compared(None, [*findings, FirmwareFinding(None, "system", sentence)])
    agrees, more = _beside(chosen[0], kernel)
    return Compared(agrees, [*findings, *more])


def _alone(seen: Seen) -> "t.Iterator[FirmwareFinding]":
    """Yield what there is to know without the kernel."""
    if seen.staged is not None:
        job = (
            ". iDRAC applies it only with a configuration job, which dellemc.openmanage.idrac_bios makes"
            if seen.needs_job
            else ""
        )
        yield FirmwareFinding(
            seen.system,
            "staged",
            f"{seen.attribute}={seen.staged_value} is pending until the next boot; {seen.setting} is in force{job}",
        )
    if seen.core_limits:
        yield FirmwareFinding(
            seen.system,
            "cores",
            f"{', '.join(seen.core_limits)} leaves a part of the cores off: fewer CPUs do not mean that SMT is off",
        )
    cores, threads, is_known = seen.counts.get("cores"), seen.counts.get("threads"), seen.state in _PLAIN
    if cores and threads and is_known and (threads > cores) != (seen.state == attributes.ENABLED):
        sentence = f"the BMC's inventory has {threads} threads on {cores} cores, and the firmware says {seen.setting}"
        reason = "the inventory is from an earlier start, or the value is not in force"
        yield FirmwareFinding(seen.system, "inventory", f"{sentence}: {reason}")


def _beside(seen: Seen, kernel: Kernel) -> "tuple[bool | None, list[FirmwareFinding]]":
    """Return whether a system agrees with its kernel, and what there is to know of that."""
    findings = []
    if seen.is_off and kernel.hypervisor is None:
        sentence = "the BMC says that the host is off, and its facts are there: is this the BMC of this host?"
        findings.append(FirmwareFinding(seen.system, "power", sentence))
    if seen.attribute is None or seen.state == attributes.UNKNOWN:
        return None, findings
    reason = _not_comparable(kernel)
    if reason is not None:
        return None, [*findings, FirmwareFinding(seen.system, "kernel", f"{reason}: nothing is compared")]
    if kernel.has_threads == (seen.state != attributes.DISABLED):
        return True, findings
    agrees = None if seen.state == attributes.AUTO else False
    return agrees, [*findings, FirmwareFinding(seen.system, "kernel", _difference(seen, kernel))]


def _not_comparable(kernel: Kernel) -> "str | None":
    """Return why what a kernel shows says nothing of the firmware; None where it does."""
    if kernel.hypervisor is not None:
        return f"the kernel runs under {kernel.hypervisor}, and shows the CPUs that it gets from there"
    if not kernel.has_threads and kernel.hiding:
        return f"the kernel was started with {' '.join(kernel.hiding)}, which may hide second threads"
    if kernel.has_threads is None:
        return "the facts do not say whether the cores have second threads"
    return None


def _difference(seen: Seen, kernel: Kernel) -> str:
    """Return what does not fit, and the way out."""
    if kernel.has_threads:
        shows = "the kernel has second threads" + (", which it holds offline" if kernel.is_active is False else "")
    else:
        shows = "the kernel shows one thread a core"
    if seen.state == attributes.AUTO:
        return (
            f"{seen.setting} leaves SMT to the firmware, and {shows}: where the processor has two, set"
            f" it{seen.task(attributes.ENABLED)}"
        )
    sentence = f"the firmware says {seen.setting}, and {shows}"
    if seen.staged == (attributes.ENABLED if kernel.has_threads else attributes.DISABLED):
        return (
            f"{sentence}, as {seen.attribute}={seen.staged_value} that is pending: the BMC has not seen the last boot"
            " yet"
        )
    unless = "" if kernel.has_threads else ", or the processor has no second threads"
    return (
        f"{sentence}: the value is not in force{unless}. Power the host off and on; if that changes nothing, set the"
        f" value once more{seen.task(seen.state)}"
    )
