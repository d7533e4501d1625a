# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The class of all errors of this package, which those of other packages for hosts extend: a module catches it alone.

This file is copied to a host as part of the rollback program: it imports nothing from the collection.
"""


class HostError(Exception):
    """A host cannot be read or changed as requested; the message names the file, CPU or process and the reason."""
