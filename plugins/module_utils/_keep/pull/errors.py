# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of this package's errors."""

from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError


class PullError(HostError):
    """A commit cannot be used, or none can be had; the message says why."""
