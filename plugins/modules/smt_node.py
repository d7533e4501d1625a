#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_node
short_description: (internal) A node of Kubernetes around a change of its host
version_added: 1.0.0
description:
  - Used by the role P(threadwise.smt.smt_policy#role) with C(smt_policy_kubernetes); not to be called directly.
  - Runs on the controller, and calls C(kubectl) there.
  - A node that it drains has the annotation C(threadwise-smt/drained) as long as it is cordoned. Of other nodes the
    cordon is never lifted.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  state:
    description:
      - V(drained) cordons the node and runs C(kubectl drain). Where that fails, the node gets pods as before.
      - V(ready) waits until the kubelet of a node that was drained so is ready and has renewed its lease since, and
        lets the node have pods again. It does nothing to other nodes.
      - V(labelled) gives the node its O(labels). Check mode, which does not know the state after a change, says nothing
        of them.
    type: str
    choices: [drained, ready, labelled]
    required: true
  drain:
    description: Options of C(kubectl drain).
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that V(drained) or V(ready) may take.
    type: int
    default: 600
  labels:
    description: Labels that the node has with V(labelled), their values by their names.
    type: dict
    default: {}
extends_documentation_fragment:
  - threadwise.smt.attributes.controller
attributes:
  check_mode:
    support: full
    details: C(kubectl drain) is run with C(--dry-run=client).
  diff_mode:
    support: none
author:
  - threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: Drain the node
  threadwise.smt.smt_node:
    node: worker-7
    state: drained
    drain: [--ignore-daemonsets]
"""

RETURN = r"""
msg:
  description: What was done; empty where nothing was to do.
  returned: success
  type: str
  sample: node worker-7 is drained
"""
