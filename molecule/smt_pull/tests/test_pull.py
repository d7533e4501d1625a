# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that keeps its own policy by its timer, seen from outside.

Nothing here starts what mends it. The tests build on one another.
"""

from __future__ import annotations

import re
import time

CONTROL = "/sys/devices/system/cpu/smt/control"
METRICS = "/var/lib/prometheus/node-exporter/threadwise_smt.prom"
TIME_LIMIT = 1200


def wait_until(host, what):
    """Whether something comes to be by itself; a guest on a busy machine takes its time."""
    end = time.monotonic() + TIME_LIMIT
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(5)
    print(host.run("journalctl --no-pager -n 200 -u threadwise-smt-pull.service").stdout)
    return False


def judged_at(host):
    """When the host was last judged compliant by its own metrics, seconds since 1970; 0 where it was not."""
    text = host.run("cat " + METRICS).stdout
    compliant = re.search(r'^threadwise_smt_compliant\{host="smt-pull",[^}]*\} 1$', text, re.MULTILINE)
    at = re.search(r'^threadwise_smt_checked_timestamp_seconds\{host="smt-pull",[^}]*\} ([0-9]+)$', text, re.MULTILINE)
    return int(at[1]) if compliant and at else 0


def pulled(host):
    """The metrics of the pull: 0 or 1 for its success, and the commits by their use."""
    text = host.run("cat " + METRICS).stdout
    success = re.search(r'^threadwise_smt_pull_success\{host="smt-pull"\} ([01])$', text, re.MULTILINE)
    commits = re.findall(
        r'^threadwise_smt_pull_commit_info\{host="smt-pull",commit="(\w+)",use="(\w+)"\} 1$', text, re.MULTILINE
    )
    return success and int(success[1]), {use: name for name, use in commits}


def commit(host, command):
    """A commit of the fleet's repository. Returns its name."""
    git = "git -C /srv/fleet -c user.name=fleet -c user.email=fleet@example.com"
    host.check_output(f"cd /srv/fleet && {command} && {git} commit -qam x")
    return host.check_output(f"{git} rev-parse HEAD")


def arguments(host):
    return re.findall(r"nosmt\S*", host.check_output("grep -m1 '^[[:space:]]*linux' /boot/grub/grub.cfg"))


def is_as_wanted(host):
    return host.check_output("cat " + CONTROL) == "off" and arguments(host) == ["nosmt"]


def drift(host):
    """Somebody changes it by hand. Returns when, by the host's clock."""
    host.check_output(f"echo on >{CONTROL} && rm /etc/default/grub.d/*threadwise* && update-grub")
    assert not is_as_wanted(host)
    return int(host.check_output("date +%s"))


def boot_id(host):
    """Which boot this is; None while the host cannot be reached."""
    try:
        return host.check_output("cat /proc/sys/kernel/random/boot_id")
    except RuntimeError:
        return None


def test_the_timer_puts_the_policy_in_force_and_writes_metrics(host):
    assert wait_until(host, lambda: judged_at(host) and is_as_wanted(host))


def test_drift_is_mended_without_a_controller(host):
    since = drift(host)
    assert wait_until(host, lambda: judged_at(host) > since and is_as_wanted(host))


def test_drift_is_mended_also_when_the_newest_commit_is_broken(host):
    good = host.check_output("git -C /srv/fleet rev-parse HEAD")
    broken = commit(host, "cp inventory.yml /srv/inventory.yml && echo '<<<<<<< ours' >>inventory.yml")
    # A pull that had begun before knows nothing of it.
    assert wait_until(host, lambda: pulled(host) == (0, {"enforced": good, "refused": broken}))
    since = drift(host)
    assert wait_until(host, lambda: judged_at(host) > since and is_as_wanted(host))
    assert pulled(host) == (0, {"enforced": good, "refused": broken})
    said = host.check_output("journalctl --no-pager -o cat -u threadwise-smt-pull.service")
    assert (
        f"Commit {broken[:12]} is refused: " in said
        and f". The policy of commit {good[:12]} is enforced, under which this host was judged on " in said
    )
    mended = commit(host, "mv /srv/inventory.yml inventory.yml")
    assert wait_until(host, lambda: pulled(host) == (1, {"enforced": mended}))


def test_a_pull_that_is_killed_leaves_no_metrics_of_the_one_before(host):
    host.check_output("systemctl start --no-block threadwise-smt-pull.service")
    assert wait_until(
        host, lambda: host.check_output("systemctl show --value -p MainPID threadwise-smt-pull.service") != "0"
    )
    host.check_output("systemctl kill --signal=KILL threadwise-smt-pull.service")
    since = int(host.check_output("date +%s"))
    assert wait_until(host, lambda: pulled(host)[0] == 0)
    text = host.check_output("cat " + METRICS)
    assert (
        'threadwise_smt_status{host="smt-pull",hardware_class="",status="unknown"} 1\n' in text
        and "threadwise_smt_checked" not in text
    )
    assert wait_until(host, lambda: judged_at(host) > since and pulled(host)[0] == 1)


def test_it_is_mended_also_when_the_repository_is_gone(host):
    host.check_output("mv /srv/fleet /srv/gone")
    since = drift(host)
    assert wait_until(host, lambda: judged_at(host) > since and is_as_wanted(host))


def test_it_is_as_wanted_after_a_reboot(host):
    before = boot_id(host)
    host.check_output("systemd-run --on-active=1 systemctl reboot")
    assert wait_until(host, lambda: boot_id(host) not in (None, before))
    assert is_as_wanted(host) and host.service("threadwise-smt-pull.timer").is_running
