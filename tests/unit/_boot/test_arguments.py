# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments of desired SMT states, and the shell script for grub compared with them."""

from __future__ import annotations

import re
import subprocess

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments
from ansible_collections.threadwise.smt.plugins.module_utils._boot.backends import grub_mkconfig
from hypothesis import given, settings, strategies as st

DESIRED = [boot_arguments.desired_smt(smt) for smt in ("enabled", "disabled", "forced_off", "mitigations_nosmt")] + [
    boot_arguments.desired_maxcpus(4)
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
@pytest.mark.parametrize(
    "before",
    [
        "",
        "nosmt",
        "nosmt nosmt",
        "nosmt=force nosmt=force",
        "nosmt nosmt=force",
        "maxcpus=4 nosmt",
        "mitigations=auto,nosmt mitigations=auto,nosmt nosmt=force",
    ],
)
def test_an_argument_is_replaced_never_repeated(smt, argument, before):
    after = boot_arguments.applied(before.split(), boot_arguments.desired_smt(smt))
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
    for shell in ("dash", "bash"):
        assert through_shell(shell, desired, before) == after
    back = boot_arguments.applied(after.split(), boot_arguments.desired_smt("enabled"))
    assert [argument.replace("=auto", "") for argument in back] == [
        argument.replace(",nosmt", "").replace("=auto", "")
        for argument in after.split()
        if argument != boot_arguments.MITIGATIONS_NOSMT_ARGUMENT
    ]


def test_maxcpus_and_nosmt_are_never_combined():
    after = boot_arguments.applied(
        ["nosmt", "mitigations=auto,nosmt", "maxcpus=2", "quiet"], boot_arguments.desired_maxcpus(4)
    )
    assert after == ["maxcpus=4", "quiet"]


def test_arguments_that_need_no_change_keep_their_order():
    arguments = ["quiet", "nosmt", "splash"]
    assert boot_arguments.applied(arguments, boot_arguments.desired_smt("disabled")) == arguments


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "4 nosmt",
        "4;reboot",
        "4\nfoo",
        "$(reboot)",
        "`id`",
        "'4'",
        '"',
        "04",
        "8193",
        "99999999999",
        "",
        "True",
        "4.0",
        "٤",
    ],
)
def test_an_invalid_number_is_refused_with_the_rule(text):
    with pytest.raises(
        boot_arguments.BootArgsError, match="whole number from 1 to 8192, in digits only, or one_per_core"
    ):
        boot_arguments.maxcpus_value(text)


def test_valid_numbers_are_accepted():
    assert [boot_arguments.maxcpus_value(text) for text in ("1", "8192", "one_per_core")] == [1, 8192, "one_per_core"]


def test_an_unknown_state_is_refused_with_a_list_of_the_states():
    with pytest.raises(boot_arguments.BootArgsError, match="enabled, disabled, forced_off, mitigations_nosmt"):
        boot_arguments.desired_smt("off")


def test_quotes_protect_blanks_and_arguments_of_init_are_not_the_kernels():
    assert boot_arguments.split_arguments('a="b nosmt" quiet -- nosmt') == ["a=b nosmt", "quiet"]
    assert boot_arguments.split_arguments("a\rnosmt\v\fro\r\n") == ["a", "nosmt", "ro"]


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


boot_argument = st.sampled_from(
    [
        "nosmt",
        "nosmt=force",
        "maxcpus=4",
        "quiet",
        "mds=full,nosmt",
        "mitigations=auto,nosmt",
        "mitigations=auto,no_user_user",
        "mitigations=off",
        "mitigations=*,?,nosmt",
        "mitigations",
        "a,nosmt",
        "x=1,nosmt,nosmt,2",
        "l1tf=full",
        "l1tf=full,force",
        "l1tf=flush,nosmt",
        "smt-enabled=off",
        "smt=1",
        "nr_cpus=3",
        "nosmtx",
        "*",
        "?",
        "[a-z]",
        "$HOME",
        "`id`",
        "\\",
        "'",
        "a=b,nosmt;c",
        "~",
        "-n",
        "-e",
        "é",
        "#",
        "console=ttyS0,115200n8",
        "%s",
        "m=;nosmt",
    ]
)


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
    .filter(has_nothing_to_remove)
    .filter(lambda text: text[-1:] != "\n")
)
def test_the_shell_script_keeps_every_other_byte(text):
    for shell in ("dash", "bash"):
        assert through_shell(shell, boot_arguments.desired_smt("enabled"), text) == text


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('dyndbg="file a.c  nosmt +p" nosmt  quiet', 'dyndbg="file a.c  nosmt +p"  quiet'),
        ("quiet\tnosmt\tsplash", "quiet\tsplash"),
        ("quiet\nnosmt", "quiet"),
        ("  nosmt  ", "   "),
        ("nosmt", ""),
        ("", ""),
    ],
)
def test_blanks_and_quotes_around_other_arguments_stay(shell, before, after):
    assert through_shell(shell, boot_arguments.desired_smt("enabled"), before) == after


def test_the_shell_script_leaves_nothing_defined():
    script = (
        f"set -e\n{grub_mkconfig.shell_text(boot_arguments.desired_smt('enabled'))}\nset; type threadwise_smt_rest ||"
        " echo gone"
    )
    output = subprocess.run(["dash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert "gone" in output
    assert not any(line.partition("=")[0] in ("word", "text", "rest", "quoted", "after") for line in output.split("\n"))
