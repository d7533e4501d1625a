# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A credential has no form in which it could be shown or written;
what cannot be one is refused without a word of it.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import traceback

import pytest
from ansible.errors import AnsibleUndefinedVariable
from ansible.parsing.vault import AnsibleVaultError
from ansible_collections.threadwise.smt.plugins.plugin_utils._credentials import secret

TEXT = "hidden-word"


@dataclasses.dataclass(frozen=True)
class Holder:
    one: secret.Secret


def given(value):
    return secret.read("smt_x_token", lambda: value)


def test_nothing_shows_it_but_its_own_method():
    one = given(TEXT)
    shown = [
        repr(one),
        str(one),
        f"{one}",
        f"{one!r:>30}",
        f"{one:s}",
        ascii(one),
        repr(Holder(one)),
        repr([one]),
        repr(dir(one)),
    ]
    assert one.reveal() == TEXT and TEXT not in " ".join(shown)
    for write in (
        json.dumps,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda it: dataclasses.asdict(Holder(it)),
        vars,
        bytes,
        list,
        hash,
        lambda it: "" + it,
    ):
        with pytest.raises(TypeError) as caught:
            write(one)
        assert TEXT not in str(caught.value)


def test_a_traceback_does_not_show_it():
    def use(of):
        raise ValueError(f"cannot use {of}")

    try:
        use(given(TEXT))
    except ValueError as error:
        found = traceback.TracebackException.from_exception(error, capture_locals=True)
        # The test's own text is in its globals, not among the locals of `use`.
        assert TEXT not in "".join(found.format())


def test_secrets_can_be_compared_and_asked_for():
    assert given(TEXT) == given(TEXT) != given("other") and given(TEXT) != TEXT
    assert given(TEXT) and not secret.Secret() and not given(None) and not given("")


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n", "\r"])
def test_the_newline_of_a_file_is_no_part_of_it(end):
    assert given(TEXT + end).reveal() == TEXT


@pytest.mark.parametrize("value", ["pass word", " both ends ", "ü€'\"{{x}}\\", "x" * 32 * 1024])
def test_what_can_be_typed_is_kept_as_it_is(value):
    assert given(value).reveal() == value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([TEXT], "smt_x_token is a list: it must be a text, in quotes (its value is not shown)"),
        ({"a": TEXT}, "smt_x_token is a mapping: it must be a text, in quotes (its value is not shown)"),
        (4242424242, "smt_x_token is a number: it must be a text, in quotes (its value is not shown)"),
        (4.25, "smt_x_token is a number: it must be a text, in quotes (its value is not shown)"),
        (True, "smt_x_token is true or false: it must be a text, in quotes (its value is not shown)"),
        (TEXT.encode(), "smt_x_token is no text: it must be a text, in quotes (its value is not shown)"),
        (" \n", "smt_x_token is blank: is the file that it comes from empty?"),
        (
            f"{TEXT}\n{TEXT}",
            "smt_x_token has a line break or another character in it that cannot be printed (its value is not shown)",
        ),
        (
            f"{TEXT}\r{TEXT}",
            "smt_x_token has a line break or another character in it that cannot be printed (its value is not shown)",
        ),
        (
            f"{TEXT}\0",
            "smt_x_token has a line break or another character in it that cannot be printed (its value is not shown)",
        ),
        (
            f"{TEXT}\udc80",
            "smt_x_token has a line break or another character in it that cannot be printed (its value is not shown)",
        ),
        (
            f"{TEXT}\u200b",
            "smt_x_token has a line break or another character in it that cannot be printed (its value is not shown)",
        ),
        (TEXT * 10_000, "smt_x_token has 110000 characters, more than 32768"),
    ],
)
def test_what_is_no_secret_is_refused_without_showing_it(value, said):
    with pytest.raises(secret.SecretError) as caught:
        given(value)
    assert str(caught.value) == said and caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (AnsibleUndefinedVariable(f"{TEXT} is undefined"), "has a variable in it that is not defined"),
        (AnsibleVaultError(f"no password for {TEXT}"), "cannot be decrypted: give the password of the vault"),
        (ValueError(TEXT), "is no valid template, or a lookup in it failed"),
    ],
)
def test_what_ansible_says_of_a_template_is_not_passed_on(error, said):
    def get():
        raise error

    with pytest.raises(secret.SecretError, match=said) as caught:
        secret.read("smt_x_token", get)
    assert TEXT not in str(caught.value) and caught.value.__cause__ is None and caught.value.__suppress_context__


def test_what_ansible_decrypts_late_is_read():
    class Encrypted:
        __ENCRYPTED__ = True

        def __str__(self):
            return TEXT

    assert given(Encrypted()).reveal() == TEXT


@pytest.mark.parametrize("said", [TEXT, f"header b'Bearer {TEXT}'", json.dumps(TEXT + '"'), repr(TEXT + '"')])
def test_what_others_say_loses_it(said):
    assert TEXT not in given(TEXT).hide(said)


def test_each_form_in_which_it_is_repeated_is_taken_out():
    odd = given('a"b\\c/ü')
    assert odd.hide(json.dumps({"said": 'a"b\\c/ü'})) == '{"said": "(a secret)"}'
    assert odd.hide("query=a%22b%5Cc%2F%C3%BC") == "query=(a secret)"
    assert secret.Secret().hide("as it is") == "as it is"
