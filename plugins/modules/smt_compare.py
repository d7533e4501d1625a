#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_compare
short_description: Compare two files of measurements, from before and after a change
version_added: 1.0.0
description:
  - Says of two files with the same measurements, taken before and after a change, whether the second is better, worse,
    as good, or whether they do not tell, with an interval. It is what P(threadwise.smt.smt_compare#filter) does with
    lists.
  - A file is a list of numbers (in lines, or as JSON), a CSV file, what C(hyperfine --export-json) wrote, or what Go's
    benchmarks print, as benchstat reads it.
  - Reads and writes on the controller, whatever the task's host. Run it once.
options:
  before:
    description: The file from before the change.
    type: path
    required: true
  after:
    description: The file from after it. Where each file has one measurement they are compared whatever their names,
      else those of the same name and unit are. The n-th value of one file belongs to the n-th value of the other.
    type: path
    required: true
  better:
    description: Which way is better, for measurements of which neither the unit nor the tool's file says it; for those
      it is required.
    type: str
    choices: [higher, lower]
  column:
    description: The column of a CSV file that has several columns of numbers.
    type: str
  margin:
    description: Effects within this share count as none. From 0 to below 1.
    type: float
    default: 0.01
  confidence:
    description: Confidence of all verdicts together, from 0.5 to 0.9999.
    type: float
    default: 0.95
  dest:
    description: The comparison as JSON, on the controller; a relative path is below the current directory. The name has
      to end in C(.json). The file is replaced as a whole, but only if this collection wrote it.
    type: path
    default: smt_compare.json
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
    details: Shows the comparison without writing the file.
  diff_mode:
    support: none
seealso:
  - plugin: threadwise.smt.smt_compare
    plugin_type: filter
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Compare two exports of hyperfine
  threadwise.smt.smt_compare:
    before: smt_on.json
    after: smt_off.json
  run_once: true

- name: Compare a column of two CSV files
  threadwise.smt.smt_compare:
    before: smt_on.csv
    after: smt_off.csv
    column: requests
    better: higher
  run_once: true
"""

RETURN = r"""
dest:
  description: The file.
  returned: success
  type: str
  sample: smt_compare.json
comparisons:
  description: Each comparison. C(name), C(unit), C(better), C(before_value) and C(after_value), C(change),
    C(change_low) and C(change_high) (of the number itself, as shares), what the filter returns (C(ratio), C(verdict)
    and others), and C(left_out), how many values one side has more.
  returned: success
  type: list
  elements: dict
"""
