# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""grub.cfg as grub-mkconfig makes it from settings that a shell reads: what Debian's and SUSE's backends share.

The settings get a piece of shell that takes words out of the administrator's variables and puts ours in front. It holds nothing but fixed text
and arguments that `arguments` made; it needs no other program, evaluates nothing, and leaves every other byte of the variables as it is.

The variable is GRUB_CMDLINE_LINUX: all entries of 10_linux get it, also those for recovery, which GRUB_CMDLINE_LINUX_DEFAULT does not reach.
"""

from __future__ import annotations

import os

from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments, entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import base as loader_base
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders.base import BootLoaderError, Change
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

VARIABLES = ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT", "GRUB_CMDLINE_LINUX_RECOVERY")

_SCRIPT = r"""threadwise_smt_rest() (
    blank=' ' tab='	' newline='
'
    text="$1 " rest='' quoted=''
    while [ -n "$text" ]; do
        word="${text%%%%[$blank$tab$newline]*}"
        text="${text#"$word"}"
        after="${text#?}"
        separator="${text%%"$after"}"
        text="$after"
        if [ -z "$quoted" ]; then
            case "$word" in
                %(dropped)s) continue ;;%(vectors)s%(parts)s
            esac
        fi
        quotes="$word"
        while :; do
            case "$quotes" in
                *\"*) quotes="${quotes#*\"}"; if [ -n "$quoted" ]; then quoted=''; else quoted=yes; fi ;;
                *) break ;;
            esac
        done
        rest="$rest$word$separator"
    done
    printf '%%s\n' "${rest%% }"
)
%(assignments)s
%(ours)sunset -f threadwise_smt_rest
"""

_PARTS = r"""
                l1tf=full | l1tf=full,*) continue ;;
                *=*,nosmt | *=*,nosmt[,\;]*)
                    while :; do
                        case "$word" in
                            *,nosmt) word="${word%,nosmt}" ;;
                            *,nosmt,*) word="${word%%,nosmt,*},${word#*,nosmt,}" ;;
                            *,nosmt\;*) word="${word%%,nosmt\;*};${word#*,nosmt\;}" ;;
                            *) break ;;
                        esac
                    done ;;"""

_VECTORS = r"""
                mitigations | mitigations=*)
                    parts="${word#mitigations}" word='%(ours)s'
                    parts="${parts#=},"
                    while [ -n "$parts" ]; do
                        case "${parts%%%%[,\;]*}" in
                            %(others)s) ;;
                            *) word="$word,${parts%%%%[,\;]*}" ;;
                        esac
                        parts="${parts#*[,\;]}"
                    done
                    [ "$word" != '%(ours)s' ] || continue ;;"""

_SHOW = r"""set -e
exec 3>&1 >/dev/null
for threadwise_smt_file in "$@"; do
    . "$threadwise_smt_file"
    printf '%s\0' "${GRUB_CMDLINE_LINUX-}" "${GRUB_CMDLINE_LINUX_DEFAULT-}" "${GRUB_CMDLINE_LINUX_RECOVERY-}" >&3
done
"""


def shell_text(wanted):
    """The piece of shell (str) that makes the variables as wanted."""
    patterns = [boot_arguments.OURS] + [pattern for name in wanted.dropped for pattern in (_shell_name(name), _shell_name(name) + "=*")]
    return _SCRIPT % {
        "dropped": " | ".join(patterns),
        "parts": _PARTS if wanted.without_parts else "",
        "vectors": _VECTORS
        % {"ours": boot_arguments.OURS, "others": " | ".join(f"'{part}'" for part in (*boot_arguments.GLOBAL_PARTS, boot_arguments.NO_CROSS_THREAD))}
        if wanted.keeps_vectors
        else "",
        "assignments": "\n".join(f'{name}="$(threadwise_smt_rest "${{{name}-}}")"' for name in VARIABLES),
        "ours": f'GRUB_CMDLINE_LINUX="{" ".join(wanted.arguments)}${{GRUB_CMDLINE_LINUX:+ $GRUB_CMDLINE_LINUX}}"\n' if wanted.arguments else "",
    }


def _shell_name(name):
    return name.replace("_", "[_-]")


class GrubMkconfig:
    """A backend whose settings are read by grub-mkconfig. What differs between Debian and SUSE is in the methods that raise NotImplementedError.

    Args:
        fs: `host_files.HostFs`.
        loader: `boot_entries.Loader`.
    """

    def __init__(self, fs, loader):
        self._fs = fs
        self._tool = loader.tool
        self._cfg = boot_entries.grub_cfg(loader.name)
        self.name = loader.name
        self.warnings = []

    # ---- what differs

    settings_path = None
    """The file that is written."""

    def _settings(self, wanted, is_needed):
        """(text now, text wanted) of the settings' file; None is no file."""
        raise NotImplementedError

    def _administrators_files(self):
        """Full paths (list of str), in the order in which grub-mkconfig reads them, of the settings without ours."""
        raise NotImplementedError

    # ---- the interface

    def entries(self):
        """Those that grub-mkconfig makes from the host's settings."""
        text = self._fs.read(self._cfg, host_files.LARGE)
        if text is None:
            raise BootLoaderError(f"{self._fs.path(self._cfg)} cannot be read. Is the file system with /boot mounted?")
        entries = boot_entries.parse_grub_cfg(text)
        generated = [entry for entry in entries if entry.generated]
        if not generated:
            raise BootLoaderError(
                f"{self._fs.path(self._cfg)} has no entry made by 10_linux: it was written by other means than {self._fs.path(self._tool)}. Add the argument there by hand"
            )
        return generated

    def found(self, wanted):
        """What drops out of the administrator's variables, each argument once, with the file that brings it in."""
        first = {}
        last = []
        for name, values in self._values():
            last = [argument for value in values for argument in boot_arguments.split_arguments(value)]
            for argument in last:
                first.setdefault(argument, name)
        # What a later file has taken away again does no harm.
        return [
            {"argument": argument, "where": name}
            for argument, name in first.items()
            if argument in last and boot_arguments.remainder(argument, wanted) != argument
        ]

    def pending(self, wanted):
        """See `base`."""
        now, text = self._settings(wanted, self._is_needed(wanted))
        settings = self._fs.path(self.settings_path)
        changes = [Change(settings, now, text)] if now != text else []
        changes += [change for change in [loader_base.entries_change(self._fs.path(self._cfg), self.entries(), wanted)] if change is not None]
        self._warn_of_others(wanted)
        return changes + loader_base.leftovers(self._fs, (self.settings_path, self._cfg))

    def apply(self, wanted):
        """See `base`. The order: settings, a new grub.cfg beside the old one, checked, renamed over it.

        Killed before the rename it leaves the old grub.cfg and the new settings, which the next run, or the next update-grub, puts into effect.
        """
        _dummy, text = self._settings(wanted, self._is_needed(wanted))
        target, new = loader_base.beside(self._fs, self._cfg, loader_base.NEW)
        try:
            with loader_base.Undo(self._fs) as undo:
                undo.keep(self.settings_path)
                loader_base.replace(self._fs, self.settings_path, text)
                self._generate(new)
                self._check(new, wanted)
                loader_base.install(new, target)
        except OSError as trouble:
            raise BootLoaderError(f"{target} cannot be put in place: {trouble.strerror}. Nothing was changed") from trouble
        finally:
            loader_base.remove_quietly(new)
            loader_base.remove_quietly(new + ".new")

    # ---- steps

    def _is_needed(self, wanted):
        return bool(wanted.arguments or self.found(wanted))

    def _values(self):
        """[(file, values of `VARIABLES`)] after each of the administrator's files, as a shell reads them."""
        files = self._administrators_files()
        if not files:
            return []
        try:
            output = loader_base.run_tool(self._fs, ["/bin/sh", "-c", _SHOW, "sh", *files])
        except BootLoaderError as trouble:
            raise BootLoaderError(f"The settings of grub cannot be read by a shell ({', '.join(files)}): {trouble}") from trouble
        values = output.split("\0")
        width = len(VARIABLES)
        return [(self._shown(name), values[index * width : (index + 1) * width]) for index, name in enumerate(files)]

    def _shown(self, name):
        return name

    def _generate(self, new):
        loader_base.remove_quietly(new)
        loader_base.run_tool(self._fs, [self._fs.path(self._tool), "-o", new])

    def _check(self, new, wanted):
        """Raises BootLoaderError unless the new grub.cfg is whole, is understood by grub, has ours in each entry and has lost no entry."""
        old_text = self._fs.read(self._cfg, host_files.LARGE) or ""
        with open(new, encoding="utf-8", errors="replace") as stream:
            new_text = stream.read(host_files.LARGE)
        script_check = self._tool.replace("mkconfig", "script-check").replace("/sbin/", "/bin/")
        loader_base.run_tool(self._fs, [self._fs.path(script_check), new])
        entries = [entry for entry in boot_entries.parse_grub_cfg(new_text) if entry.generated]
        if not entries:
            raise BootLoaderError(f"{self._fs.path(self._tool)} made no entry for any kernel. Nothing was changed")
        faulty = loader_base.faulty_entries(entries, wanted)
        if faulty:
            raise BootLoaderError(
                "The new grub.cfg would not be as wanted: {}. Something that is read after {} sets it: look for it in {}. Nothing was changed".format(
                    faulty, self._fs.path(self.settings_path), self._fs.path("etc/default")
                )
            )
        lost = self._lost_sections(old_text, new_text) + self._lost_entries(old_text, entries)
        if lost:
            raise BootLoaderError(
                "The new grub.cfg would lose something that the present one has: {}. Run update-grub yourself first, if that is meant. "
                "Nothing was changed".format("; ".join(lost[:5]))
            )

    def _lost_sections(self, old_text, new_text):
        lost = boot_entries.complete_sections(old_text) - boot_entries.complete_sections(new_text)
        return [f"the part made by {script}" for script in sorted(lost) if os.access(self._fs.path(script.lstrip("/")), os.X_OK)]

    def _lost_entries(self, old_text, entries):
        kept = {(entry.title, os.path.basename(entry.kernel)): entry for entry in entries}
        lost = []
        for entry in boot_entries.parse_grub_cfg(old_text):
            image = os.path.basename(entry.kernel)
            if not entry.generated or self._fs.status("boot/" + image) is None:
                continue
            new = kept.get((entry.title, image))
            if new is None:
                lost.append(f"the entry {entry.title!r}")
            elif entry.initrd and not new.initrd:
                lost.append(f"the initial RAM disk of {entry.title!r}")
        return lost

    def _warn_of_others(self, wanted):
        text = self._fs.read(self._cfg, host_files.LARGE) or ""
        others = [entry for entry in boot_entries.parse_grub_cfg(text) if not entry.generated and boot_arguments.faults(entry.arguments, wanted)]
        if others:
            self.warnings.append(
                "These entries are written by hand or belong to another system, and keep their arguments: {}.".format(
                    ", ".join(repr(entry.title) for entry in others[:5])
                )
            )
        if boot_entries.has_xen(text):
            self.warnings.append(f"{self._fs.path(self._cfg)} also boots Xen, which has an argument smt= of its own in GRUB_CMDLINE_XEN: that was not changed.")
