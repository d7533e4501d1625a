# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments with grub-mkconfig, which generates grub.cfg from settings that a shell reads:
what the backends for Debian and SUSE share.

The settings get a shell script that removes arguments from the administrator's variables and puts ours in front. It
contains only fixed text and arguments from the module `arguments`; it runs no other program, evaluates nothing, and
keeps every other byte of the variables.

The arguments go into GRUB_CMDLINE_LINUX, which reaches all entries of 10_linux; GRUB_CMDLINE_LINUX_DEFAULT does not
reach those for recovery.
"""

import collections
import os

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    entries as boot_entries,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base, transaction
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends.base import BootLoaderError, TextChange

VARIABLES = ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT", "GRUB_CMDLINE_LINUX_RECOVERY")

_SCRIPT = r"""threadwise_smt_rest() (
    blank=' ' tab='	' newline='
' return="$(printf '\r')"
    text="$1 " rest='' quoted=''
    while [ -n "$text" ]; do
        word="${text%%%%[$blank$tab$newline$return]*}"
        text="${text#"$word"}"
        after="${text#?}"
        separator="${text%%"$after"}"
        text="$after"
        if [ -z "$quoted" ]; then
            case "$word" in
                %(removed)s) continue ;;%(vectors)s%(parts)s
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

# Reads files as grub-mkconfig does, an empty name standing for the first argument.
_SHOW = r"""set -e
exec 3>&1 >/dev/null
threadwise_smt_own="$1"
shift
for threadwise_smt_file in "$@"; do
    if [ -n "$threadwise_smt_file" ]; then . "$threadwise_smt_file"; else eval "$threadwise_smt_own"; fi
    printf '%s\0' "${GRUB_CMDLINE_LINUX-}" "${GRUB_CMDLINE_LINUX_DEFAULT-}" "${GRUB_CMDLINE_LINUX_RECOVERY-}" >&3
done
"""


def shell_text(desired: boot_arguments.DesiredArguments) -> str:
    """Return the shell script that sets the variables as desired."""
    patterns = [boot_arguments.MITIGATIONS_NOSMT_ARGUMENT, *desired.removed_arguments] + [
        pattern for name in desired.removed_names for pattern in (_shell_name(name), _shell_name(name) + "=*")
    ]
    return _SCRIPT % {
        "removed": " | ".join(patterns),
        "parts": _PARTS if desired.removes_parts else "",
        "vectors": (
            _VECTORS
            % {
                "ours": desired.mitigations,
                "others": " | ".join(f"'{part}'" for part in desired.dropped_parts),
            }
            if desired.keeps_vectors
            else ""
        ),
        "assignments": "\n".join(f'{name}="$(threadwise_smt_rest "${{{name}-}}")"' for name in VARIABLES),
        "ours": (
            f'GRUB_CMDLINE_LINUX="{" ".join(desired.arguments)}${{GRUB_CMDLINE_LINUX:+ $GRUB_CMDLINE_LINUX}}"\n'
            if desired.arguments
            else ""
        ),
    }


def _shell_name(name: str) -> str:
    return name.replace("_", "[_-]")


class GrubMkconfig(backend_base.Backend):
    """A backend whose settings are read by grub-mkconfig, its `tool`.

    Subclasses for Debian and SUSE implement the methods that raise NotImplementedError.
    """

    # ---- differences between distributions

    cfg_path: str
    """The path of grub.cfg, below the sysroot."""

    settings_path: str
    """The settings file that is written, below the sysroot."""

    def _settings(self, desired: boot_arguments.DesiredArguments, is_needed: bool) -> "tuple[str | None, str | None]":
        """Return the current and the desired text of the settings file; None stands for no file."""
        raise NotImplementedError

    def _with_own(self, settings: "str | None", own: "str | None") -> "str | None":
        """Return the text of the settings file with another part of ours; None stands for no file, and for no part."""
        raise NotImplementedError

    def _own(self, settings: "str | None") -> "str | None":
        """Return our part of the text of the settings file."""
        raise NotImplementedError

    def _administrators_files(self) -> "list[str]":
        """Return the full paths of the settings files without ours, in the order in which grub-mkconfig reads them."""
        raise NotImplementedError

    # ---- the interface

    def entries(self) -> "list[boot_entries.Entry]":
        """Return the entries that grub-mkconfig generates from the host's settings."""
        text = self._fs.read(self.cfg_path, host_files.LARGE)
        if text is None:
            raise BootLoaderError(
                f"{self._fs.path(self.cfg_path)} cannot be read. Check that the file system with /boot is mounted"
            )
        entries = boot_entries.parse_grub_cfg(text)
        generated = [entry for entry in entries if entry.generated]
        if not generated:
            raise BootLoaderError(
                f"{self._fs.path(self.cfg_path)} has no entry from 10_linux, so it was not generated by"
                f" {self._fs.path(self._tool)}. Add the argument there by hand"
            )
        return generated

    def to_remove(self, desired: boot_arguments.DesiredArguments) -> "list[backend_base.FoundArgument]":
        """Return the arguments to remove from the administrator's variables, each once,
        with the first file that sets it.
        """
        first: dict[str, str] = {}
        last: list[str] = []
        for name, values in self._values():
            last = [argument for value in values for argument in boot_arguments.split_arguments(value)]
            for argument in last:
                first.setdefault(argument, name)
        # An argument that a later file removes again has no effect.
        return [
            {"argument": argument, "where": name}
            for argument, name in first.items()
            if argument in last and boot_arguments.remainder(argument, desired) != argument
        ]

    def pending(self, desired: boot_arguments.DesiredArguments) -> "list[backend_base.TextChange]":
        """Return the changes; see `base.Backend`."""
        now, text = self._settings(desired, self._is_needed(desired))
        settings = self._fs.path(self.settings_path)
        changes = [TextChange(settings, now, text)] if now != text else []
        own = self._own(text)
        if own is not None:
            self._refuse_later_files(own, desired)
        changes += [
            change
            for change in [backend_base.entries_change(self._fs.path(self.cfg_path), self.entries(), desired)]
            if change is not None
        ]
        self._warn_of_others(desired)
        return changes + transaction.leftovers(self._fs, (self.settings_path, self.cfg_path))

    def apply(self, desired: boot_arguments.DesiredArguments) -> None:
        """Make the changes: write the settings, generate a new grub.cfg in the same directory, check it,
        and rename it over the old one.

        A run that is killed before the rename leaves the old grub.cfg and the new settings, which take effect with the
        next run or update-grub.
        """
        _dummy, text = self._settings(desired, self._is_needed(desired))
        self._write(text, desired)

    def texts(self) -> "dict[str, str | None]":
        """Return our part of the settings; see `base.Backend`.

        The administrator's are not written, and grub.cfg is generated from both.
        """
        return {self.settings_path: self._own(transaction.read_exact(self._fs, self.settings_path))}

    def changes_back(self, before: backend_base.Texts) -> "list[backend_base.TextChange]":
        """Return the changes of the settings; see `base.Backend`."""
        now, text = self._settings_back(before)
        return [TextChange(self._fs.path(self.settings_path), now, text)] if now != text else []

    def put_back(self, before: backend_base.Texts) -> None:
        """Make these changes, and generate grub.cfg; see `base.Backend`."""
        self._write(self._settings_back(before)[1], None)

    # ---- steps

    def _settings_back(self, before: backend_base.Texts) -> "tuple[str | None, str | None]":
        now = transaction.read_exact(self._fs, self.settings_path)
        return now, self._with_own(now, before.get(self.settings_path))

    def _write(self, settings: "str | None", desired: "boot_arguments.DesiredArguments | None") -> None:
        """Write the settings and a new grub.cfg; where arguments are desired, it has to have them."""
        target, new = transaction.resolved_and_hidden(self._fs, self.cfg_path, transaction.NEW_SUFFIX)
        try:
            with transaction.Undo(self._fs) as undo:
                undo.back_up(self.settings_path)
                # A rename that cannot be flushed fails after it was made.
                undo.back_up(self.cfg_path)
                transaction.replace(self._fs, self.settings_path, settings)
                self._generate(new)
                self._keep_tuned(new)
                self._replace_cfg(new, target, desired)
        finally:
            transaction.remove_quietly(new)
            transaction.remove_quietly(new + ".new")

    def _is_needed(self, desired: boot_arguments.DesiredArguments) -> bool:
        return bool(desired.arguments or self.to_remove(desired))

    def _values(self, own: "str | None" = None) -> "list[tuple[str, list[str]]]":
        """Return each of the administrator's files with the values that `VARIABLES` have after a shell has read it.

        Args:
            own: our part of the settings, to be read in its place, under an empty name; None to leave it out.
        """
        files = self._administrators_files()
        if own is not None:
            files.insert(self._place(files), "")
        if not files:
            return []
        names = [self._file_name(name) if name else "" for name in files]
        try:
            output = transaction.run_tool(self._fs, ["/bin/sh", "-c", _SHOW, "sh", own or "", *files])
        except BootLoaderError as error:
            raise BootLoaderError(
                f"The settings of grub cannot be read by a shell ({', '.join(filter(None, names))}): {error.reason}"
            ) from error
        values = output.split("\0")
        width = len(VARIABLES)
        if len(values) <= width * len(files):
            raise BootLoaderError(
                f"{names[len(values) // width]} ends the shell that reads it (exit), so that grub-mkconfig makes no"
                " grub.cfg: take that out of the file"
            )
        return [(name, values[index * width : (index + 1) * width]) for index, name in enumerate(names)]

    def _place(self, files: "list[str]") -> int:
        """Return how many of the administrator's files are read before our part."""
        return len(files)

    def _refuse_later_files(self, own: str, desired: boot_arguments.DesiredArguments) -> None:
        """Raise BootLoaderError where a file that is read after our part sets other arguments than the desired ones,
        or the shell cannot read all of them together.
        """
        read = self._values(own)
        place = [name for name, _values in read].index("")
        for (name, (every, normal, recovery)), (_before, earlier) in zip(read[place + 1 :], read[place:]):
            texts = (f"{every} {normal}", f"{recovery} {every}") if [every, normal, recovery] != earlier else ()
            wrong = {
                fault: None
                for text in texts
                for fault in boot_arguments.differences(boot_arguments.split_arguments(text), desired)
            }
            if wrong:
                raise BootLoaderError(
                    f"{name} is read after {self._fs.path(self.settings_path)} and sets arguments anew:"
                    f" {', '.join(wrong)}. Change it there, or give the file a name that comes before"
                )

    def _file_name(self, name: str) -> str:
        return name

    def _generate(self, new: str) -> None:
        transaction.remove_quietly(new)
        transaction.run_tool(self._fs, [self._fs.path(self._tool), "-o", new])

    def _keep_tuned(self, new: str) -> None:
        """Give the new grub.cfg the variables of TuneD that the present one has."""
        try:
            with open(new, "r+", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                made = stream.read(host_files.LARGE)
                text = boot_entries.with_tuned_of(self._fs.read(self.cfg_path, host_files.LARGE) or "", made)
                if text != made:
                    stream.seek(0)
                    stream.write(text)
                    stream.truncate()
        except OSError as error:
            raise BootLoaderError(f"{new} cannot be written: {error.strerror}") from error

    def _replace_cfg(self, new: str, target: str, desired: "boot_arguments.DesiredArguments | None") -> None:
        try:
            self._check(new, desired)
            transaction.install(new, target, transaction.boots(self._fs, target))
        except OSError as error:
            raise BootLoaderError(f"{target} cannot be replaced: {error.strerror}") from error

    def _check(self, new: str, desired: "boot_arguments.DesiredArguments | None") -> None:
        """Raise BootLoaderError unless the new grub.cfg is valid for grub, has the desired arguments in each entry,
        and has lost no entry.
        """
        old_text = self._fs.read(self.cfg_path, host_files.LARGE) or ""
        with open(new, encoding="utf-8", errors="replace") as stream:
            new_text = stream.read(host_files.LARGE)
        script_check = self._tool.replace("mkconfig", "script-check").replace("/sbin/", "/bin/")
        transaction.run_tool(self._fs, [self._fs.path(script_check), new])
        entries = [entry for entry in boot_entries.parse_grub_cfg(new_text) if entry.generated]
        if not entries:
            raise BootLoaderError(f"{self._fs.path(self._tool)} generated no entry for any kernel")
        differences = "" if desired is None else backend_base.entry_differences(entries, desired)
        if differences:
            raise BootLoaderError(
                f"The new grub.cfg would have wrong arguments: {differences}. A script sets them by itself: look for"
                f" them in {self._fs.path('etc/grub.d')}"
            )
        lost = self._lost_sections(old_text, new_text) + self._lost_entries(old_text, entries)
        if lost:
            raise BootLoaderError(
                "The new grub.cfg would lose parts of the current one: {}. If that is intended, run update-grub"
                " yourself first".format("; ".join(lost[:5]))
            )

    def _lost_sections(self, old_text: str, new_text: str) -> "list[str]":
        lost = boot_entries.complete_sections(old_text) - boot_entries.complete_sections(new_text)
        return [
            f"the section of {script}"
            for script in sorted(lost)
            if os.access(self._fs.path(script.lstrip("/")), os.X_OK)
        ]

    def _lost_entries(self, old_text: str, entries: "list[boot_entries.Entry]") -> "list[str]":
        """Return what old entries have and new ones have not. An entry may have several lines that boot, such as those
        of Ubuntu's cloud images, which try to boot without an initial RAM disk first.
        """
        old = [entry for entry in boot_entries.parse_grub_cfg(old_text) if entry.generated]
        before, now = (
            collections.Counter((entry.title, os.path.basename(entry.kernel), entry.initrd) for entry in group)
            for group in (old, entries)
        )
        lost = []
        for title, image in dict.fromkeys((title, image) for title, image, _initrd in before):
            if self._fs.status("boot/" + image) is None:
                continue
            if not now[title, image, True] and not now[title, image, False]:
                lost.append(f"the entry {title!r}")
            elif now[title, image, True] < before[title, image, True]:
                lost.append(f"the initial RAM disk of {title!r}")
        return lost

    def _warn_of_others(self, desired: boot_arguments.DesiredArguments) -> None:
        text = self._fs.read(self.cfg_path, host_files.LARGE) or ""
        others = [
            entry
            for entry in boot_entries.parse_grub_cfg(text)
            if not entry.generated and boot_arguments.differences(entry.arguments, desired)
        ]
        if others:
            self.warnings.append(
                "These entries were written by hand or belong to another system, so they keep their arguments:"
                f" {', '.join(repr(entry.title) for entry in others[:5])}."
            )
        if boot_entries.has_xen(text):
            self.warnings.append(
                f"{self._fs.path(self.cfg_path)} also boots Xen, which has its own smt= argument in GRUB_CMDLINE_XEN:"
                " that argument was not changed."
            )
