# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The class of all errors of this package, which those of other packages for hosts extend:
a module catches it alone.
"""


class HostError(Exception):
    """A host cannot be read or changed as requested; the message names the file, CPU or process and the reason."""
