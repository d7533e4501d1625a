# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments that bear on SMT: those the running kernel was started with, and those the boot loader's configuration gives at the next start."""
from __future__ import annotations

SMT_ARGUMENTS = ('nosmt', 'maxcpus', 'nr_cpus', 'smt-enabled', 'smt')
"""Arguments that bear on SMT whatever their value (Documentation/admin-guide/kernel-parameters.txt; `smt-enabled` is POWER's, `smt` is s390's)."""


def smt_arguments(arguments):
    """Those of the boot arguments that bear on SMT, in order: the ones above, and mitigations with a `nosmt` part (``mds=full,nosmt``).

    :param arguments: iterable of str, such as `split_arguments` gives.
    :returns: list of str.
    """
    return [argument for argument in arguments if _bears_on_smt(argument)]


def _bears_on_smt(argument):
    name, dummy, value = argument.partition('=')
    return name in SMT_ARGUMENTS or 'nosmt' in value.split(',') or (name == 'l1tf' and value == 'full,force')


def split_arguments(text):
    """Split a kernel command line as the kernel does (lib/cmdline.c): at blanks, double quotes keep blanks together, ``--`` ends the kernel's part.

    :returns: list of str with the quotes taken off.
    """
    arguments = []
    current = []
    quoted = False
    for character in text + ' ':
        if character == '"':
            quoted = not quoted
        elif character in ' \t\n\0' and not quoted:
            if current:
                arguments.append(''.join(current))
            current = []
        else:
            current.append(character)
    if current:
        arguments.append(''.join(current))
    return arguments[:arguments.index('--')] if '--' in arguments else arguments


def read(fs):
    """The SMT part of the boot arguments.

    :param fs: `hostfs.HostFs`.
    :returns: ``{'running': [str] or None, 'configured': [str] or None, 'loader': str, 'reboot_required': bool or None}``; None where unknown.
    """
    cmdline = fs.read('proc/cmdline')
    running = None if cmdline is None else smt_arguments(split_arguments(cmdline))
    return {'running': running, 'configured': None, 'loader': 'unknown', 'reboot_required': None}
