# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The class of all errors of this package.

This file is copied to a host as part of the rollback program: it imports only files that are copied with it, by relative imports.
"""

from .._host.errors import HostError


class SmtError(HostError):
    """The SMT state of a host cannot be read or changed; the message names the CPU or file and the reason."""
