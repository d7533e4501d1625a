# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The class of all errors of this package."""

from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError


class SmtError(HostError):
    """The SMT state of a host cannot be read or changed; the message names the CPU or file and the reason."""
