# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who sets a sysctl after the files of sysctl.d were read, at boot or whenever a service starts.

Sources: tuned/plugins/plugin_sysctl.py of TuneD 2.20 (the system's files are applied after the profile, and
/etc/sysctl.conf last), debian/procps.init, pkg/kubelet/cm/container_manager_linux.go of Kubernetes
(setupKernelTunables), src/ufw-init-functions of ufw, which starts before the network and TuneD after it (seen on a
guest of Debian 12).
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import programs

_KUBELET_VALUES = {"vm.overcommit_memory": "1", "vm.panic_on_oom": "0", "kernel.panic": "10"}
_WITHOUT_SCORES = {
    "systemd-oomd": "protect a service from it with ManagedOOMPreference=omit",
    "earlyoom": "it was started with an option that says so, take that away or name services in --avoid",
}
_IGNORES_SCORES = frozenset({"--ignore-oom-score-adj", "--sort-by-rss"})
_SYSTEMD = ("run/systemd/system", "usr/lib/systemd/systemd", "lib/systemd/systemd")
_OTHER_INIT = ("etc/init.d/procps", "etc/init.d/sysctl", "etc/inittab", "etc/runit")
# procps reads it after all other files; systemd-sysctl reads it only through a link in sysctl.d.
SYSCTL_CONF = "etc/sysctl.conf"
_UFW_VALUES = "etc/ufw/sysctl.conf"
_UFW = "etc/ufw/ufw.conf"


class Late(t.NamedTuple):
    """A value that is set late.

    Attributes:
        value: as it is written.
        source: the file or the program.
        when: when it is set, and what to do about it: the rest of a sentence that says who sets what.
    """

    value: str
    source: str
    when: str


class Kubelet(t.NamedTuple):
    """The kubelet of a host: the name of its program, and whether it checks the values instead of setting them."""

    name: str
    protects: bool


def processes(fs: HostFs) -> "list[programs.Program]":
    """Return the programs that run on a host and are known to this module.

    Args:
        fs: the host's files.
    """
    return programs.running(HostFs(fs.sysroot), programs.KUBELETS.union(_WITHOUT_SCORES), _WITHOUT_SCORES)


def daemons_without_scores(running: "t.Iterable[programs.Program]") -> "list[str]":
    """Return a sentence for each running program that ends processes when memory is short, and does not look at OOM
    score adjustments while it chooses one (systemd-oomd.service(8), earlyoom(1)).

    Args:
        running: from :func:`processes`.
    """
    return [
        f"{program.name} runs here and does not look at OOM score adjustments: {_WITHOUT_SCORES[program.name]}"
        for program in running
        if program.name in _WITHOUT_SCORES
        and (program.name != "earlyoom" or _IGNORES_SCORES.intersection(program.arguments))
    ]


def find_kubelets(fs: HostFs, running: "t.Iterable[programs.Program]") -> "list[Kubelet]":
    """Return the kubelets that run on a host.

    Args:
        fs: the host's files.
        running: from :func:`processes`.
    """
    argument, key = "protect-kernel-defaults", "protectKernelDefaults"
    return [
        Kubelet(program.name, programs.kubelet_setting(fs, program, argument, key) in ("", "true"))
        for program in running
        if program.name in programs.KUBELETS
    ]


def ufw_text(fs: HostFs) -> str:
    """Return the text of ufw's own file of sysctls; empty where ufw is not enabled.

    Args:
        fs: the host's files.
    """
    is_enabled = re.search(r"^ENABLED=[\"']?yes", fs.read(_UFW) or "", re.MULTILINE)
    return (fs.read(_UFW_VALUES) or "") if is_enabled else ""


def read(
    fs: HostFs,
    sysctl_conf: "t.Mapping[str, str]",
    ufw: "t.Mapping[str, str]",
    of_tuned: "t.Container[str]",
    is_reapplied: bool,
    kubelets: "t.Sequence[Kubelet]",
) -> "dict[str, Late]":
    """Return what is set late, by the name of the sysctl; of several writers the last one counts.

    Args:
        fs: the host's files.
        sysctl_conf: the values of /etc/sysctl.conf.
        ufw: the values of :func:`ufw_text`.
        of_tuned: names that TuneD sets, of its profile or of the system's files.
        is_reapplied: whether TuneD applies the system's files again.
        kubelets: from :func:`find_kubelets`.
    """
    late: dict[str, Late] = {}
    when = "when TuneD starts, which applies that file last" if is_reapplied else "at boot, where it is read last"
    if is_reapplied or _is_without_systemd(fs):
        path = fs.path(SYSCTL_CONF)
        late.update(
            {name: Late(value, path, f"{when}: remove that line from the file") for name, value in sysctl_conf.items()}
        )
    when = "when ufw starts: change it there"
    late.update({name: Late(value, fs.path(_UFW_VALUES), when) for name, value in ufw.items() if name not in of_tuned})
    when = "at each start: leave it to Kubernetes on this host"
    for kubelet in (kubelet for kubelet in kubelets if not kubelet.protects):
        late.update({name: Late(value, kubelet.name, when) for name, value in _KUBELET_VALUES.items()})
    return late


def would_not_start(kubelets: "t.Sequence[Kubelet]", wanted: "t.Mapping[str, int]") -> "list[str]":
    """Return a sentence for each wanted value with which a kubelet of this host would not start again."""
    return [
        f"{kubelet.name} does not start with another {name} than {_KUBELET_VALUES[name]} (protectKernelDefaults)"
        for kubelet in kubelets
        for name, value in wanted.items()
        if kubelet.protects and name in _KUBELET_VALUES and _KUBELET_VALUES[name] != str(value)
    ]


def _is_without_systemd(fs: HostFs) -> bool:
    return all(fs.status(path) is None for path in _SYSTEMD) and any(
        fs.status(path) is not None for path in _OTHER_INIT
    )
