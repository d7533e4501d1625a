# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of memory policies on hosts where something else sets the same values."""

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import late_writers, sysctl_files

MEMORY, PANIC = "vm.overcommit_memory", "vm.panic_on_oom"
OURS, CONF, TUNED = "etc/sysctl.d/99-threadwise-smt-memory.conf", "etc/sysctl.conf", "TuneD profile own"
TEXT = "vm.overcommit_memory=2\nvm.panic_on_oom=1\n"
ONE = {CONF: "vm.overcommit_memory = 1\n"}
BY_US, BY_CONF = (2, "/" + OURS), (1, "/" + CONF)


def process(name, *arguments):
    return {"proc/700/comm": f"{name}\n", "proc/700/cmdline": "\0".join([f"/usr/bin/{name}", *arguments, ""])}


def tuned(text, reapply=1):
    return {
        "etc/tuned/active_profile": "own\n",
        "etc/tuned/own/tuned.conf": text,
        "etc/tuned/tuned-main.conf": f"reapply_sysctl = {reapply}\n",
    }


def ufw(enabled="yes"):
    files = {"etc/ufw/ufw.conf": f"# set by ufw\nENABLED={enabled}\n"}
    return {**files, "etc/ufw/sysctl.conf": "net/ipv4/ip_forward=1\nvm/overcommit_memory=0\n"}


def on_debian(reapply, of_profile, sysctl_conf):
    return {**ufw(), CONF: sysctl_conf, **tuned(f"[more]\ntype=sysctl\n{of_profile}\n", reapply)}


K8S = "etc/kubernetes/kubelet.yaml"
PROTECTS = {K8S: "protectKernelDefaults: true\n"}
UNPROTECTED = {"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n# protectKernelDefaults: true\n"}
PROFILE, INIT = "[sysctl]\nvm.overcommit_memory=0\n", {**ONE, "etc/init.d/procps": ""}
# Files; the value at the next boot and who sets it, once our file has the policy; and what is said of others.
CASES = {
    # kubelet sets it at each start. Also kubernetes 66241.
    **{
        f"kubernetes_74151 {name}": (
            {**UNPROTECTED, **process(name, "--config=/var/lib/kubelet/config.yaml")},
            (1, name),
            [f"{name} sets {MEMORY} to 1 at each start", f"{name} sets {PANIC} to 0 at each start"],
        )
        for name in ("kubelet", "kubelite", "k3s-server")
    },
    # Or it does not start with another value.
    **{
        f"kubernetes_135294 {name} {arguments}": (
            {**PROTECTS, **process(name, *arguments)},
            BY_US,
            [f"{name} does not start with another {MEMORY} than 1", f"another {PANIC} than 0"],
        )
        for name, *arguments in [
            ("kubelet", "--protect-kernel-defaults"),
            ("kubelet", "--protect-kernel-defaults=true", "--v=2"),
            ("kubelet", "--config", "/" + K8S),
            ("k3s-server", "server", "--protect-kernel-defaults"),
            ("k3s-agent", "agent", "--kubelet-arg=protect-kernel-defaults=true"),
        ]
    },
    **{
        argument: (process("kubelet", argument), (1, "kubelet"), ["to 1 at each start", "to 0 at each start"])
        for argument in ("--protect-kernel-defaults=false", "--config=", "--config")
    },
    # sysctl.conf is applied last.
    "tuned_409": ({**ONE, **tuned(PROFILE)}, BY_CONF, [CONF]),
    "tuned_409, without": ({**ONE, **tuned(PROFILE, 0)}, (0, TUNED), [TUNED]),
    "sysvinit": (INIT, BY_CONF, [CONF]),
    "systemd": ({**INIT, "usr/lib/systemd/systemd": ""}, BY_US, [CONF]),
    "ufw": (ufw(), (0, "/etc/ufw/sysctl.conf"), ["/etc/ufw/sysctl.conf"]),
    # TuneD starts after ufw, and applies the system's files again.
    "ufw, TuneD and sysctl.conf": (on_debian(1, "vm.overcommit_memory=0", ONE[CONF]), BY_CONF, [CONF]),
    "ufw and the profile": (on_debian(0, "vm.overcommit_memory=1", ""), (1, TUNED), [TUNED]),
    "ufw after TuneD": (on_debian(0, "vm.swappiness=1", ""), (0, "/etc/ufw/sysctl.conf"), ["/etc/ufw/sysctl.conf"]),
}


@pytest.mark.parametrize(("files", "expected", "said"), CASES.values(), ids=CASES)
def test_who_sets_the_value_at_the_next_boot(tmp_path, files, expected, said):
    boot = sysctl_files.BootFiles(HostFs(sysfs_tree.write(tmp_path, {OURS: TEXT, **files})))
    one = boot.sources(TEXT)[MEMORY]
    assert (sysctl_files.number(one.value), one.source.replace(str(tmp_path), "")) == expected
    others = boot.overrides({MEMORY: 2, PANIC: 1})
    assert (others == []) if said is None else all(part in " ".join(others) for part in said), others
    if "at each start" in str(said):
        differences, blocked_by = boot.differences({MEMORY: 2, PANIC: 1})
        assert differences == others and blocked_by == others[0] and len(others) == 2


def test_debops_2710_a_masked_file_is_silent(tmp_path):
    fs = HostFs(sysfs_tree.write(tmp_path, {"usr/lib/sysctl.d/zz.conf": "vm.overcommit_memory=0\n", OURS: TEXT}))
    (tmp_path / "etc/sysctl.d/zz.conf").symlink_to("/dev/null")
    assert sysctl_files.BootFiles(fs).overrides({MEMORY: 2, PANIC: 1}) == [] and fs.problems == []


def test_who_does_not_look_at_scores(tmp_path):
    for name, arguments, said in (
        *(("systemd-oomd", [], ["omit"]), ("earlyoom", ["-m", "5"], []), ("oomd-like", [], [])),
        ("earlyoom", ["-m", "5", "--ignore-oom-score-adj"], ["--avoid"]),
    ):
        fs = HostFs(sysfs_tree.write(tmp_path, process(name, *arguments)))
        found = late_writers.daemons_without_scores(late_writers.processes(fs))
        assert [part in text for part, text in zip(said, found, strict=True)] == [True] * len(said)
