# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of this package's errors.

It imports nothing, so that overcommit_test.py can be run on a host with this file and typing_forms.py alone.
"""


class MemoryPolicyError(Exception):
    """Something of a memory policy failed.

    The text names the option, the file or the unit, the reason, and the way out if there is one.
    """
