# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of a host's compliance that a check on the controller writes, and a pull that cannot judge its host.

Their texts are the same wherever they are written, and stay as they are from release to release: node_exporter refuses
a metric that two files describe otherwise (node_exporter 1885), with all that it exports.
"""

COMPLIANT = "threadwise_smt_compliant"
STATUS = "threadwise_smt_status"
# A status with its time in one sample, so that of two that a server still has it is known which is the later one.
STATUS_TIME = "threadwise_smt_status_timestamp_seconds"
PULL_RUN = "threadwise_smt_pull_run_timestamp_seconds"
HELP = {
    COMPLIANT: "1 when the host complies with its SMT policy, 0 when it does not or is unknown",
    # Where no host is asked, silent and unknown_to_server as well.
    STATUS: "1 for the status: compliant, waived, drifted, bad_policy, unknown or unreachable",
    STATUS_TIME: "time of the check that found the status, in seconds since 1970, with what it found",
}
# A sentence is as long as a label, which all servers take, may well be.
MAX_SENTENCE = 300
