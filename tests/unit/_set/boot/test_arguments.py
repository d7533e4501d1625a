# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments of desired SMT states, and the shell script for grub compared with them."""

from __future__ import annotations

import re
import subprocess

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import arguments as boot_arguments, mitigations
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import grub_mkconfig
from hypothesis import given, settings, strategies as st

DESIRED = [
    *map(boot_arguments.desired_smt, ("enabled", "disabled", "forced_off", "mitigations_nosmt")),
    boot_arguments.desired_maxcpus(4),
    *(mitigations.combined(None, chosen, is_smt_on=False) for chosen in mitigations.ARGUMENTS),
]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("quiet nosmt", "quiet"),
        ("nosmt=force quiet", "quiet"),
        ("maxcpus=4 nr_cpus=4 nosmp possible_cpus=8", ""),
        ("smt=1 smt-enabled=off smt_enabled=off", ""),
        ("mds=full,nosmt tsx_async_abort=full,nosmt", "mds=full tsx_async_abort=full"),
        ("mitigations=auto,nosmt quiet", "quiet"),
        ("mitigations=auto,nosmt;no_user_kernel", "mitigations=auto;no_user_kernel"),
        ("l1tf=full,force l1tf=full", ""),
        ("l1tf=flush,nosmt l1tf=flush", "l1tf=flush l1tf=flush"),
        ("nosmtx=1 xnosmt mitigations=off maxcpu=3", "nosmtx=1 xnosmt mitigations=off maxcpu=3"),
    ],
)
def test_enabled_removes_what_turns_smt_off_and_nothing_else(before, after):
    assert " ".join(boot_arguments.applied(before.split(), boot_arguments.desired_smt("enabled"))) == after


@pytest.mark.parametrize(
    ("smt", "argument"),
    [("disabled", "nosmt"), ("forced_off", "nosmt=force"), ("mitigations_nosmt", "mitigations=auto,nosmt")],
)
def test_an_argument_is_replaced_never_repeated(smt, argument):
    for before in (
        "",
        "nosmt nosmt",
        "nosmt=force nosmt=force",
        "maxcpus=4 nosmt",
        "mitigations=auto,nosmt nosmt=force",
    ):
        after = boot_arguments.applied(f"{before} {argument}".split(), boot_arguments.desired_smt(smt))
        assert after.count(argument) == 1
        assert not any(other in after for other in {"nosmt", "nosmt=force", "maxcpus=4"} - {argument})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "mitigations=auto,no_user_kernel,no_guest_host quiet",
            "mitigations=auto,nosmt mitigations=auto,nosmt,no_user_kernel,no_guest_host quiet",
        ),
        ("mitigations=auto,nosmt,no_user_user", "mitigations=auto,nosmt mitigations=auto,nosmt,no_user_user"),
        (
            "mitigations=off,no_user_user mitigations=,no_guest_guest",
            "mitigations=auto,nosmt mitigations=auto,nosmt,no_user_user mitigations=auto,nosmt,no_guest_guest",
        ),
        ("mitigations=auto,no_cross_thread", "mitigations=auto,nosmt"),
        ("mitigations=auto,no_cross_thread,no_user_user", "mitigations=auto,nosmt mitigations=auto,nosmt,no_user_user"),
        ("mitigations=off mitigations=auto mitigations", "mitigations=auto,nosmt"),
        ("mitigations=auto;no_user_kernel", "mitigations=auto,nosmt mitigations=auto,nosmt,no_user_kernel"),
    ],
)
def test_excluded_attack_vectors_stay_excluded(before, after):
    """Linux 6.17 and later (attack_vector_controls.rst). SMT stays on when the cross-thread vector is excluded."""
    desired = boot_arguments.desired_smt("mitigations_nosmt")
    assert " ".join(boot_arguments.applied(before.split(), desired)) == after
    assert boot_arguments.differences(after.split(), desired) == []
    assert through_shell("dash", desired, before) == after
    back = boot_arguments.applied(after.split(), boot_arguments.desired_smt("enabled"))
    assert [argument.replace("=auto", "") for argument in back] == [
        argument.replace(",nosmt", "").replace("=auto", "")
        for argument in after.split()
        if argument != boot_arguments.MITIGATIONS_NOSMT_ARGUMENT
    ]


def test_maxcpus_and_nosmt_are_never_combined_and_what_needs_no_change_keeps_its_order():
    before = ["nosmt", "mitigations=auto,nosmt", "maxcpus=2", "quiet"]
    assert boot_arguments.applied(before, boot_arguments.desired_maxcpus(4)) == ["maxcpus=4", "quiet"]
    arguments = ["quiet", "nosmt", "splash"]
    assert boot_arguments.applied(arguments, boot_arguments.desired_smt("disabled")) == arguments


@pytest.mark.parametrize(
    "text", ["0", "-1", "4;reboot", "4\nfoo", "'4'", "04", "8193", "9" * 11, "", "True", "4.0", "٤"]
)
def test_an_invalid_number_is_refused_with_the_rule(text):
    with pytest.raises(boot_arguments.BootArgsError, match="whole number from 1 to 8192"):
        boot_arguments.maxcpus_value(text)
    assert [boot_arguments.maxcpus_value(good) for good in ("1", "8192", "one_per_core")] == [1, 8192, "one_per_core"]


def test_an_unknown_state_is_refused_with_a_list_of_the_states():
    with pytest.raises(boot_arguments.BootArgsError, match="enabled, disabled, forced_off, mitigations_nosmt"):
        boot_arguments.desired_smt("off")


def test_quotes_protect_blanks_and_arguments_of_init_are_not_the_kernels():
    assert boot_arguments.split_arguments('a="b nosmt" quiet -- nosmt') == ["a=b nosmt", "quiet"]
    assert boot_arguments.split_arguments("a\rnosmt\v\fro\r\n") == ["a", "nosmt", "ro"]
    assert boot_arguments.split_arguments('"a b"  c\td\n') == ["a b", "c", "d"]
    assert boot_arguments.split_arguments("\n") == []


def test_a_quoted_argument_keeps_its_bytes():
    assert (
        boot_arguments.rewritten_text('dyndbg="file a nosmt  +p" nosmt  quiet', boot_arguments.desired_smt("enabled"))
        == 'dyndbg="file a nosmt  +p" quiet'
    )


# ---- the shell script ------------------------------------------------------------------------------------------------


def through_shell(shell: str, desired: boot_arguments.DesiredArguments, value: str) -> str:
    """Return GRUB_CMDLINE_LINUX after the shell script, with `set -e` as in grub-mkconfig."""
    script = f'set -e\n{grub_mkconfig.shell_text(desired)}\nprintf "%s." "$GRUB_CMDLINE_LINUX"'
    done = subprocess.run([shell, "-c", script], env={"GRUB_CMDLINE_LINUX": value}, capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout.decode()[:-1]


WORDS = """nosmt nosmt=force maxcpus=4 quiet mds=full,nosmt mitigations=auto,nosmt mitigations=auto,no_user_user
    mitigations=off mitigations=*,?,nosmt mitigations a,nosmt x=1,nosmt,nosmt,2 l1tf=full l1tf=full,force
    l1tf=flush,nosmt smt-enabled=off smt=1 nr_cpus=3 nosmtx * ? [a-z] $HOME `id` \\ ' a=b,nosmt;c ~ -n -e é # %s
    m=;nosmt console=ttyS0,115200n8"""
boot_argument = st.sampled_from(WORDS.split())


@settings(max_examples=night.number(8, 200), deadline=None)
@given(st.sampled_from(DESIRED), st.lists(boot_argument, max_size=6))
def test_the_shell_script_does_what_the_python_code_does(desired, arguments):
    remainders = [boot_arguments.remainder(argument, desired) for argument in arguments]
    expected = [argument for argument in remainders if argument is not None]
    for shell in ("dash", "bash"):
        assert through_shell(shell, desired, " ".join(arguments)) == " ".join(list(desired.arguments) + expected)


def has_nothing_to_remove(text: str) -> bool:
    """Whether `enabled` keeps each word.

    Hypothesis also draws words from the collection's own source, such as ``nr_cpus``.
    """
    return boot_arguments.smt_arguments(re.split("[ \t\n]", text)) == []


@settings(max_examples=night.number(8, 200), deadline=None)
@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
    .filter(has_nothing_to_remove)
    .filter(lambda text: text[-1:] != "\n")
)
def test_the_shell_script_keeps_every_other_byte(text):
    for shell in ("dash", "bash"):
        assert through_shell(shell, boot_arguments.desired_smt("enabled"), text) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('dyndbg="file a.c  nosmt +p" nosmt  quiet', 'dyndbg="file a.c  nosmt +p"  quiet'),
        ("quiet\tnosmt\tsplash", "quiet\tsplash"),
        ("quiet\nnosmt", "quiet"),
        ("  nosmt  ", "   "),
        ("", ""),
    ],
)
def test_blanks_and_quotes_around_other_arguments_stay(before, after):
    for shell in ("dash", "bash"):
        assert through_shell(shell, boot_arguments.desired_smt("enabled"), before) == after
