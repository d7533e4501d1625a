#!/usr/bin/python
# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: smt_benchmark_stop
short_description: End a benchmark plan that is running on a host, and fetch its samples
version_added: 1.0.0
description:
  - Ends each plan of M(threadwise.smt.smt_benchmark) that is running on the host, waits until the plan has restored the
    host, and writes the samples that it took so far to the controller. The result has the outcome C(interrupted).
  - A host without a running plan is left alone. Samples of earlier runs that no controller fetched are brought to the
    controller, too. One call fetches at most four runs of a host; a warning names those that stay there.
options:
  dest:
    description:
      - Directory on the controller that holds runs. A result goes to C(DEST/RUN/HOST.json), and to
        C(DEST/_collected/HOST/RUN/HOST.json) where the run was not started from here on this host.
    type: path
    default: smt_eval_results
extends_documentation_fragment:
  - threadwise.smt.attributes
attributes:
  check_mode:
    support: full
    details: Says which runs would be ended.
  diff_mode:
    support: none
    details: The host is not changed but by the plan, which restores it.
  action:
    support: full
    description: Writes the results on the controller.
notes:
  - Needs the user that started the evaluation, for root C(become=true) in a playbook or C(ansible-playbook -b).
seealso:
  - module: threadwise.smt.smt_benchmark
author: threadwise.smt contributors (@threadwise)
"""

EXAMPLES = r"""
- name: End the evaluation that is running on this host
  threadwise.smt.smt_benchmark_stop:
  become: true
"""

RETURN = r"""
runs:
  description: Names of the runs that were ended.
  returned: success
  type: list
  elements: str
paths:
  description: The files of the results on the controller, also of earlier runs that no controller had fetched.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import steps
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.run_directory import RunDirectoryError


def main() -> None:
    """End the plans that are running."""
    module = AnsibleModule(
        argument_spec={"dest": {"type": "path", "default": "smt_eval_results"}}, supports_check_mode=True
    )
    try:
        runs, ended = steps.stop(module.check_mode)
    except (RunDirectoryError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(runs), runs=runs, uncollected=ended)


if __name__ == "__main__":
    main()
