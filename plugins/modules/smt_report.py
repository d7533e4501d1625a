#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_report
short_description: Build the report of a run from the results that were collected
version_added: 1.0.0
description:
  - Reads the result files of a run on the controller and writes what a person or another program reads beside them -
    C(index.html), for more than one host a page for each (C(HOST.html)), and files for other readers.
  - Files for other readers are C(comparisons.csv), C(metrics.prom), C(results.csv), C(results.json),
    C(samples.parquet), C(summary.md), C(workers.csv), C(workers.parquet).
  - A page needs no network. Its first screen shows whether SMT should be on and how certain that is; details down to
    the samples follow.
  - What comes from a host is data. A file that is no sound result is refused by name, and the other hosts' pages are
    built.
  - The same results give the same files, so a second build changes nothing.
options:
  run_dir:
    description: Directory of the run on the controller. The report is written into it.
    type: path
    required: true
  results:
    description:
      - Result files to report on, for instance of several runs.
      - Without it, all results in O(run_dir).
    type: list
    elements: path
  margin:
    description: An effect within this share counts as none. From 0 to below 1.
    type: float
    default: 0.01
  confidence:
    description: Confidence of the verdicts of all workloads and arms of a host together, from 0.5 to 0.9999.
    type: float
    default: 0.95
  before:
    description:
      - Directory of an earlier run over the same hosts, for instance from before a kernel update.
      - With it C(compare.html) says what changed from that run to this one.
    type: path
  other_runs:
    description:
      - Directories of other runs. C(machines.html) then sets their machines beside those of this run, by the work of
        each per core, per CPU, per nominal GHz, per licence and per unit of money. Without it the page is made where
        this run has several hosts.
    type: list
    elements: path
    default: []
  compare:
    description:
      - Which arms are compared. V(baseline) compares each other arm with the first one, V(all) also the others among
        each other, in the same family.
      - With more than two arms only V(all) can find that another arm than the baseline is the best. It needs larger
        effects for each verdict.
    type: str
    choices: [baseline, all]
    default: baseline
  licence_per:
    description: What the licences of the hosts' software count. With O(licence_price) it is a reason in the
      recommendation.
    type: str
    choices: [core, thread]
  licence_price:
    description: Price of one licence, above zero, in any currency. Needs O(licence_per).
    type: float
  _evaluated:
    description: Not for users. Name of the variable in which the evaluation's result was registered, so that there may
      be no result to report.
    type: str
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows the change of C(summary.md).
requirements:
  - jsonschema-rs (on the controller)
  - scipy (on the controller)
notes:
  - Recommended on the controller is the Python package duckdb, without which the Parquet files are left out. A warning
    names what the report lacks.
seealso:
  - module: threadwise.smt.smt_benchmark
  - plugin: threadwise.smt.smt_compare
    plugin_type: filter
author: threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Build the report again, with a wider margin
  threadwise.smt.smt_report:
    run_dir: smt_eval_results/20260102T030405Z
    margin: 0.02
  run_once: true

- name: Compare every two arms of the run, to find the best one
  threadwise.smt.smt_report:
    run_dir: smt_eval_results/20260102T030405Z
    compare: all
  run_once: true

- name: Compare with the run before the new kernel
  threadwise.smt.smt_report:
    run_dir: smt_eval_results/20260202T030405Z
    before: smt_eval_results/20260102T030405Z
  run_once: true

- name: Let licences that are paid by thread be a reason
  threadwise.smt.smt_report:
    run_dir: smt_eval_results/20260102T030405Z
    licence_per: thread
    licence_price: 1200
  run_once: true
"""

RETURN = r"""
index:
  description: The page to open first.
  returned: always
  type: str
files:
  description: Files that were written, or would be in check mode. Those that were up to date are not among them.
  returned: always
  type: list
  elements: str
hosts:
  description: Each host with C(host), C(recommendation) and C(sentence).
  returned: always
  type: list
  elements: dict
classes:
  description: Each hardware class of several hosts with C(hardware_class), C(hosts), C(recommendation) and C(sentence),
    about its hosts combined.
  returned: always
  type: list
  elements: dict
refused:
  description: Each file that could not be used, with C(file) and C(reason).
  returned: always
  type: list
  elements: dict
"""
