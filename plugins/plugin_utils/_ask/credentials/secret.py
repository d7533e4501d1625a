# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials: they are checked where they enter, have no form that could be shown or written,
and are taken out of what others say.
"""

from __future__ import annotations

import hmac
import json
import typing as t
import urllib.parse

from ansible.errors import AnsibleUndefinedVariable
from ansible.parsing.vault import AnsibleVaultError

# What web servers accept as a header, by their defaults, is a fourth of it.
MAX_CHARACTERS = 32 * 1024
SHOWN = "(a secret)"
_NAMES = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}


class SecretError(Exception):
    """A credential cannot be used. The message names the variable and the reason, and has nothing of the value."""


class Secret:
    """A text that only `reveal` gives: as a text, in a message, in JSON or pickled it is not there.

    Args:
        text: the text; empty for none.
    """

    __slots__ = ("_reveal",)

    def __init__(self, text: str = "") -> None:
        # No attribute has the text itself, for whoever shows all attributes of an object.
        self._reveal: t.Callable[[], str] = lambda: text

    def reveal(self) -> str:
        """Return the text, for the one call that needs it."""
        return self._reveal()

    def hide(self, text: str) -> str:
        """Return a text without this secret, in the forms in which servers and errors repeat it."""
        plain = self.reveal()
        forms = {plain, repr(plain)[1:-1], json.dumps(plain)[1:-1], urllib.parse.quote(plain, safe="")}
        for form in sorted(forms - {""}, key=len, reverse=True):
            text = text.replace(form, SHOWN)
        return text

    def __bool__(self) -> bool:
        """Return whether there is one."""
        return bool(self.reveal())

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same secret, in a time that does not depend on where they differ."""
        return isinstance(other, Secret) and hmac.compare_digest(
            self.reveal().encode(errors="surrogatepass"), other.reveal().encode(errors="surrogatepass")
        )

    def __repr__(self) -> str:
        """Return what it is, not its text."""
        return SHOWN

    def __format__(self, _how: str) -> str:
        """Return what it is, not its text."""
        return SHOWN

    def __reduce_ex__(self, _protocol: t.SupportsIndex) -> t.NoReturn:
        """Refuse to be copied or written."""
        raise TypeError("a secret is neither copied nor written")


def read(name: str, get: t.Callable[[], t.Any]) -> Secret:
    """Return a credential, or another text that may have one in it, as a variable has it.

    The newline at the end of a file is taken off. What Ansible says of a template that fails repeats the template,
    which may be the credential itself: so it is not passed on.

    Args:
        name: of the variable, for messages.
        get: returns its value; None for none.

    Raises:
        SecretError: the variable cannot be read, or is not a text of printable characters.
    """
    try:
        given = get()
        # Before ansible-core 2.19, what is encrypted with ansible-vault is no str, and is decrypted here.
        given = str(given) if getattr(given, "__ENCRYPTED__", False) else given
    except AnsibleUndefinedVariable:
        raise SecretError(
            f"{name} has a variable in it that is not defined, or only by facts of hosts, which do not count here; if"
            " {{ or {% is in the value itself, mark it with !unsafe"
        ) from None
    except AnsibleVaultError:
        raise SecretError(f"{name} cannot be decrypted: give the password of the vault with --vault-id") from None
    except Exception:
        raise SecretError(
            f"{name} is no valid template, or a lookup in it failed; if {{{{ or {{% is in the value itself, mark it"
            " with !unsafe"
        ) from None
    if given is None:
        return Secret()
    if not isinstance(given, str):
        kind = next((words for python_type, words in _NAMES.items() if isinstance(given, python_type)), "no text")
        raise SecretError(f"{name} is {kind}: it must be a text, in quotes (its value is not shown)")
    if len(given) > MAX_CHARACTERS:
        raise SecretError(f"{name} has {len(given)} characters, more than {MAX_CHARACTERS}")
    plain = given.rstrip("\r\n")
    if given and not plain.strip():
        raise SecretError(f"{name} is blank: is the file that it comes from empty?")
    # A lone surrogate is not printable either, and cannot be encoded.
    if any(not character.isprintable() for character in plain):
        raise SecretError(
            f"{name} has a line break or another character in it that cannot be printed (its value is not shown)"
        )
    return Secret(str(plain))
