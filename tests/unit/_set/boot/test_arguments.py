# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments of desired SMT states, and the shell script for grub compared with them."""

import re
import subprocess

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import arguments as boot_arguments, mitigations
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import grub_mkconfig
from hypothesis import given, settings, strategies as st

ENABLED = boot_arguments.desired_smt("enabled")
DESIRED = [
    *map(boot_arguments.desired_smt, ("enabled", "disabled", "forced_off", "mitigations_nosmt")),
    boot_arguments.desired_maxcpus(4),
    *(mitigations.combined(None, chosen, is_smt_on=False) for chosen in mitigations.ARGUMENTS),
]


def rows(text):
    return [[part.strip() for part in line.split(" > ")] for line in text.strip().splitlines()]


# Before, and what is left.
OFF = """
quiet nosmt > quiet
nosmt=force quiet > quiet
maxcpus=4 nr_cpus=4 nosmp possible_cpus=8 smt=1 smt-enabled=off smt_enabled=off x > x
mds=full,nosmt tsx_async_abort=full,nosmt > mds=full tsx_async_abort=full
mitigations=auto,nosmt quiet > quiet
mitigations=auto,nosmt;no_user_kernel > mitigations=auto;no_user_kernel
l1tf=full,force l1tf=full quiet > quiet
l1tf=flush,nosmt l1tf=flush > l1tf=flush l1tf=flush
nosmtx=1 xnosmt mitigations=off maxcpu=3 > nosmtx=1 xnosmt mitigations=off maxcpu=3
"""


@pytest.mark.parametrize(("before", "after"), rows(OFF))
def test_enabled_removes_what_turns_smt_off_and_nothing_else(before, after):
    assert " ".join(boot_arguments.applied(before.split(), ENABLED)) == after


@pytest.mark.parametrize(
    ("smt", "argument"),
    [("disabled", "nosmt"), ("forced_off", "nosmt=force"), ("mitigations_nosmt", "mitigations=auto,nosmt")],
)
def test_an_argument_is_replaced_never_repeated(smt, argument):
    for before in ("", "nosmt nosmt=force nosmt", "maxcpus=4 nosmt", "mitigations=auto,nosmt nosmt=force"):
        after = boot_arguments.applied(f"{before} {argument}".split(), boot_arguments.desired_smt(smt))
        assert after.count(argument) == 1
        assert not any(other in after for other in {"nosmt", "nosmt=force", "maxcpus=4"} - {argument})


# What is set, before, and after it.
VECTORS = """
auto_nosmt > mitigations=auto,no_user_kernel,no_guest x > mitigations=auto,nosmt,no_user_kernel,no_guest x
auto_nosmt > mitigations=off,no_b mitigations=,no_a > mitigations=auto,nosmt,no_b mitigations=auto,nosmt,no_a
auto_nosmt > mitigations=auto,no_cross_thread,no_user_user > mitigations=auto,nosmt,no_user_user
auto_nosmt > mitigations=off mitigations=auto mitigations=auto,no_cross_thread mitigations x > x
auto_nosmt > mitigations=auto;no_user_kernel > mitigations=auto,nosmt,no_user_kernel
auto > mitigations=auto;no_user_kernel > mitigations=auto,no_user_kernel
auto > mitigations=*,?,$HOME > mitigations=auto,*,?,$HOME
off > mitigations=auto quiet mitigations=off,no_user_user > quiet
off > nomitigations=auto xmitigations=off nosmt mds=x,nosmt > nomitigations=auto xmitigations=off nosmt mds=x,nosmt
"""


@pytest.mark.parametrize(("chosen", "before", "after"), rows(VECTORS))
def test_excluded_attack_vectors_stay_excluded(chosen, before, after):
    """Linux 6.17 and later (attack_vector_controls.rst). SMT stays on when the cross-thread vector is excluded."""
    desired, ours = mitigations.combined(None, chosen, is_smt_on=False), mitigations.ARGUMENTS[chosen]
    assert " ".join(boot_arguments.applied(before.split(), desired)) == f"{ours} {after}"
    assert boot_arguments.differences([ours, *after.split()], desired) == []
    assert through_shell("dash", desired, before) == f"{ours} {after}"
    if chosen == "auto_nosmt":
        back = " ".join(boot_arguments.applied([ours, *after.split()], ENABLED))
        assert back.replace("=auto", "") == after.replace(",nosmt", "").replace("=auto", "")


def test_maxcpus_and_nosmt_are_never_combined_and_what_needs_no_change_keeps_its_order():
    before = ["nosmt", "mitigations=auto,nosmt", "maxcpus=2", "quiet"]
    assert boot_arguments.applied(before, boot_arguments.desired_maxcpus(4)) == ["maxcpus=4", "quiet"]
    arguments = ["quiet", "nosmt", "splash"]
    assert boot_arguments.applied(arguments, boot_arguments.desired_smt("disabled")) == arguments


@pytest.mark.parametrize("text", ["0", "-1", "4;reboot", "4\nfoo", "04", "8193", "9" * 11, "", "True", "4.0", "٤"])
def test_an_invalid_number_is_refused_with_the_rule(text):
    with pytest.raises(boot_arguments.BootArgsError, match="whole number from 1 to 8192"):
        boot_arguments.maxcpus_value(text)
    assert [boot_arguments.maxcpus_value(good) for good in ("1", "8192", "one_per_core")] == [1, 8192, "one_per_core"]


def test_quotes_protect_blanks_and_arguments_of_init_are_not_the_kernels():
    assert boot_arguments.split_arguments('a="b nosmt" quiet -- nosmt') == ["a=b nosmt", "quiet"]
    assert boot_arguments.split_arguments('"a b"\rnosmt\v\fro\td\r\n') == ["a b", "nosmt", "ro", "d"]
    kept = 'dyndbg="file a nosmt  +p" {}quiet'
    assert boot_arguments.rewritten_text(kept.format("nosmt  "), ENABLED) == kept.format("")
    quoted = '"nosmt" ro  maxcpus="4" mds="full,nosmt" a="b c" "nosmt=force"'
    assert boot_arguments.rewritten_text(quoted, ENABLED) == 'ro  mds=full a="b c"'


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


@settings(max_examples=night.number(8, 200), deadline=None)
@given(st.sampled_from(DESIRED), st.lists(st.sampled_from(WORDS.split()), max_size=6))
def test_the_shell_script_does_what_the_python_code_does(desired, arguments):
    remainders = [boot_arguments.remainder(argument, desired) for argument in arguments]
    expected = [argument for argument in remainders if argument is not None]
    for shell in ("dash", "bash"):
        assert through_shell(shell, desired, " ".join(arguments)) == " ".join(list(desired.arguments) + expected)


# Hypothesis also draws words from the collection's own source, such as ``nr_cpus``.
OTHER_BYTES = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=30).filter(
    lambda text: boot_arguments.smt_arguments(re.split("[ \t\n]", text)) == [] and text[-1:] != "\n"
)


@settings(max_examples=night.number(8, 200), deadline=None)
@given(OTHER_BYTES)
def test_the_shell_script_keeps_every_other_byte(text):
    for shell in ("dash", "bash"):
        assert through_shell(shell, ENABLED, text) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('dyndbg="file a.c  nosmt +p" nosmt  quiet', 'dyndbg="file a.c  nosmt +p"  quiet'),
        *(("quiet\tnosmt\tsplash", "quiet\tsplash"), ("quiet\nnosmt", "quiet"), ("  nosmt  ", "   "), ("", "")),
    ],
)
def test_blanks_and_quotes_around_other_arguments_stay(before, after):
    assert [through_shell(shell, ENABLED, before) for shell in ("dash", "bash")] == [after] * 2
