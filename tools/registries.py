# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what is generated: the registry of each folder of alternatives below plugins/module_utils, the names of a
report's files, what says which options there are, and the published schemas.

An alternative, such as a boot loader, is one file with one symbol. Ansible copies to a host only what is imported by
name, so a registry cannot look for files on the host: it is a generated file, ``registry.py``, that imports the symbol
of each file. The names of a report's own files, which hosts' files may not have, are needed below the packages that
have them. Tables and lists of names in the documentation are written from the declarations of what they list, and the
schemas in the documentation from those that the code checks with. Options are declared in tools/options;
`option_files.py` makes the rest of it.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import json
import pathlib
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import option_files

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = "ansible_collections.threadwise.smt.plugins.module_utils"
CONTROLLER_PACKAGE = "ansible_collections.threadwise.smt.plugins.plugin_utils"
REGISTRY = "registry.py"
# As in pyproject.toml.
MAX_COLUMNS = 120


@dataclass(frozen=True)
class Folder:
    """A folder of alternatives.

    Attributes:
        path: its path below plugins/module_utils.
        symbol: the name that each alternative defines.
        list_name: the name of the list of them in the registry.
        title: what they are, for the registry's docstring.
    """

    path: str
    symbol: str
    list_name: str
    title: str


FOLDERS = (
    Folder("_set/boot/loaders", "LOADER", "LOADERS", "boot loaders"),
    Folder("_know/consumers/kinds", "KIND", "KINDS", "kinds of consumers"),
    Folder("_measure/arms", "ARMS", "ARMS", "arms, by what they switch"),
    Folder("_measure/arms/booted", "ARMS", "ARMS", "arms that take a reboot, by what they set"),
    Folder("_measure/workloads/built_in", "WORKLOADS", "WORKLOADS", "built-in workloads, by file"),
    Folder("_measure/workloads/recipes", "RECIPE", "RECIPES", "recipes for tools that people have"),
)


@dataclass(frozen=True)
class Listing:
    """A list of names in an item of a description in YAML, which holds nothing else.

    Attributes:
        path: the file, below the root.
        start: how the item begins.
        names: returns the names as they are written there.
    """

    path: str
    start: str
    names: Callable[[], list[str]]


# The lines around a table in a page.
BEGIN, END = "<!-- The table is written by tools/registries.py. -->\n", "<!-- End of the table. -->\n"


# Published schemas, and the modules of plugins/plugin_utils whose SCHEMA each of them is.
SCHEMAS = {
    "docs/host.schema.json": "_ask.border.results",
    "docs/compliance.schema.json": "_keep.files.json_text",
    "docs/history.schema.json": "_keep.history.document",
    "docs/proof.schema.json": "_measure.proof.document",
    "docs/exposure.schema.json": "_measure.exposure.exposure_report",
    "docs/trial.schema.json": "_measure.trial.records",
    "docs/trial-report.schema.json": "_measure.trial.trial_report",
}


# The names of the files of a report, for the package that names the files of hosts.
REPORT_NAMES = "plugins/plugin_utils/_ask/files/report_names.py"


# The module whose sample counts hosts by status.
COUNTS = "plugins/modules/smt_compliance.py"


class RegistryError(Exception):
    """A registry cannot be written; the message names the file and the way out."""


def main(arguments: list[str] | None = None) -> int:
    """Write all registries and schemas, or check that they are current.

    Args:
        arguments: the command line without the program; None for that of the process.

    Returns:
        The exit code: 0, or 1 when a check failed or a registry cannot be written.
    """
    parser = argparse.ArgumentParser(
        description="Write the registries of the folders of alternatives, and the published schemas."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a registry is not current")
    check = parser.parse_args(arguments).check
    outdated = []
    try:
        for folder in FOLDERS:
            path = ROOT / "plugins" / "module_utils" / folder.path / REGISTRY
            text = registry(path.parent, folder)
            _put(path, text, check, outdated)
        if (ROOT / "docs").exists():
            # A registry that was written a moment ago is not yet known to Python.
            importlib.invalidate_caches()
            for listing in LISTS:
                _put(ROOT / listing.path, with_list(_text(listing.path), listing), check, outdated)
            # They are declared with lists of names, which were written a moment ago.
            for name, made in option_files.written().items():
                present = _text(name) if (ROOT / name).exists() else ""
                _put(ROOT / name, made(present), check, outdated)
            for name, table in {**TABLES, **option_files.tables()}.items():
                _put(ROOT / name, with_table(_text(name), name, table()), check, outdated)
            _put(ROOT / COUNTS, with_counts(_text(COUNTS)), check, outdated)
            for name, module in SCHEMAS.items():
                _put(ROOT / name, schema(module), check, outdated)
            _put(ROOT / REPORT_NAMES, report_names(), check, outdated)
    except (RegistryError, option_files.OptionError) as error:
        print(error, file=sys.stderr)
        return 1
    if check and outdated:
        print(f"Not current: {', '.join(outdated)}. Run `make registries`, and commit what it writes.", file=sys.stderr)
        return 1
    return 0


def _put(path: pathlib.Path, text: str, check: bool, outdated: list[str]) -> None:
    """Write a file that is not current, or only note its name."""
    if text != (path.read_text(encoding="utf-8") if path.exists() else None):
        outdated.append(str(path.relative_to(ROOT)))
        if not check:
            path.write_text(text, encoding="utf-8")


def schema(module: str) -> str:
    """Return the published text of a module's schema."""
    published = importlib.import_module(f"{CONTROLLER_PACKAGE}.{module}").SCHEMA
    return json.dumps(published, indent=2, ensure_ascii=False) + "\n"


def report_names() -> str:
    """Return the text of the file with the names of a report's own files."""
    names = importlib.import_module(f"{CONTROLLER_PACKAGE}._measure.report.build").own_names()
    members = "".join(f'        "{name}",\n' for name in names)
    return (
        '# Copyright: threadwise.smt contributors\n# SPDX-License-Identifier: GPL-3.0-or-later\n"""The names of a'
        ' report\'s own files. Generated by tools/registries.py: do not edit, run `make registries`."""\n\nfrom'
        f" __future__ import annotations\n\nNAMES = frozenset(\n    {{\n{members}    }}\n)\n"
    )


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def with_table(text: str, name: str, table: str) -> str:
    """Return a page with a table between its marks.

    Args:
        text: the page.
        name: its path.
        table: in Markdown.

    Raises:
        RegistryError: the page has no marks.
    """
    before, begin, rest = text.partition(BEGIN)
    _table, end, after = rest.partition(END)
    if not (begin and end):
        raise RegistryError(f"{name}: put the lines {BEGIN.strip()} and {END.strip()} around the table")
    return f"{before}{begin}\n{table}\n{end}{after}"


def with_list(text: str, listing: Listing) -> str:
    """Return documentation with a present list of names in an item of a description.

    Args:
        text: the file.
        listing: which item it is.

    Raises:
        RegistryError: there is not one item with this beginning.
    """
    item = re.compile(rf"^( *)- {re.escape(listing.start)} .*\n(?:\1  .*\n)*", re.MULTILINE)
    if len(item.findall(text)) != 1:
        raise RegistryError(f"{listing.path}: let one item of a description begin with {listing.start!r}")
    sentence = f"{listing.start} {', '.join(sorted(listing.names()))}."

    def written(match: re.Match[str]) -> str:
        lines = textwrap.wrap(
            f"- {sentence}",
            MAX_COLUMNS,
            initial_indent=match[1],
            subsequent_indent=f"{match[1]}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        return "\n".join(lines) + "\n"

    return item.sub(written, text)


def _workloads() -> str:
    catalogue = importlib.import_module(f"{PACKAGE}._measure.workloads.catalogue")
    rows = "".join(f"| {' | '.join(_cells(workload))} |\n" for workload in catalogue.BUILT_IN.values())
    return f"| workload | work of a worker | metrics, the primary one first | comes from |\n|---|---|---|---|\n{rows}"


def _arms() -> str:
    catalogue = importlib.import_module(f"{PACKAGE}._measure.arms.catalogue")
    rows = "".join(
        f"| {', '.join(f'`{name}`' for name in catalogue.shown(arm))} | {arm.summary}"
        f"{arm.leaves_open and f'; leaves open {arm.leaves_open}'} |"
        f" {', '.join(filter(None, ['a reboot' if arm.takes_reboot else '', arm.needs])) or 'nothing'} |"
        f" {catalogue.asked_by_trials(arm) or 'no'} |\n"
        for arm in catalogue.kinds()
    )
    return f"| arm | what it is | needs | in a trial |\n|---|---|---|---|\n{rows}"


def _workload_names() -> list[str]:
    return [f"V({name})" for name in importlib.import_module(f"{PACKAGE}._measure.workloads.catalogue").BUILT_IN]


def _arm_names(takes_reboot: bool) -> list[str]:
    catalogue = importlib.import_module(f"{PACKAGE}._measure.arms.catalogue")
    kinds = [arm for arm in catalogue.kinds() if arm.takes_reboot == takes_reboot]
    return [f"V({name})" for arm in kinds for name in catalogue.shown(arm)]


def _format_names() -> list[str]:
    registry_of_formats = importlib.import_module(f"{CONTROLLER_PACKAGE}._measure.report.formats.registry")
    return [f"C({file_format.name})" for file_format in registry_of_formats.formats()]


def _loaders() -> str:
    registry_of_loaders = importlib.import_module(f"{PACKAGE}._set.boot.loaders.registry")
    rows = "".join(
        f"| `{loader.name}` | {loader.chosen} | {loader.written} | {loader.tested} |\n"
        for loader in registry_of_loaders.LOADERS
    )
    return f"| method | chosen when there is | what is written | how far it is tested |\n|---|---|---|---|\n{rows}"


def _firmware_names() -> str:
    names = importlib.import_module(f"{PACKAGE}._know.firmware.attributes").NAMES
    rows = "".join(f"| `{attribute.name}` | {attribute.vendors} | {attribute.seen} |\n" for attribute in names)
    return f"| attribute | BMC or BIOS | seen in |\n|---|---|---|\n{rows}"


def _formats() -> str:
    registry_of_formats = importlib.import_module(f"{CONTROLLER_PACKAGE}._measure.report.formats.registry")
    rows = "".join(
        f"| `{file_format.name}` | {file_format.about} |\n"
        for file_format in sorted(registry_of_formats.formats(), key=lambda file_format: file_format.name)
    )
    return f"| file | for |\n|---|---|\n{rows}"


def _statuses() -> str:
    rows = "".join(f"| {status} | {status.row.meaning.replace(chr(10), ' ')} |\n" for status in _all_statuses())
    return f"| status | meaning |\n|---|---|\n{rows}"


def _all_statuses() -> Any:
    return importlib.import_module(f"{CONTROLLER_PACKAGE}._keep.fleet.status").Status


def with_counts(text: str) -> str:
    """Return the documentation of a module with all statuses in its sample of counts, which come after a drift."""
    counts = {"compliant": 3, **{str(status): int(status == "drifted") for status in list(_all_statuses())[1:]}}
    lines = textwrap.wrap(f"  sample: {json.dumps(counts)}", MAX_COLUMNS, subsequent_indent="    ")
    return re.sub(r'^  sample: {"compliant"[^}]*}$', "\n".join(lines), text, flags=re.MULTILINE)


def _sources() -> list[Any]:
    registry_of_sources = importlib.import_module(f"{CONTROLLER_PACKAGE}._measure.metric_sources.registry")
    return list(registry_of_sources.sources())


def _source_table() -> str:
    rows = "".join(
        f"| {' and '.join(f'`{name}`' for name in source.settings)} | {source.about} |\n" for source in _sources()
    )
    return f"| source | meaning |\n|---|---|\n{rows}"


def _source_names() -> list[str]:
    return [f"{' and '.join(f'C({name})' for name in source.settings)} ({source.about})" for source in _sources()]


def _recipes() -> str:
    custom = importlib.import_module(f"{PACKAGE}._measure.workloads.custom")
    rows = "".join(f"| {' | '.join(_recipe_cells(recipe))} |\n" for _name, recipe in sorted(custom.RECIPES.items()))
    head = "recipe | the number in the tool's summary | metrics | added | such as | tested with"
    return f"| {head} |\n|---|---|---|---|---|---|\n{rows}"


def _recipe_cells(recipe: Any) -> list[str]:
    example, added = option_files.inline(list(recipe.example)), " ".join(recipe.adds)
    return [
        f"`{recipe.name}`",
        recipe.number,
        ", ".join(f"{metric['name']} [{metric['unit']}]" for metric in recipe.metrics),
        added and f"`{added}`",
        f"`{example}`",
        recipe.tested,
    ]


def _recipe_names() -> list[str]:
    return [f"V({name})" for name in importlib.import_module(f"{PACKAGE}._measure.workloads.custom").RECIPES]


def _cells(workload: dict[str, Any]) -> list[str]:
    first, *others = (f"{metric['name']} [{metric['unit']}]" for metric in workload["metrics"])
    origin = f"`{workload['source']}`" if workload["source"] else str(workload["package"])
    return [f"`{workload['name']}`", workload["description"], ", ".join([first, *others]), origin]


def registry(directory: pathlib.Path, folder: Folder) -> str:
    """Return the text of a folder's registry.

    Args:
        directory: the folder's full path.
        folder: what it holds.

    Raises:
        RegistryError: a file neither defines the symbol, nor is code that the others import, nor imports the registry.
    """
    trees = {
        path.stem: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(directory.glob("*.py"))
        if path.name != REGISTRY
    }
    shared = {name for tree in trees.values() for name in _imported(tree)}
    names = [name for name, tree in trees.items() if folder.symbol in _defined(tree)]
    for name, tree in trees.items():
        if not (name in names or name in shared or "registry" in _imported(tree)):
            raise RegistryError(
                f"{directory / name}.py: define {folder.symbol} in it. It is not code that other files of the folder"
                " import."
            )
    package = ".".join([PACKAGE, *pathlib.PurePosixPath(folder.path).parts])
    imports = "".join(_import(f"from {package}.{name} import", f"{folder.symbol} as {name.upper()}") for name in names)
    members = "".join(f"    {name.upper()},\n" for name in names)
    return (
        "# Copyright: threadwise.smt contributors\n"
        "# SPDX-License-Identifier: GPL-3.0-or-later\n"
        f'"""All {folder.title}.\n'
        "\n"
        "Generated by tools/registries.py: do not edit, run `make registries`.\n"
        '"""\n'
        "\n"
        f"{imports}"
        "\n"
        f"{folder.list_name} = (\n{members})\n"
    )


def _import(module: str, name: str) -> str:
    """Return an import as the formatter of `make lint` writes it."""
    line = f"{module} {name}\n"
    return line if len(line) <= MAX_COLUMNS + 1 else f"{module} (\n    {name},\n)\n"


def _defined(tree: ast.Module) -> set[str]:
    """Return the names that a module assigns at its top level."""
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _imported(tree: ast.Module) -> set[str]:
    """Return the last parts of the names of all modules that a module may import, and of what it imports from them."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {(node.module or "").rpartition(".")[2] for node in nodes} | {
        alias.name for node in nodes for alias in node.names
    }


# The pages with a table, and what makes it.
TABLES: dict[str, Callable[[], str]] = {
    "docs/arms.md": _arms,
    "docs/boot.md": _loaders,
    "docs/firmware.md": _firmware_names,
    "docs/fleet.md": _statuses,
    "docs/measuring.md": _workloads,
    "docs/report.md": _formats,
    "docs/tools.md": _recipes,
    "docs/trials.md": _source_table,
}
_EVALUATION = "tools/options/smt_eval.yml"
LISTS = (
    Listing("plugins/modules/smt_report.py", "Files for other readers are", _format_names),
    Listing("tools/options/smt_trial.yml", "The source is one of", _source_names),
    Listing(_EVALUATION, "Built in are", _workload_names),
    Listing(_EVALUATION, "Recipes are", _recipe_names),
    Listing(_EVALUATION, "Switched at run time are", functools.partial(_arm_names, takes_reboot=False)),
    Listing(_EVALUATION, "A reboot is needed for", functools.partial(_arm_names, takes_reboot=True)),
)

if __name__ == "__main__":
    sys.exit(main())
