# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter ``threadwise.smt.smt_compare``: samples before, samples after -> ratio, interval, verdict."""

from __future__ import annotations

DOCUMENTATION = r"""
name: smt_compare
short_description: Compare samples from before and after a change, with an interval and a verdict
version_added: 1.0.0
author: threadwise.smt contributors
description:
  - Compares two sides that were measured in the same blocks, and says whether the second is better, worse, as good, or
    whether the samples do not tell.
  - Works on the logarithm of after / before of each block, so that drift of the machine from block to block hits both
    sides alike. Take the samples interleaved (A B, B A, ...); samples of one side all taken before those of the other
    cannot tell the change from the drift.
positional: _input, after
options:
  _input:
    description:
      - The samples before the change, one number, or one list of numbers, for each block, in the order taken.
      - All above zero, in any one unit.
    type: list
    elements: raw
    required: true
  after:
    description: The samples after the change, of the same blocks, in the same order.
    type: list
    elements: raw
    required: true
  better:
    description: Which way the metric points. Rates get better when they are higher, times when they are lower.
    type: str
    choices: [higher, lower]
    default: higher
  margin:
    description: An effect within this share does not matter. From 0 to below 1.
    type: float
    default: 0.01
  confidence:
    description: Confidence of the interval, from 0.5 to 0.9999.
    type: float
    default: 0.95
notes:
  - Fewer than 4 blocks are never called anything but V(inconclusive).
"""

EXAMPLES = r"""
- name: Say what a change did to the rate, measured in seven blocks
  ansible.builtin.debug:
    msg: "{{ [119.1, 118.2, 118.9, 119.4, 117.8, 118.8, 119.0] | threadwise.smt.smt_compare([78.2, 77.9, 78.0, 78.4,
      77.1, 78.3, 78.1]) }}"

- name: Go on only where latency did not get worse
  ansible.builtin.assert:
    that: (before_ms | threadwise.smt.smt_compare(after_ms, better='lower', margin=0.02)).verdict in ['gain',
      'equivalent']
"""

RETURN = r"""
_value:
  description: The comparison. All values are plain numbers and strings.
  type: dict
  contains:
    ratio:
      description: After / before, turned so that above 1 is better whichever way the metric points.
      type: float
    ci_low:
      description: Lower end of the interval of the ratio. None for a single block.
      type: float
    ci_high:
      description: Upper end of the interval of the ratio. None for a single block.
      type: float
    confidence:
      description: The confidence asked for.
      type: float
    n:
      description: Number of blocks.
      type: int
    margin:
      description: The margin asked for.
      type: float
    minimum_detectable:
      description: An effect of this share would have been called in 90 % of such runs (0.02 is 2 %). None for a single
        block.
      type: float
    verdict:
      description:
        - V(equivalent) when the whole interval lies within the margin.
        - V(gain) or V(loss) when the whole interval lies on one side of 1, clear of it by a quarter of the margin, and
          the ratio itself is beyond the margin.
        - V(inconclusive) otherwise.
      type: str
    interval_confidence:
      description: The confidence of the interval, O(confidence) for a comparison alone.
      type: float
    p_value:
      description: Probability of samples that differ at least so much where the change does nothing. None for a single
        block.
      type: float
    p_adjusted:
      description: The same, corrected for all comparisons of the C(family) and for all C(looks).
      type: float
    family:
      description: How many comparisons the correction is for; V(1) for a comparison alone.
      type: int
    looks:
      description: How many looks at the samples were taken before the last block; V(0) for a comparison alone.
      type: int
    method:
      description: How the interval was computed, and why there is no verdict where blocks are too few.
      type: str
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired


def smt_compare(
    before: t.Sequence[paired.Block],
    after: t.Sequence[paired.Block],
    better: str = "higher",
    margin: float = 0.01,
    confidence: float = 0.95,
) -> dict[str, t.Any]:
    """Compare two lists of samples, block by block.

    Args:
        before: one number, or a list of numbers, for each block, in the order taken
        after: the other side of the same blocks
        better: ``higher`` or ``lower``
        margin: effects within this share of 1 do not matter
        confidence: of the interval

    Returns:
        plain data, see RETURN

    Raises:
        AnsibleFilterError: what is wrong with which value
    """
    try:
        return paired.compare(before, after, better, margin, confidence).described()
    except paired.SampleError as error:
        raise AnsibleFilterError(f"smt_compare: {error}") from error


class FilterModule:
    """The filter of this file."""

    def filters(self) -> dict[str, t.Callable[..., dict[str, t.Any]]]:
        """Return the filter by name."""
        return {"smt_compare": smt_compare}
