# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real module in a process of its own, as Ansible runs it, and its answer at the border."""

from __future__ import annotations

import json

import bmc_server
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import answers


def asked(resources, **options):
    """What the module prints, once Ansible and the border have read it; and the BMC."""
    with bmc_server.serving(resources) as bmc:
        printed = bmc_server.run_module(bmc.host, **options)
    assert bmc_server.PASSWORD not in printed and bmc_server.TOKEN not in printed
    return answers.accept("smt_firmware_facts", printed), bmc


@pytest.mark.parametrize("check", [False, True])
def test_its_facts_pass_the_border_in_check_mode_too(check):
    found, bmc = asked(bmc_server.recorded("dell_idrac9"), check=check, kernel=bmc_server.ONE_THREAD)
    firmware = found["ansible_facts"]["smt_firmware"]
    assert (found["changed"], firmware["agrees"], firmware["systems"][0]["state"]) == (False, False, "enabled")
    assert [one["about"] for one in firmware["findings"]] == ["staged", "kernel"]
    # Nothing is written but the session.
    posted = [line for line in bmc.asked if not line.startswith("GET")]
    assert posted == [f"POST {bmc_server.SESSIONS}", f"DELETE {bmc_server.SESSIONS}/7"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"password": "wr0ng"},
            "refuses /redfish/v1/SessionService/Sessions (status 401): no (a secret): check username",
        ),
        ({"baseuri": "http://bmc"}, "baseuri begins with http://"),
        ({"timeout": 0}, "timeout is 0: it must be from 1 to 600"),
        ({"resource_id": "7"}, "there is no system 7: the BMC has 1"),
        ({"kernel": {"a": 1}}, "give what smt_facts returns"),
        ({"auth_token": "an0ther"}, "mutually exclusive"),
        ({"username": None}, "required together"),
        ({"username": None, "password": None}, "one of the following is required"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(options, said):
    with bmc_server.serving(bmc_server.small({"LogicalProc": "Enabled"})) as bmc:
        printed = bmc_server.run_module(**{"host": options.pop("baseuri", bmc.host), **options})
    answer = answers.accept("smt_firmware_facts", printed)
    assert answer["failed"] and said in answer["msg"] and "exception" not in answer
    assert "wr0ng" not in printed


def test_an_answer_with_more_in_it_is_refused():
    """A machine between that runs the module may answer anything."""
    with bmc_server.serving(bmc_server.recorded("hpe_ilo5")) as bmc:
        answer = json.loads(bmc_server.run_module(bmc.host))
    answers.accept("smt_firmware_facts", json.dumps(answer))
    for change in ({"bmc_address": "evil"}, {"smt_firmware": {**answer["ansible_facts"]["smt_firmware"], "x": 1}}):
        with pytest.raises(answers.text.BorderError):
            changed = {**answer, "ansible_facts": {**answer["ansible_facts"], **change}}
            answers.accept("smt_firmware_facts", json.dumps(changed))
