# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a compromised host did to a run of a playbook, as sentences; none where it harmed nobody but itself."""

import collections
import json
import pathlib
import re

import arena
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from mutate import BELIEVED, FORGED

# What steers a terminal, hides there, or cannot be shown: controls but the newline and the tab, lone surrogates, marks
# that turn the reading order.
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
BROKEN = (
    "Traceback (most recent call last)",
    "this is probably a bug",
    "Unexpected failure during task execution",
    "worker was found in a dead state",
    "Unexpected Exception",
)
# Of the last play of a rollout, which Ansible does not begin where it stopped because all of a wave failed.
AFTER_THE_ROLLOUT = (
    "Fail the host unless it is as wanted",
    "threadwise.smt.smt_policy : Give the node the labels of its state",
)
# A task without hosts, which Ansible shows as one of the first host.
END_OF_ALL = "End the call if it cannot be carried out"
# The play of hosts that were evaluated has one host where none was, the first.
NOBODY_WAS_EVALUATED = ("threadwise.smt.smt_policy : Read the hardware class of a host that was evaluated", "skipped")
MOMENTS = (
    (re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ| \d\d:\d\d UTC)"), "MOMENT"),
    (re.compile(r"^(threadwise_smt_(?:checked|status)_timestamp_seconds\{.*\}) \d+$", re.MULTILINE), r"\1 MOMENT"),
)


def faults(run: arena.Run, baseline: arena.Run) -> list[str]:
    """What is not as it would be without the compromised hosts, by the same call with the honest ones alone."""
    found = [f"it was killed: {run.killed}"] if run.killed else []
    found += [f"the controller's file {line}" for line in run.changed[:10]]
    found += _terminal(run, baseline)
    for line in run.results:
        where = f"{line['task']!r} of {line['host']}: {line['msg'][:300]}"
        if any(broken in line["msg"] for broken in BROKEN):
            found.append(f"in the result of {where}")
        if line["broke"]:
            found.append(f"the controller broke by {line['broke']} at {where}")
        if line["once"] and line["status"] in ("failed", "unreachable"):
            found.append(f"the task for all failed: {where}")
    there, wanted = honest_parts(run), honest_parts(baseline)
    assert wanted[f"results of {arena.HONEST[0]}"], baseline.text()
    for name in sorted(wanted):
        if there.get(name) != wanted[name]:
            found.append(f"of an honest host: {name}: {_first_difference(wanted[name], there.get(name))}")
    found += _files(run)
    return found


def _terminal(run, baseline):
    found = []
    text = run.terminal.decode("utf-8", "surrogateescape")
    for line in text.split("\n"):
        steers = STEERS.search(line)
        if steers:
            found.append(f"on the terminal: {line[max(0, steers.start() - 60) : steers.end() + 20]!r}")
        if line.lstrip().startswith(FORGED):
            found.append(f"a host's own line on the terminal: {line[:100]!r}")
        found.extend(f"on the terminal: {line[:200]!r}" for broken in BROKEN if broken in line)
        if len(found) > 10:
            break
    if len(run.terminal) > len(baseline.terminal) + arena.MAX_TERMINAL * max(1, len(run.logs) - len(arena.HONEST)):
        found.append(f"{len(run.terminal)} bytes on the terminal")
    if "PLAY RECAP" not in text and not run.killed:
        found.append(f"the play did not come to its end (exit code {run.code}): {text[-300:]!r}")
    return found


def _files(run):
    """What holds for files that were written, of whomever they tell."""
    found = []
    for path in sorted(filter(pathlib.Path.is_file, run.out.rglob("*"))):
        name = str(path.relative_to(run.out))
        found += [f"a file's name: {name!r}"] if STEERS.search(name) else []
        found += [f"{name}: {wrong}" for wrong in _content(path)]
    for path in sorted(run.out.glob("results/*/*.json")):
        if path.stem in run.logs:
            found += [f"{path.relative_to(run.out)}: {wrong}" for wrong in _not_of_its_place(path)]
            if path.parent.name != arena.RUN:
                found.append(f"{path.relative_to(run.out)}: the controller started no such run")
    return found + _forgotten(run)


def _content(path):
    """What is wrong with the content of a file that was written."""
    found = ["a host's own verdict is in it"] if BELIEVED.encode() in path.read_bytes() else []
    if path.suffix == ".json" and path.stem in ("results", "smt"):
        try:
            json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
        except ValueError as error:
            found.append(str(error))
    if path.suffix == ".prom":
        lines = path.read_text(encoding="utf-8").splitlines()
        series = collections.Counter(line.rpartition(" ")[0] for line in lines if not line.startswith("#"))
        found += [f"twice: {one[:200]}" for one, times in series.items() if times > 1][:3]
    return found


def _forgotten(run):
    """Runs that hosts were asked to forget although the controller does not have them, or cannot read them."""
    found = []
    for host, log in run.logs.items():
        # A host forgets a run when it learns that the controller has it.
        forgotten = {line.split(" ")[2] for line in log if line.startswith("smt_benchmark.forget ")}
        kept = list(run.out.rglob(f"{host}.json"))
        lost = sorted(forgotten - {path.parent.name for path in kept})[:3]
        found += [f"{host} was asked to forget the run {one}, which is not here" for one in lost]
        for path in kept if forgotten else ():
            try:
                result_files.load(path)
            except result_files.ResultError as error:
                found.append(f"{host} was asked to forget what cannot be read: {error}")
    return found


def _not_of_its_place(path):
    """What makes a result's file another than the controller meant to write."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        return [str(error)]
    names = {"run": path.parent.name, "host": path.stem}
    others = [key for key, name in names.items() if document.get(key) != name]
    wrong = [f"it says that it is of {key} {document.get(key)!r:.100}" for key in others]
    return wrong + [f"it holds {key!r:.100}" for key in document if key.startswith(("ansible_", "_"))]


def _refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def honest_parts(run: arena.Run) -> dict[str, object]:
    """What tells of an honest host, by where it stands; moments and the run's own folder are made the same."""
    parts: dict[str, object] = {}
    for host in arena.HONEST:
        mine = [
            line
            for line in run.results
            if line["host"] == host
            and not line["once"]
            and line["task"] not in (*AFTER_THE_ROLLOUT, END_OF_ALL)
            and (line["task"], line["status"]) != NOBODY_WAS_EVALUATED
        ]
        known = [{key: line.get(key) for key in ("task", "status", "result")} for line in mine]
        parts[f"results of {host}"] = [_plain(run, json.dumps(one, sort_keys=True)) for one in known]
        spoken = re.compile(rf"(wave \d+: )?{host}(: | +)(?!.*: ok=\d)")
        # A rollout shows its table again at the end, unless it stopped because all of a wave failed.
        lines = [_plain(run, " ".join(line.split())) for line in run.text().split("\n") if spoken.match(line)]
        parts[f"terminal of {host}"] = list(dict.fromkeys(lines))
        for path in sorted(filter(pathlib.Path.is_file, run.out.rglob("*"))):
            shown = _of_host(path, host)
            if shown:
                parts[f"{path.relative_to(run.out)} of {host}"] = _plain(run, shown)
    return parts


def _rows(page, host):
    """The rows of a page that are about a host; those of others may name it in what they say."""
    rows = re.findall(r"<tr\b.*?</tr>", page, re.DOTALL)
    return [row for row in rows if re.sub(r"<[^>]*>", "", re.split(r"</t[hd]>", row)[0]).strip() == host]


def _of_host(path, host):
    """What a file tells of a host, as text."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.stem == host:
        return text if path.suffix == ".html" else path.read_bytes().decode("latin-1")
    if path.suffix in (".prom", ".csv", ".md"):
        return "\n".join(line for line in text.splitlines() if re.search(rf"\b{host}\b", line))
    if path.suffix == ".html" and path.stem != "index":
        return "\n".join(_rows(text, host))
    if path.suffix == ".json" and path.stem in ("results", "smt"):
        try:
            return json.dumps([one for one in json.loads(text)["hosts"] if one["host"] == host])
        except (ValueError, KeyError, TypeError):
            return None
    return None


def _plain(run, text):
    text = text.replace(str(run.directory), "HERE")
    for pattern, word in MOMENTS:
        text = pattern.sub(word, text)
    return text


def _first_difference(wanted, there):
    if there is None:
        return "it is not there"
    place = next((at for at, pair in enumerate(zip(wanted, there)) if pair[0] != pair[1]), min(len(wanted), len(there)))
    first, length = (max(0, place - 60), 160) if isinstance(wanted, str) else (place, 1)
    return f"{str(wanted[first : first + length])[:300]!r} became {str(there[first : first + length])[:300]!r}"
