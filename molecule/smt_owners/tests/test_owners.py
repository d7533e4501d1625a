# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection says and does on a guest where Debian's own TuneD, Docker, Podman, libvirt and ufw set the same
things, held against what the kernel and these tools do.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
INVENTORY = EPHEMERAL / "inventory"
SCENARIO = pathlib.Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])
PROJECT = pathlib.Path(os.environ["MOLECULE_PROJECT_DIRECTORY"])
LAB = PROJECT / "tools" / "lab" / "lab.py"
GUEST = "smt-owners"
CPUS = "/sys/devices/system/cpu"
GRUB_CFG = "/boot/grub/grub.cfg"
# Molecule asks for colours.
PLAIN = {**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"}
# Only there to end what hangs.
TIME_LIMIT = 1800
OFF, ON = ("off", "0,2,4,6"), ("on", "0-7")


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=PLAIN)


def ad_hoc(module, arguments=""):
    done = run("ansible", "-i", str(INVENTORY), GUEST, "-m", module, "-a", arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.partition("=> ")[2])


def call(host, module, check=False, **options):
    """A module's result, also of one that failed."""
    try:
        return host.ansible("threadwise.smt." + module, json.dumps(options), check=check)
    except host.ansible.AnsibleException as error:
        return error.result


def install(*packages):
    done = run(sys.executable, str(LAB), "install", GUEST, *packages)
    assert done.returncode == 0, done.stdout + done.stderr


def play(playbook, *arguments, **variables):
    done = run("ansible-playbook", "-i", str(INVENTORY), playbook, "-e", json.dumps(variables), *arguments)
    return done.returncode == 0, " ".join((done.stdout + done.stderr).split())


def reboot():
    ad_hoc("ansible.builtin.reboot", f"reboot_timeout={TIME_LIMIT}")


# ---- TuneD ---------------------------------------------------------------------------------------------------------


def boot_facts():
    return ad_hoc("threadwise.smt.smt_facts")["ansible_facts"]["smt"]["boot"]


def kernel(host):
    """What the running kernel has: its arguments about SMT, the control and the CPUs online."""
    words = host.check_output("cat /proc/cmdline").split()
    control, online = host.check_output(f"cat {CPUS}/smt/control {CPUS}/online").split("\n")
    return [word for word in words if word.startswith("nosmt")], (control, online)


def boot_id(host):
    return host.check_output("cat /proc/sys/kernel/random/boot_id")


def role(smt, *arguments):
    return play(
        str(SCENARIO / "files" / "boot.yml"),
        *arguments,
        smt_boot_smt=smt,
        smt_boot_reboot_ok=True,
        smt_boot_reboot_timeout=TIME_LIMIT,
    )


def compliance(policy):
    judged = EPHEMERAL / "compliance.json"
    judged.unlink(missing_ok=True)
    # A host that is not compliant fails.
    _worked, said = play(
        "threadwise.smt.smt_compliance",
        smt_policy=policy,
        smt_policy_scope="both",
        smt_compliance_json=str(judged),
        smt_compliance_metrics=str(EPHEMERAL / "compliance.prom"),
        smt_compliance_page=str(EPHEMERAL / "compliance.html"),
    )
    assert judged.exists(), said
    (one,) = json.loads(judged.read_text(encoding="utf-8"))["hosts"]
    return one["running"]["status"], one["configured"]["status"], one["reboot_pending"]


def profile(host, name, text):
    host.check_output(
        f"mkdir -p /etc/tuned/{name} && printf '{text}' > /etc/tuned/{name}/tuned.conf && tuned-adm profile {name}"
    )


def test_tuned_sets_nosmt_and_all_agree_with_the_kernel_over_two_reboots(host):
    install("tuned")
    profile(host, "own", "[bootloader]\\ncmdline=nosmt\\n")
    assert boot_facts() == {"configured": ["nosmt"], "running": [], "loader": "grub_debian", "reboot_required": True}
    assert compliance("disabled") == ("drifted", "compliant", True)
    first = boot_id(host)
    worked, said = role("disabled", "--check")
    assert worked and boot_id(host) == first, said
    worked, said = role("disabled")
    second = boot_id(host)
    assert worked and second != first and "is set by TuneD's profile own" in said, said
    assert not host.file("/etc/default/grub.d/zz-threadwise-smt.cfg").exists
    for after in ("the role's reboot", "another one"):
        assert kernel(host) == (["nosmt"], OFF), after
        facts = boot_facts()
        assert (facts["configured"], facts["running"], facts["reboot_required"]) == (["nosmt"], ["nosmt"], False)
        assert compliance("disabled") == ("compliant", "compliant", False)
        before = boot_id(host)
        worked, said = role("disabled")
        assert worked and boot_id(host) == before and "changed=0" in said, said
        if after == "the role's reboot":
            reboot()


def test_what_tuned_sets_to_the_contrary_is_refused_with_its_profile(host):
    before = host.check_output(f"sha256sum {GRUB_CFG} /etc/default/grub")
    for check in (True, False):
        refused = call(host, "smt_boot_args", check, smt="enabled")["msg"]
        assert refused.startswith("TuneD sets nosmt at each start, by its profile own"), refused
    assert host.check_output(f"sha256sum {GRUB_CFG} /etc/default/grub") == before
    assert compliance("enabled")[:2] == ("drifted", "drifted")


def test_a_profile_that_goes_leaves_what_is_set_here(host):
    host.check_output("tuned-adm off")
    facts = boot_facts()
    assert (facts["configured"], facts["running"], facts["reboot_required"]) == ([], ["nosmt"], True)
    before = boot_id(host)
    worked, said = role("disabled")
    assert worked and boot_id(host) == before and boot_facts()["configured"] == ["nosmt"], said
    # And one that comes back sets it a second time.
    host.check_output("tuned-adm profile own")
    facts = boot_facts()
    assert (facts["configured"], facts["reboot_required"]) == (["nosmt"], False)
    assert call(host, "smt_boot_args", smt="disabled")["changed"] is False
    assert compliance("disabled") == ("compliant", "compliant", False)
    host.check_output("tuned-adm off")
    worked, said = role("enabled")
    assert worked and boot_id(host) != before and kernel(host) == ([], ON), said


def test_tuneds_other_arguments_stay_where_another_file_sets_the_value_anew(host):
    assert "GRUB_CMDLINE_LINUX_DEFAULT=" in host.check_output("cat /etc/default/grub.d/10-lab.cfg")
    profile(host, "other", "[bootloader]\\ncmdline=skew_tick=1\\n")
    for smt in ("disabled", "enabled"):
        assert call(host, "smt_boot_args", smt=smt)["changed"] is True
        lines = re.findall(r"^\s*linux\s.*", host.file(GRUB_CFG).content_string, re.MULTILINE)
        assert len(lines) == 3 and all("$tuned_params" in line for line in lines), lines
    host.check_output("tuned-adm off")


# ---- sysctls -------------------------------------------------------------------------------------------------------


def overcommit(host):
    return int(host.check_output("cat /proc/sys/vm/overcommit_memory"))


def at_boot(host):
    """The value at the next boot, and who sets it, as the facts have it."""
    facts = host.ansible("threadwise.smt.smt_memory_facts", '{"overcommit": "always"}', check=True)["ansible_facts"]
    return facts["smt_memory"]["wanted"]["boot_differences"], facts["smt_memory"]["wanted"]["overrides"]


@pytest.mark.parametrize(
    ("reapply", "of_system", "of_profile", "who"),
    [("1", 0, 1, "/etc/sysctl.conf"), ("0", 1, 0, "the TuneD profile memory")],
)
def test_tuned_sets_a_sysctl_last(host, reapply, of_system, of_profile, who):
    host.check_output(f"echo vm.overcommit_memory = {of_system} > /etc/sysctl.conf")
    host.check_output(f"sed -i 's/^reapply_sysctl.*/reapply_sysctl = {reapply}/' /etc/tuned/tuned-main.conf")
    profile(host, "memory", f"[sysctl]\\nvm.overcommit_memory={of_profile}\\n")
    differences, overrides = at_boot(host)
    assert any(who in sentence and "vm.overcommit_memory to 0" in sentence for sentence in overrides), overrides
    assert any(who in sentence for sentence in differences), differences
    host.check_output("sysctl -w vm.overcommit_memory=1 && systemctl restart systemd-sysctl tuned && tuned-adm active")
    assert overcommit(host) == 0


def test_ufw_and_tuned_at_a_real_boot(host):
    install("tuned", "ufw")
    host.check_output("echo vm/overcommit_memory=0 >> /etc/ufw/sysctl.conf && ufw allow 22 && ufw --force enable")
    seen = []
    # TuneD starts after ufw: what it sets itself, or applies again, counts, and ufw's value where it does neither.
    for settings, reapply, of_profile in (
        ("vm.overcommit_memory = 1", 1, "vm.overcommit_memory=0"),
        ("# nothing", 0, "vm.swappiness=20"),
    ):
        host.check_output(f"echo '{settings}' > /etc/sysctl.conf")
        host.check_output(f"sed -i 's/^reapply_sysctl.*/reapply_sysctl = {reapply}/' /etc/tuned/tuned-main.conf")
        profile(host, "memory", f"[sysctl]\\n{of_profile}\\n")
        _differences, overrides = at_boot(host)
        reboot()
        host.check_output("systemctl is-active ufw tuned")
        seen.append((overcommit(host), [text for text in overrides if "overcommit_memory" in text]))
    host.check_output("ufw --force disable && tuned-adm off")
    # The facts name ufw where it decides, and nobody where what is wanted will be there.
    assert seen[0] == (1, []), seen
    assert seen[1][0] == 0 and "/etc/ufw/sysctl.conf sets vm.overcommit_memory to 0" in seen[1][1][0], seen


# ---- containers and guests -----------------------------------------------------------------------------------------

IMAGE = (
    "mkdir -p /root/image/bin /root/image/dev /root/image/proc /root/image/sys"
    " && cp /bin/busybox /root/image/bin/sleep && tar -C /root/image -cf /root/image.tar ."
)
DOMAIN = """<domain type='lxc'><name>guest</name><memory unit='KiB'>65536</memory>
<vcpu placement='static' cpuset='5,7'>1</vcpu>
<os><type>exe</type><init>/bin/sleep</init><initarg>1000000</initarg></os>
<devices><emulator>/usr/lib/libvirt/libvirt_lxc</emulator>
<filesystem type='mount'><source dir='/root/image'/><target dir='/'/></filesystem><console type='pty'/></devices>
</domain>"""
STATIC = '{"policyName":"static","defaultCpuSet":"0-7","checksum":1}'


def container(host, tool, what, name, cpus):
    options = "--security-opt apparmor=unconfined" if tool == "docker" else ""
    detached = "-d" if what == "run" else ""
    image = "image" if tool == "docker" else "localhost/image"
    return host.check_output(
        f"{tool} {what} {detached} {options} --network none --cpuset-cpus {cpus} --name {name} {image}"
        " /bin/sleep 1000000"
    ).split("\n")[-1]


def test_containers_and_guests_are_named_before_siblings_go(host):
    install(
        *("docker.io", "podman", "libvirt-daemon-system", "libvirt-daemon-driver-lxc", "libvirt-clients"),
        "busybox-static",
    )
    host.check_output(IMAGE)
    for tool in ("docker", "podman"):
        host.check_output(f"{tool} import - image < /root/image.tar")
    pinned = {
        container(host, "docker", "run", "runs", "1,3"): "CPUs 1,3",
        container(host, "docker", "create", "waits", "5"): "CPU 5",
        container(host, "docker", "run", "has-all", "0-7"): "CPUs 1,3,5,7",
        container(host, "podman", "run", "runs", "1,3"): "CPUs 1,3",
        container(host, "podman", "run", "stopped", "7"): "CPU 7",
    }
    free = [container(host, "docker", "run", "even", "2"), container(host, "podman", "run", "all", "0-7")]
    host.check_output("podman stop -t 0 stopped")
    host.check_output(
        "systemctl start libvirtd && echo %s > /root/guest.xml && virsh -c lxc:/// define /root/guest.xml", DOMAIN
    )
    host.check_output("mkdir -p /var/lib/kubelet && echo %s > /var/lib/kubelet/cpu_manager_state", STATIC)
    refused = call(host, "smt_state", True, state="disabled")
    for found in (
        refused["affinity_conflicts"],
        call(host, "smt_state", state="disabled")["affinity_conflicts"],
        call(host, "smt_boot_args", True, smt="disabled")["affinity_conflicts"],
        re.split("[;\n] ?- ", call(host, "smt_boot_args", smt="disabled", affinity_conflicts="fail")["msg"])[1:],
    ):
        for name, cpus in pinned.items():
            named = [text for text in found if name in text and text.startswith(f"{cpus}: ")]
            assert len(named) == 1, (name, found, refused)
        assert not [text for text in found if any(name in text for name in free)], found
        assert [text for text in found if "libvirt guest guest is pinned there" in text], found
        assert [text for text in found if "policy of kubelet is static (/var/lib/kubelet" in text], found
    assert kernel(host)[1] == ON and "nosmt" not in host.file(GRUB_CFG).content_string


def test_what_was_named_is_what_does_not_start_without_siblings(host):
    assert call(host, "smt_state", state="disabled", affinity_conflicts="warn")["changed"] is True
    host.check_output("docker stop -t 0 runs has-all even")
    for name in ("runs", "waits", "has-all"):
        assert "Requested CPUs are not available" in host.run(f"docker start {name}").stderr
    assert host.run("docker start even").rc == 0
    assert "Invalid argument" in host.run("virsh -c lxc:/// start guest").stderr
    # Made while siblings are off, and still as small when they are back.
    made = container(host, "docker", "run", "small", "0,2")
    assert call(host, "smt_state", state="restored")["changed"] is True and kernel(host)[1] == ON
    assert host.check_output(f"cat /sys/fs/cgroup/system.slice/docker-{made}.scope/cpuset.cpus.effective") == "0,2"
    for name in ("runs", "waits", "has-all"):
        assert host.run(f"docker start {name}").rc == 0
    host.check_output("rm -r /var/lib/kubelet; docker rm -f $(docker ps -aq); podman rm -fa -t 0")


# ---- forms of /etc/default/grub ------------------------------------------------------------------------------------


@pytest.fixture(name="forms", scope="module")
def outcomes_of_forms(host):
    """What came of each form with the guest's own grub-mkconfig, whose scripts for other systems are left out: they
    take most of its time.
    """
    program = EPHEMERAL / "forms.pyz"
    subprocess.run(
        [sys.executable, PROJECT / "molecule/resources/pack.py", SCENARIO / "files/forms.py", program], check=True
    )
    ad_hoc("ansible.builtin.copy", f"src={program} dest=/root/forms.pyz mode=0600")
    kept = "/etc/default/grub /etc/default/grub.d /etc/grub.d /boot/grub/grub.cfg"
    host.check_output(f"tar -cf /root/grub.tar {kept}")
    host.check_output("chmod -x /etc/grub.d/05_* /etc/grub.d/2* /etc/grub.d/3* /etc/grub.d/4*")
    yield [json.loads(line) for line in host.check_output("python3 /root/forms.pyz disabled").split("\n")]
    host.check_output("rm -r /etc/default/grub.d && tar -xf /root/grub.tar -C /")


def test_check_mode_and_the_change_agree_in_each_form(forms):
    assert len(forms) >= 40
    for one in forms:
        assert one["check"] == one["real"] and one["quiet"], one


def test_each_form_has_what_was_asked_for_or_is_as_it_was(forms):
    for one in forms:
        if "refused" in one["real"]:
            assert one["as_before"], one
        else:
            words = [[word for word in entry if word.startswith("nosmt")] for entry in one["booted"]]
            assert all(entry == ["nosmt"] for entry in words) and one["again"]["changed"] is False, one
