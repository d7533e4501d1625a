# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of run-time changes share: a guest seen from outside, and requests to it."""

from __future__ import annotations

import json
import re
import time

CPUS = "/sys/devices/system/cpu"
SAVED = "/var/lib/threadwise-smt/smt-snapshot.json"
RECORD = "/var/lib/threadwise-smt/timer-rollback.json"
TMPFILES = "/etc/tmpfiles.d/threadwise-smt.conf"
UNIT = "/etc/systemd/system/threadwise-smt.service"
TIME_LIMIT = 300


def cores_of(host):
    """Cores as lists of CPUs, worked out from the guest's shape and numbering alone."""
    variables = host.ansible.get_variables()
    sockets, cores, threads = map(int, variables["lab_shape"].split("x"))
    count = sockets * cores
    if variables["lab_numbering"] == "split":
        return [[core + thread * count for thread in range(threads)] for core in range(count)]
    return [[core * threads + thread for thread in range(threads)] for core in range(count)]


def firsts(cores, threads):
    return sorted(cpu for core in cores for cpu in core[:threads])


def cpus(text):
    """CPUs of a kernel's list."""
    found = []
    for part in text.strip().split(","):
        first, _dash, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def online(host):
    return cpus(host.check_output("cat %s/online", CPUS))


def control(host):
    return host.check_output("cat %s/smt/control", CPUS)


def smt_state(host, check_mode=False, **options):
    """The module's result, also of one that failed."""
    return call(host, "smt_state", check_mode, options)


def plan(host, **options):
    """What an evaluation says that is carried out or refused at once."""
    return call(host, "smt_benchmark", False, options)


def call(host, module, check_mode, options):
    try:
        return host.ansible("threadwise.smt." + module, json.dumps(options), check=check_mode)
    except host.ansible.AnsibleException as error:
        return error.result


def pinned(host):
    """Where the pinned service may run."""
    pid = host.check_output("systemctl show -p MainPID --value pinned")
    return re.search(r"Cpus_allowed_list:\s*(\S+)", host.check_output("cat /proc/%s/status", pid)).group(1)


def mark(host):
    """What a run that changes nothing has to leave alone; what is written after the first call shows in the second."""
    host.check_output("[ -e /run/mark ] || touch /run/mark")
    written = "find /var/lib/threadwise-smt /run/threadwise-smt /etc -newer /run/mark"
    return host.check_output(f"cat {CPUS}/online {CPUS}/smt/control; {written}"), pinned(host)


def wait_until(condition):
    end = time.monotonic() + TIME_LIMIT
    while not condition():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.5)
