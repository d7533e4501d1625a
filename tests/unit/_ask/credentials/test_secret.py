# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A credential has no form in which it could be shown or written; what cannot be one is refused unseen."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import traceback

import pytest
from ansible.errors import AnsibleUndefinedVariable
from ansible.parsing.vault import AnsibleVaultError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.credentials import secret

TEXT = "hidden-word"


@dataclasses.dataclass(frozen=True)
class Holder:
    one: secret.Secret


def given(value):
    return secret.read("smt_x_token", lambda: value)


def test_nothing_shows_it_but_its_own_method():
    one = given(TEXT)
    shown = [repr(one), str(one), f"{one}", f"{one!r:>30}", f"{one:s}", repr(Holder(one)), repr([one]), repr(dir(one))]
    assert one.reveal() == TEXT and TEXT not in " ".join(shown)
    writes = [json.dumps, pickle.dumps, copy.copy, copy.deepcopy, vars, bytes, list, hash, lambda it: "" + it]
    for write in (*writes, lambda it: dataclasses.asdict(Holder(it))):
        with pytest.raises(TypeError) as caught:
            write(one)
        assert TEXT not in str(caught.value)
    try:
        raise ValueError(f"cannot use {one}")
    except ValueError as error:
        found = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert TEXT not in "".join(found.format())
    assert one == given(TEXT) != given("other") and one != TEXT
    assert one and not secret.Secret() and not given(None) and not given("")


def test_what_can_be_typed_is_kept_without_the_newline_of_a_file():
    class Encrypted:
        """As Ansible has it that decrypts late."""

        __ENCRYPTED__ = True

        def __str__(self):
            return value + end

    for value in ("pass word", " both ends ", "ü€'\"{{x}}\\", "x" * 32_000):
        for end in ("", "\n", "\r\n\n"):
            assert given(value + end).reveal() == given(Encrypted()).reveal() == value


NOT_SHOWN = "it must be a text, in quotes (its value is not shown)"
LINE = "smt_x_token has a line break or another character in it that cannot be printed (its value is not shown)"
VAULT = "smt_x_token cannot be decrypted: give the password of the vault"
UNDEFINED = "smt_x_token has a variable in it that is not defined, or only by "


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([TEXT], f"smt_x_token is a list: {NOT_SHOWN}"),
        ({"a": TEXT}, f"smt_x_token is a mapping: {NOT_SHOWN}"),
        (4242424242, f"smt_x_token is a number: {NOT_SHOWN}"),
        (True, f"smt_x_token is true or false: {NOT_SHOWN}"),
        (TEXT.encode(), f"smt_x_token is no text: {NOT_SHOWN}"),
        (" \n", "smt_x_token is blank: is the file that it comes from empty?"),
        *((f"{TEXT}{one}{TEXT}", LINE) for one in ("\n", "\r", "\0", "\udc80", "\u200b")),
        (TEXT * 10_000, "smt_x_token has 110000 characters, more than 32768"),
        (AnsibleUndefinedVariable(f"{TEXT} is undefined"), UNDEFINED),
        (AnsibleVaultError(f"no password for {TEXT}"), VAULT),
        (ValueError(TEXT), "smt_x_token is no valid template, or a lookup in it failed; if "),
    ],
    ids=range(15),
)
def test_what_is_no_secret_is_refused_without_showing_it(value, said):
    def get():
        if isinstance(value, Exception):
            raise value
        return value

    with pytest.raises(secret.SecretError) as caught:
        secret.read("smt_x_token", get)
    assert str(caught.value).startswith(said) and TEXT not in str(caught.value)
    assert caught.value.__cause__ is None and (caught.value.__suppress_context__ or not isinstance(value, Exception))


def test_each_form_in_which_it_is_repeated_is_taken_out():
    odd = given('a"b\\c/ü')
    assert odd.hide(json.dumps({"said": 'a"b\\c/ü'})) == '{"said": "(a secret)"}'
    assert odd.hide("query=a%22b%5Cc%2F%C3%BC") == "query=(a secret)"
    assert odd.hide(f"header {odd.reveal()!r}") == "header '(a secret)'"
    assert secret.Secret().hide("as it is") == "as it is"
