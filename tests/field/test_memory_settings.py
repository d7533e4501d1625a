# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of memory policies on hosts where something else sets the same values. A test is named after its
source.
"""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory import late_writers, sysctl_files
from memory_tree import put

MEMORY, PANIC = "vm.overcommit_memory", "vm.panic_on_oom"
STRICT = {MEMORY: 2, PANIC: 1}
OURS = "etc/sysctl.d/99-threadwise-smt-memory.conf"
TEXT = "vm.overcommit_memory=2\nvm.panic_on_oom=1\n"


def with_process(root, name, *arguments, pid=700):
    put(root, f"proc/{pid}/comm", f"{name}\n")
    put(root, f"proc/{pid}/cmdline", "\0".join([f"/usr/bin/{name}", *arguments, ""]))


def at_boot(root, name=MEMORY):
    """The value at the next boot, and who sets it, once our file has the policy."""
    one = sysctl_files.BootFiles(HostFs(str(root))).sources(TEXT).get(name)
    return (sysctl_files.number(one.value), one.source.replace(str(root), ""))


def overrides(root):
    return sysctl_files.BootFiles(HostFs(str(root))).overrides(STRICT)


# ---- kubelet -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kubelet", "kubelite", "k3s-server"])
def test_kubernetes_74151_kubelet_sets_it_at_each_start(tmp_path, name):
    """Also kubernetes 66241."""
    put(tmp_path, OURS, TEXT)
    with_process(tmp_path, name, "--config=/var/lib/kubelet/config.yaml")
    put(tmp_path, "var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n# protectKernelDefaults: true\n")
    assert at_boot(tmp_path) == (1, name) and at_boot(tmp_path, PANIC) == (0, name)
    assert overrides(tmp_path) == [
        f"{name} sets vm.overcommit_memory to 1 at each start: leave it to Kubernetes on this host",
        f"{name} sets vm.panic_on_oom to 0 at each start: leave it to Kubernetes on this host",
    ]
    differences, blocked_by = sysctl_files.BootFiles(HostFs(str(tmp_path))).differences(STRICT)
    assert differences == overrides(tmp_path) and blocked_by == differences[0]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("kubelet", ["--protect-kernel-defaults"]),
        ("kubelet", ["--protect-kernel-defaults=true", "--v=2"]),
        ("kubelet", ["--config", "/etc/kubernetes/kubelet.yaml"]),
        ("k3s-server", ["server", "--protect-kernel-defaults"]),
        ("k3s-agent", ["agent", "--kubelet-arg=protect-kernel-defaults=true"]),
    ],
)
def test_kubernetes_135294_kubelet_does_not_start_with_another_value(tmp_path, name, arguments):
    put(tmp_path, "etc/kubernetes/kubelet.yaml", "protectKernelDefaults: true\n")
    with_process(tmp_path, name, *arguments)
    put(tmp_path, OURS, TEXT)
    assert at_boot(tmp_path) == (2, "/" + OURS)
    assert overrides(tmp_path) == [
        f"{name} does not start with another vm.overcommit_memory than 1 (protectKernelDefaults)",
        f"{name} does not start with another vm.panic_on_oom than 0 (protectKernelDefaults)",
    ]


@pytest.mark.parametrize("argument", ["--protect-kernel-defaults=false", "--config=", "--config"])
def test_arguments_that_protect_nothing(tmp_path, argument):
    with_process(tmp_path, "kubelet", argument)
    assert at_boot(tmp_path) == (1, "kubelet")


def test_a_process_of_another_name_is_no_kubelet(tmp_path):
    with_process(tmp_path, "bash", "kubelet")
    assert overrides(tmp_path) == []


# ---- TuneD, other init systems, ufw --------------------------------------------------------------------------------

PROFILE = "[sysctl]\nvm.overcommit_memory=0\n"


@pytest.mark.parametrize(("reapply", "expected"), [("1", (1, "/etc/sysctl.conf")), ("0", (0, "TuneD profile own"))])
def test_tuned_409_sysctl_conf_is_applied_last(tmp_path, reapply, expected):
    put(tmp_path, "etc/sysctl.conf", "vm.overcommit_memory = 1\n")
    put(tmp_path, "etc/tuned/active_profile", "own\n")
    put(tmp_path, "etc/tuned/own/tuned.conf", PROFILE)
    put(tmp_path, "etc/tuned/tuned-main.conf", f"reapply_sysctl = {reapply}\n")
    assert at_boot(tmp_path) == expected
    assert any(expected[1].rpartition("/")[2] in sentence for sentence in overrides(tmp_path))


def test_tuned_409_a_profile_without_sysctls_applies_nothing(tmp_path):
    put(tmp_path, "etc/sysctl.conf", "vm.overcommit_memory = 1\n")
    put(tmp_path, "etc/tuned/active_profile", "own\n")
    put(tmp_path, "etc/tuned/own/tuned.conf", "[cpu]\ngovernor=performance\n")
    assert at_boot(tmp_path) == (2, "/" + OURS)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("etc/init.d/procps", (1, "/etc/sysctl.conf")),
        ("etc/inittab", (1, "/etc/sysctl.conf")),
        ("usr/lib/systemd/systemd", (2, "/" + OURS)),
    ],
)
def test_without_systemd_sysctl_conf_is_read_last(tmp_path, path, expected):
    put(tmp_path, "etc/sysctl.conf", "vm.overcommit_memory = 1\n")
    put(tmp_path, "etc/init.d/procps", "")
    put(tmp_path, path, "")
    assert at_boot(tmp_path) == expected


@pytest.mark.parametrize(("enabled", "expected"), [("yes", (0, "/etc/ufw/sysctl.conf")), ("no", (2, "/" + OURS))])
def test_ufw_applies_a_file_of_its_own(tmp_path, enabled, expected):
    put(tmp_path, "etc/ufw/ufw.conf", f"# set by ufw\nENABLED={enabled}\n")
    put(tmp_path, "etc/ufw/sysctl.conf", "net/ipv4/ip_forward=1\nvm/overcommit_memory=0\n")
    assert at_boot(tmp_path) == expected


@pytest.mark.parametrize(
    ("reapply", "of_profile", "sysctl_conf", "expected"),
    [
        # TuneD starts after ufw, and applies the system's files again.
        ("1", "vm.overcommit_memory=0", "vm.overcommit_memory = 1", (1, "/etc/sysctl.conf")),
        ("1", "vm.swappiness=1", "", (2, "/" + OURS)),
        ("0", "vm.overcommit_memory=1", "", (1, "TuneD profile own")),
        ("0", "vm.swappiness=1", "", (0, "/etc/ufw/sysctl.conf")),
    ],
)
def test_ufw_and_tuned_on_a_guest_of_debian(tmp_path, reapply, of_profile, sysctl_conf, expected):
    put(tmp_path, "etc/ufw/ufw.conf", "ENABLED=yes\n")
    put(tmp_path, "etc/ufw/sysctl.conf", "vm/overcommit_memory=0\n")
    put(tmp_path, "etc/sysctl.conf", sysctl_conf)
    put(tmp_path, "etc/tuned/active_profile", "own\n")
    put(tmp_path, "etc/tuned/own/tuned.conf", f"[more]\ntype=sysctl\n{of_profile}\n")
    put(tmp_path, "etc/tuned/tuned-main.conf", f"reapply_sysctl = {reapply}\n")
    assert at_boot(tmp_path) == expected
    assert any(expected[1] in text for text in overrides(tmp_path)) == (expected[0] != 2)


# ---- files ---------------------------------------------------------------------------------------------------------


def test_debops_2710_a_masked_file_is_silent(tmp_path):
    put(tmp_path, "usr/lib/sysctl.d/zz.conf", "vm.overcommit_memory=0\n")
    (tmp_path / "etc/sysctl.d").mkdir(parents=True)
    (tmp_path / "etc/sysctl.d/zz.conf").symlink_to("/dev/null")
    fs = HostFs(str(tmp_path))
    assert sysctl_files.BootFiles(fs).overrides(STRICT) == [] and fs.problems == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ("2 # strict", 2),
        (" 2\t; strict", 2),
        ("0x2", 2),
        ("02", 2),
        ("010", 8),
        ("-1", -1),
        ("2#strict", None),
        ("2.0", None),
        ("09", None),
        ("", None),
        ("two", None),
    ],
)
def test_the_kernel_takes_the_number_before_a_blank(text, value):
    assert sysctl_files.number(text) == value


def test_a_comment_behind_a_value_is_no_other_value(tmp_path):
    put(tmp_path, "etc/sysctl.d/zz.conf", "vm.overcommit_memory = 2 # strict\n")
    assert overrides(tmp_path) == []
    assert at_boot(tmp_path) == (2, "/etc/sysctl.d/zz.conf")


# ---- programs that end processes by themselves ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("systemd-oomd", [], "ManagedOOMPreference=omit"),
        ("earlyoom", ["-m", "5", "--ignore-oom-score-adj"], "--avoid"),
        ("earlyoom", ["-m", "5"], None),
        ("oomd-like", [], None),
    ],
)
def test_who_does_not_look_at_scores(tmp_path, name, arguments, said):
    with_process(tmp_path, name, *arguments)
    words = late_writers.daemons_without_scores(late_writers.processes(HostFs(str(tmp_path))))
    assert [said in sentence for sentence in words] == ([True] if said else [])
