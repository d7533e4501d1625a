# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make tour`: writes what docs/tour.md shows.

Its commands are called here, one after the other, on guests of the laboratory.

A block that begins with ```console and `$ COMMAND` gets what the command prints. `<!-- exit code N -->` above a block
says how it ends, if not with 0. `<!-- picture: PATTERN WIDTHxHEIGHT -->` above an image makes it anew: the top of the
newest page that matches PATTERN, as a browser draws it. Files are written when all commands have ended as they
should; what was started is ended in any case.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from processes import end_children

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tour.md"
LAST_LINES = 40
GUESTS = ("web1", "web2")
# The browser for the pictures; the laboratory installs what it needs by itself.
PACKAGES = ("chromium",)
COMMAND = re.compile(
    r"(?:<!-- exit code (?P<code>\d+) -->\n)?```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```\n", re.DOTALL
)
PICTURE = re.compile(
    r"<!-- picture: (?P<pattern>\S+) (?P<width>\d+)x(?P<height>\d+) -->\n!\[[^\]]*\]\((?P<file>[^)]+)\)"
)
# Ansible's heads of plays, tasks and the recap, and the lines that say of each host how a task went.
HEAD = re.compile(r"^(PLAY|TASK|RUNNING HANDLER)\b.*\*{3,}$")
STATUS = re.compile(r"^(ok|changed|skipping|included): ")
# What apt says of archives, and directories that are gone when the command has ended.
OF_APT = re.compile(r"^(Get:|Hit:|Ign:|Fetched |W: |installing Debian packages: )")
TEMPORARY = re.compile(rf"{re.escape(tempfile.gettempdir())}/tmp\w+/")


class TourError(Exception):
    """The tour cannot be made; the message says why."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A block of the page with a command.

    Attributes:
        command: as a user types it.
        code: the exit code that it should have.
        span: from which character of the page to which its output stands.
    """

    command: str
    code: int
    span: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture of the page.

    Attributes:
        pattern: the files of which the newest is shown, below the root of the working tree.
        width: in pixels.
        height: in pixels.
        file: the path of the picture, relative to the page's directory.
    """

    pattern: str
    width: int
    height: int
    file: str


def main() -> int:
    """Make the tour; the exit code is 0, or 1 with a message."""
    # As Ctrl-C: what is under way is ended on the way out.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    if subprocess.run([ROOT / "tools/debian-packages.sh", *PACKAGES], check=False).returncode:
        return 1
    try:
        make(PAGE.read_text(encoding="utf-8"))
    except TourError as error:
        print(f"tour: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tour: interrupted; nothing was written", file=sys.stderr)
        return 130
    return 0


def make(page: str) -> None:
    """Call the page's commands, and write the page and its pictures.

    Raises:
        TourError: a command ended otherwise than the page says, or a page that is to be shown is not there.
    """
    environment = user_environment(os.environ)
    outputs: list[tuple[tuple[int, int], str]] = []
    pictures: dict[pathlib.Path, bytes] = {}
    try:
        for part in parts(page):
            if isinstance(part, Command):
                outputs.append((part.span, shown(called(part, environment), ROOT)))
            else:
                pictures[PAGE.parent / part.file] = drawn(part)
    finally:
        for name in GUESTS:
            subprocess.run(
                [sys.executable, "tools/lab/lab.py", "down", "--name", name],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                check=False,
            )
    for (first, behind), output in reversed(outputs):
        page = page[:first] + output + page[behind:]
    for path, content in {**pictures, PAGE: page.encode()}.items():
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, content)
        print(f"tour: {path.relative_to(ROOT)} is written", flush=True)


def parts(page: str) -> Iterator[Command | Picture]:
    """Yield the commands and pictures of a page, in its order."""
    matches = sorted([*COMMAND.finditer(page), *PICTURE.finditer(page)], key=lambda match: match.start())
    for match in matches:
        if match.re is COMMAND:
            yield Command(match["command"], int(match["code"] or 0), match.span("output"))
        else:
            yield Picture(match["pattern"], int(match["width"]), int(match["height"]), match["file"])


def user_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a user who has activated .venv: without those of `make`, which a `make` in a command
    would take for its own, and of Ansible.
    """
    kept = {name: value for name, value in own.items() if not name.startswith(("MAKE", "MFLAGS", "ANSIBLE_"))}
    return {**kept, "PATH": f"{ROOT / '.venv/bin'}{os.pathsep}{own['PATH']}", "ANSIBLE_NOCOLOR": "1", "COLUMNS": "120"}


def called(part: Command, environment: Mapping[str, str]) -> str:
    """Call a command and return what it printed.

    Raises:
        TourError: it ended with another exit code.
    """
    print(f"tour: {part.command}", flush=True)
    try:
        process = subprocess.Popen(
            ["bash", "-c", part.command],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        output = process.communicate()[0]
    except BaseException:
        end_children()
        raise
    if process.returncode != part.code:
        last_lines = "\n".join(output.splitlines()[-LAST_LINES:])
        raise TourError(f"exit code {process.returncode} instead of {part.code} of {part.command}\n{last_lines}")
    return output


def shown(output: str, root: pathlib.Path) -> str:
    """Return what the page shows of a command's output: without apt and the tasks that only list hosts,
    and with paths as seen from the working tree.
    """
    sections: list[list[str]] = [[]]
    for line in TEMPORARY.sub("", output.replace(f"{root}/", "")).splitlines():
        if OF_APT.match(line):
            continue
        if HEAD.match(line):
            sections.append([re.sub(r"\*{3,}$", "***", line)])
        else:
            sections[-1].append(line.rstrip())
    kept = [
        lines
        for lines in sections
        if lines and not (HEAD.match(lines[0]) and all(not line or STATUS.match(line) for line in lines[1:]))
    ]
    text = "\n".join(line for lines in kept for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n").replace("```", "'''") + "\n"


def drawn(part: Picture) -> bytes:
    """Return the top of a page as a browser draws it, a PNG.

    Raises:
        TourError: there is no such page, or the browser draws nothing.
    """
    pages = sorted(ROOT.glob(part.pattern), key=lambda path: path.stat().st_mtime)
    if not pages:
        raise TourError(f"there is no {part.pattern} to be shown")
    print(f"tour: a picture of {pages[-1].relative_to(ROOT)}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        picture = pathlib.Path(directory) / "page.png"
        # Root has no sandbox to run in; the page is our own.
        options = ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={directory}/profile")
        size = f"--window-size={part.width},{part.height}"
        done = subprocess.run(
            ["chromium", *options, size, f"--screenshot={picture}", pages[-1].as_uri()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if not picture.exists():
            raise TourError(f"chromium drew nothing of {pages[-1]}:\n{done.stdout[-2000:]}")
        return picture.read_bytes()


def write_atomic(path: pathlib.Path, content: bytes) -> None:
    """Replace a file by one with another content, or leave it as it is."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
        new.write(content)
        new.flush()
        os.fsync(new.fileno())
    os.chmod(new.name, 0o644)
    os.replace(new.name, path)


if __name__ == "__main__":
    sys.exit(main())
