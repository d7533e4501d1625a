# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What validation of a fleet's answers costs: msgspec, which the collection needs, beside jsonschema-rs.

    PYTHONPATH=tests/unit/support .venv/bin/python tests/benchmarks/bench_border.py [--hosts 10000] [--workloads 8]
    [--samples 30]

Each host sends its facts and a result, as bench_report.py writes it; one in a thousand also sends documents that have
to be refused. Both libraries check each document in turn in one process, and CPU time alone counts. Compiling is timed
five times: Ansible's forks compile what they use anew for each task. Says where the two do not agree; asserts nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import time

import bench_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts, results, schema, text

SCHEMAS = {"facts": facts.SMT, "result": results.SCHEMA}


def with_msgspec(part):
    """The check of a schema, compiled, as the border has it."""
    checker = schema.Checker(part)
    checker._compiled = schema._type(part)
    return checker.check


def with_jsonschema_rs(part):
    """The check of a schema, compiled."""
    validator = importlib.import_module("jsonschema_rs").Draft202012Validator(part, mask="a value")
    return validator.validate


COMPILERS = {"msgspec": with_msgspec, "jsonschema-rs": with_jsonschema_rs}
EVERY = 1000
DEPTH = 900


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--workloads", type=int, default=8)
    parser.add_argument("--samples", type=int, default=30)
    options = parser.parse_args()
    document = text.parse(json.dumps(bench_report.document(options.workloads, options.samples)))
    print(f"{options.hosts} hosts, {options.workloads} workloads x {options.samples} samples a host")
    row("", "", *COMPILERS, "ratio")
    row("installed", "MB", *(installed(name) for name in COMPILERS))
    for kind, part in SCHEMAS.items():
        row(
            f"compiling, {kind}",
            "ms",
            *(1000 * min(timed(compiler, part) for _turn in range(5)) for compiler in COMPILERS.values()),
        )
    spent, differences = validate(document, options.hosts)
    for kind, seconds in spent.items():
        row(kind, "s", *(seconds[name] for name in COMPILERS))
    for name, said in differences.items():
        print(f"\n{name}:")
        for library, sentence in said.items():
            print(f"  {library:<15} {sentence}")


def row(name, unit, *values):
    """Print a line of the table; two numbers are followed by their ratio."""
    cells = [*values, values[1] / values[0]] if isinstance(values[0], float) else values
    print(f"{name:<22} {unit:<3}", *(f"{one:>14.3f}" if isinstance(one, float) else f"{one:>14}" for one in cells))


def timed(function, *arguments):
    """CPU seconds of a call that may refuse its data, without what it returns."""
    begun = time.process_time()
    with contextlib.suppress(ValueError, text.BorderError):
        function(*arguments)
    return time.process_time() - begun


def installed(name):
    """The size of an installed package, in MB."""
    return sum(file.locate().stat().st_size for file in importlib.metadata.files(name) if file.suffix != ".pyc") / 1e6


def hostile(document):
    """Name -> a schema and a document that has to be refused, as a host could send it past the parser."""
    deep = []
    for _level in range(DEPTH):
        deep = [deep]
    measured, sample = document["facts"], document["samples"][0]
    usage = {"cpu_usage": {"1," * 500_000: 0.5}}
    return {
        "deep": ("facts", {**measured, "problems": deep}),
        "long text": ("facts", {**measured, "control": "x" * 8_000_000}),
        "many fields": ("facts", {**measured, **{f"more{number}": number for number in range(300_000)}}),
        "many items": ("facts", {**measured, "problems": [{"x": [1, 2]}] * 300_000}),
        "huge integer": ("facts", {**measured, "sockets": 10**99}),
        "not a number": ("result", {**document, "samples": [{**sample, "wall_seconds": float("nan")}]}),
        "not a number of work": ("result", {**document, "samples": [{**sample, "work": float("nan")}]}),
        "long key for a pattern": ("result", {**document, "samples": [{**sample, "telemetry": usage}]}),
        "another field": ("result", {**document, "add_host": {"host_name": "x"}}),
        "true for a number": ("facts", {**measured, "sockets": True}),
        "newline at the end": ("result", {**document, "run": f"{document['run']}\n"}),
    }


def validate(document, hosts):
    """CPU seconds of each kind of document by each library, and what each says of hostile ones."""
    checks = {
        library: {kind: compiler(part) for kind, part in SCHEMAS.items()} for library, compiler in COMPILERS.items()
    }
    spent = {f"{kind} of each host": dict.fromkeys(COMPILERS, 0.0) for kind in SCHEMAS}
    refused = hostile(document)
    spent["hostile documents"] = dict.fromkeys(COMPILERS, 0.0)
    for host in range(hosts):
        bench_report.vary(document, host)
        for library, of_library in checks.items():
            for kind, sent in (("facts", document["facts"]), ("result", document)):
                spent[f"{kind} of each host"][library] += timed(of_library[kind], sent)
            if host % EVERY == 0:
                for kind, sent in refused.values():
                    spent["hostile documents"][library] += timed(of_library[kind], sent)
    said = {
        name: {library: outcome(of_library[kind], sent) for library, of_library in checks.items()}
        for name, (kind, sent) in refused.items()
    }
    return spent, said


def outcome(check, sent):
    """What a library says of a document, and the time that it takes."""
    begun = time.process_time()
    try:
        check(sent)
        said = "ACCEPTED"
    except (ValueError, text.BorderError) as error:
        said = f"{text.line(error, 150)} [{len(str(error))} characters]"
    return f"{1000 * (time.process_time() - begun):7.1f} ms  {said}"


if __name__ == "__main__":
    main()
