# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Result files: what is sound is read, whatever else comes is refused by name,
and nothing is overwritten or half written.
"""

from __future__ import annotations

import json
import os
import re

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import report_names, result_files
from hypothesis import given, strategies


def write(directory, text, name="web01.json"):
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def refusal(path):
    with pytest.raises(result_files.ResultError) as caught:
        result_files.load(path)
    message = str(caught.value)
    assert path.name in message
    assert len(message) < 1000
    return message


def changed(**fields):
    return json.dumps({**result_maker.result(blocks=1), **fields})


def test_what_was_saved_is_read_back_whole(tmp_path):
    document = result_maker.result()
    path, written, result = result_files.save(tmp_path / "run", document)
    assert written
    assert result_files.load(path) == result == result_maker.accepted(document)
    assert json.loads(path.read_text()) == document
    assert list(result.plan.placements["smt_on"]) == list(result_maker.ORDER)


def test_saving_the_same_again_writes_nothing(tmp_path):
    document = result_maker.result()
    result_files.save(tmp_path, document)
    assert result_files.save(tmp_path, document)[1] is False


def test_a_result_of_a_plan_that_was_killed_is_read(tmp_path):
    document = result_maker.result(outcome="interrupted", blocks=1)
    for missing in ("message", "finished", "restored", "skipped", "events"):
        del document[missing]
    loaded = result_files.load(write(tmp_path, json.dumps(document)))
    assert loaded.restored is None and loaded.skipped == () and loaded.events == ()


@pytest.mark.parametrize("length", [0, 1, 100, 2000])
def test_half_a_file(tmp_path, length):
    assert "not a complete JSON document" in refusal(write(tmp_path, changed()[:length]))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000])
def test_a_number_that_is_none(tmp_path, number):
    text = changed().replace('"wall_seconds": 0.8', f'"wall_seconds": {number}', 1)
    assert re.search("out of range|only finite numbers", refusal(write(tmp_path, text)))


@pytest.mark.parametrize("version", [0, 1, 3, "2", None, 1.5, True, [], "x" * 100_000])
def test_another_version(tmp_path, version):
    message = refusal(write(tmp_path, changed(schema_version=version)))
    assert "this collection reads version 2" in message


@pytest.mark.parametrize("text", ["[]", "null", "7", '"threadwise.smt/result"', "{}", '{"schema": "other"}'])
def test_no_result_at_all(tmp_path, text):
    assert "not a result of this collection" in refusal(write(tmp_path, text))


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("host", "", "host"),
        ("host", None, "host"),
        ("host", "x" * 300, "host"),
        ("outcome", "splendid", "outcome"),
        ("samples", {}, "samples"),
        ("samples", [{"workload": "gzip"}], "samples.0"),
        ("facts", None, "facts"),
        ("facts", {"sibling_groups": "0-1"}, "facts"),
        ("plan", {"placements": {"smt_on": {"single": {"workers": [["0"]]}}}}, "plan"),
        ("skipped", [{}], "skipped.0"),
        ("arms", [{}], "arms.0"),
        ("restored", {"ok": "yes"}, "restored.ok"),
        ("message", "y" * 30_000, "message"),
    ],
)
def test_a_field_of_another_kind(tmp_path, field, value, place):
    assert place in refusal(write(tmp_path, changed(**{field: value})))


@pytest.mark.parametrize(
    ("field", "value"),
    [("sibling_groups", "0-1"), ("vulnerabilities.mds", "bad"), ("measured", {}), ("more", 1), ("boot.more", 1)],
)
def test_a_fact_of_another_kind(tmp_path, field, value):
    document = result_maker.result(blocks=1)
    *way, last = field.split(".")
    at = document["facts"]
    for part in way:
        at = at[part]
    at[last] = value
    assert "facts" in refusal(write(tmp_path, json.dumps(document)))


def test_a_field_of_fifty_megabytes_is_not_even_parsed(tmp_path):
    assert "larger than the limit of 32 MiB" in refusal(write(tmp_path, changed(message="x" * 50_000_000)))


def test_nested_too_deeply(tmp_path):
    refusal(write(tmp_path, changed()[:-1] + ', "more": ' + "[" * 100_000 + "]" * 100_000 + "}"))


def test_not_utf8(tmp_path):
    assert "not UTF-8 at byte" in refusal(write(tmp_path, changed().encode("utf-8").replace(b"web01", b"web\xff1")))


def test_what_is_not_there_or_no_file(tmp_path):
    assert "No such file or directory" in refusal(tmp_path / "web01.json")
    (tmp_path / "dir.json").mkdir()
    assert "not a regular file" in refusal(tmp_path / "dir.json")
    os.mkfifo(tmp_path / "pipe.json")
    assert "not a regular file" in refusal(tmp_path / "pipe.json")


def test_characters_that_disturb_are_seen(tmp_path):
    text = changed(message="MARK").replace("MARK", "a\\u0000b\\u001b[31m\\ud800c\\u202ed")
    loaded = result_files.load(write(tmp_path, text))
    assert loaded.message == "a\\x00b\\x1b[31m\\ud800c\\u202ed"
    json.dumps(parts.plain(loaded), ensure_ascii=False).encode("utf-8")


def test_a_run_does_not_overwrite_another(tmp_path):
    path, _written, _result = result_files.save(tmp_path, result_maker.result(run="one"))
    with pytest.raises(result_files.ResultError, match="holds run one of host web01, which is not overwritten"):
        result_files.save(tmp_path, result_maker.result(run="two"))
    assert result_files.load(path).run == "one"


def test_what_is_not_sound_is_not_saved(tmp_path):
    document = result_maker.result(blocks=1)
    document["samples"][0]["wall_seconds"] = float("nan")
    with pytest.raises(result_files.ResultError, match="not plain data with finite numbers"):
        result_files.save(tmp_path, document)
    with pytest.raises(result_files.ResultError, match="samples"):
        result_files.save(tmp_path, result_maker.result(samples="none"))
    with pytest.raises(result_files.ResultError):
        result_files.save(tmp_path, {"host": ["web01"]})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "host",
    [
        "../../etc/passwd",
        "..",
        ".",
        "/abs",
        "-rf",
        "a/b",
        "a\\b",
        "index",
        "results",
        "x" * 255,
        "ü" * 255,
        "a\nb",
        "C:x",
    ],
)
def test_hostile_names_stay_in_the_directory(tmp_path, host):
    path, _written, _result = result_files.save(tmp_path / "run", result_maker.result(host=host, blocks=1))
    assert path.resolve().parent == (tmp_path / "run").resolve()
    assert path.name[0] not in ".-" and len(os.fsencode(path.name)) <= 200
    assert path in result_files.result_paths(tmp_path / "run")
    assert result_files.load(path).host == text.showable(host)


@given(strategies.lists(strategies.text(max_size=260), min_size=2, max_size=2, unique=True))
def test_two_hosts_never_share_a_file(hosts):
    stems = [result_files.file_stem(host) for host in hosts]
    assert stems[0] != stems[1]
    for stem in stems:
        assert (
            "/" not in stem
            and "\0" not in stem
            and not {f"{stem}.json", f"{stem}.html"} & report_names.NAMES
            and stem[0] not in ".-"
        )


@pytest.mark.parametrize(
    "written",
    [
        "\\b",
        "\\f",
        "\\r",
        "\\u0007",
        "\\ud800",
        "\\u202e",
        "\u202e",
        "\x7f",
        "\u009b",
        "\u200b",
        "\u3164",
        "\U000e0041",
    ],
)
def test_what_hides_is_seen_however_it_was_written(tmp_path, written):
    text = changed(message="MARK").replace("MARK", f"a{written}b")
    meant = json.loads('"' + written + '"', strict=False)
    assert result_files.load(write(tmp_path, text)).message == f"a{host_text.visible(meant)}b"
    kept = changed(message="MARK").replace("MARK", "\\\\b \\u00b5s")
    assert result_files.load(write(tmp_path, kept)).message == "\\b \u00b5s"


def test_the_results_of_a_directory_are_known_by_their_names(tmp_path):
    for name in ("good.json", "results.json", ".hidden.json", "notes.txt"):
        write(tmp_path, "{}", name)
    assert [path.name for path in result_files.result_paths(tmp_path)] == ["good.json"]


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(result_files.ResultError, match="nowhere: cannot be listed: No such file or directory"):
        result_files.result_paths(tmp_path / "nowhere")


def test_a_text_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "index.html"
    assert result_files.write_text(path, "old") is True
    assert result_files.write_text(path, "old") is False
    assert result_files.write_text(path, "new", dry_run=True) is True and path.read_text() == "old"

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(result_files.ResultError, match="No space left on device"):
        result_files.write_text(path, "new")
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["index.html"]


def test_a_report_is_readable_as_the_umask_says(tmp_path):
    old = os.umask(0o027)
    try:
        result_files.write_text(tmp_path / "index.html", "text")
    finally:
        os.umask(old)
    assert (tmp_path / "index.html").stat().st_mode & 0o777 == 0o640


def test_a_result_is_not_written_through_a_link(tmp_path):
    """A run's directory and what is in it are the collection's own; the directory of runs may be a link of the user."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "results").symlink_to("runs")
    (tmp_path / "runs" / "one").symlink_to(tmp_path / "elsewhere")
    document = result_maker.result(blocks=1)
    with pytest.raises(result_files.ResultError, match="it is a link, and links are not followed here"):
        result_files.save(tmp_path / "results" / "one", document)
    path, _written, _result = result_files.save(tmp_path / "results" / "two", document)
    assert (tmp_path / "runs" / "two" / path.name).is_file()
    path.rename(tmp_path / "elsewhere" / path.name)
    path.symlink_to(tmp_path / "elsewhere" / path.name)
    with pytest.raises(result_files.ResultError, match="it is a link, and links are not followed here"):
        result_files.save(tmp_path / "results" / "two", document)
    # A user may gather results by links.
    assert result_files.load(path).host == document["host"]


@pytest.mark.parametrize("write", [result_files.write_text, result_files.write_page])
def test_a_page_replaces_a_link_and_a_pipe(tmp_path, write):
    (tmp_path / "precious").write_text("text")
    (tmp_path / "page.html").symlink_to("precious")
    assert write(tmp_path / "page.html", "text") is True
    assert not (tmp_path / "page.html").is_symlink() and (tmp_path / "precious").read_text() == "text"
    (tmp_path / "page.html").unlink()
    os.mkfifo(tmp_path / "page.html")
    assert write(tmp_path / "page.html", "text") is True and (tmp_path / "page.html").read_text() == "text"


def test_what_was_in_a_page_is_not_read_from_elsewhere(tmp_path):
    (tmp_path / "precious").write_text("secret")
    (tmp_path / "summary.md").symlink_to("precious")
    assert result_files.read_text(tmp_path / "summary.md") is None
    os.truncate(tmp_path / "precious", 2**40)
    assert result_files.read_text(tmp_path / "precious") is None
