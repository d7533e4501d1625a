# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who sends more than a valid answer has is cut off while it sends; everybody else is left alone."""

from __future__ import annotations

import resource
import signal
import subprocess

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import intake

MIB = 1024 * 1024


def said_by(command):
    """What a command prints, read from two pipes as the connections `local` and `ssh` do."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            return process.communicate()[0]
        finally:
            process.kill()


def test_a_flood_is_cut_off_and_its_process_ended():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    others = processes.children()
    with pytest.raises(intake.FloodError, match="more than 9 MiB"), intake.at_most(MIB):
        # A process of its own that nobody's pipe ends.
        lasting = subprocess.Popen(["sleep", "20"])
        said_by(["head", "-c", str(1000 * MIB), "/dev/zero"])
    assert lasting.wait() != 0 and processes.children() <= others
    # Reading goes on for a moment of CPU time.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0) and signal.getsignal(signal.SIGPROF) is signal.SIG_DFL


def test_a_long_answer_is_read():
    with intake.at_most(64 * MIB):
        assert len(said_by(["head", "-c", str(60 * MIB), "/dev/zero"])) == 60 * MIB


def test_what_the_module_reads_on_a_local_connection_is_no_answer():
    with intake.at_most(MIB):
        assert said_by(["sh", "-c", f"head -c {200 * MIB} /dev/zero | cat > /dev/null; echo ok"]) == b"ok\n"
        # Some CPU time, in which the timer looks.
        assert sum(range(3_000_000)) > 0


def test_the_limit_ends_with_the_call():
    with intake.at_most(MIB):
        pass
    assert len(said_by(["head", "-c", str(20 * MIB), "/dev/zero"])) == 20 * MIB
