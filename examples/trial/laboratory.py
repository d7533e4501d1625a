# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The example in the laboratory: two guests with nginx, a Prometheus and clients on this machine, and a trial of SMT.

`make trial-demo` runs it, about 20 minutes. The page of the trial is written below .cache/trial-demo. Everything that
was started is ended.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LAB = ROOT / "tools" / "lab" / "lab.py"
RESULTS = ROOT / ".cache" / "trial-demo"
PACKAGES = ("nginx-light", "libnginx-mod-http-lua", "prometheus-node-exporter")
PAGES, NODE = 8080, 9100
# As many as this machine has CPUs at least: guests that wait for each other show nothing but that.
GUESTS = 2
# How often a page is hashed: it takes a quarter of the time of one CPU of a guest.
ROUNDS = 12000
# Pages a second and guest, which rise and fall by half in four minutes; one CPU of a guest can serve all of them.
TRAFFIC = ("--rate", "12", "--swing", "0.5", "--day", "240")
# Until Prometheus has enough scrapes for the ranges of the queries.
FIRST_SCRAPES_SECONDS = 15


def lab(*words: str) -> str:
    """Run a command of the laboratory's and return what it printed."""
    done = subprocess.run([sys.executable, str(LAB), *words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def play(inventory: pathlib.Path, *words: str) -> None:
    """Run ansible-playbook to its end."""
    subprocess.run(["ansible-playbook", "-i", str(inventory), *words], check=True, cwd=ROOT)


def serve(names: Sequence[str], inventory: pathlib.Path, rounds: int) -> None:
    """Set up the service on guests, which reach no archive of packages themselves."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for said in pool.map(lambda name: lab("install", name, *PACKAGES), names):
            sys.stdout.write(said)
    play(inventory, str(HERE / "service.yml"), "-e", f"service_rounds={rounds}", "--limit", ",".join(names))


def address(name: str, port: int) -> str:
    """Where a TCP port of a guest is found on this machine, such as 127.0.0.1:40123."""
    return f"127.0.0.1:{lab('forward', name, str(port)).strip()}"


@contextlib.contextmanager
def started(command: Sequence[str], log: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """A process whose first line of output can be read, until the block ends."""
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=log.parent
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()


@contextlib.contextmanager
def clients(pages: Mapping[str, str], work: pathlib.Path, *options: str) -> Iterator[str]:
    """Clients that ask each host for pages, until the block ends. Yields the address of what they saw."""
    hosts = [f"{name}=http://{at}/page" for name, at in pages.items()]
    with started([sys.executable, str(HERE / "load.py"), *options, *hosts], work / "load.log") as process:
        port = process.stdout.readline().strip() if process.stdout else ""
        if not port:
            raise RuntimeError(f"the clients did not start: {(work / 'load.log').read_text()}")
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def prometheus(seen: str, nodes: Mapping[str, str], work: pathlib.Path) -> Iterator[str]:
    """A Prometheus over what the clients saw and the hosts' node_exporters, until the block ends. Yields its URL."""
    shutil.copy(HERE / "prometheus.yml", work)
    (work / "load.json").write_text(json.dumps([{"targets": [seen]}]))
    (work / "node.json").write_text(
        json.dumps([{"targets": [at], "labels": {"host": name}} for name, at in nodes.items()])
    )
    unpacked = [str(ROOT / "tools" / "unpacked.sh"), "prometheus", "usr/bin/prometheus"]
    program = subprocess.run(unpacked, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    command = [
        program,
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--log.level=error",
    ]
    with started(command, work / "prometheus.log") as process:
        while not _is_ready(url):
            if process.poll() is not None:
                raise RuntimeError(f"Prometheus has ended: {(work / 'prometheus.log').read_text()}")
            time.sleep(0.5)
        time.sleep(FIRST_SCRAPES_SECONDS)
        yield url


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def main() -> None:
    """Run the example, and say where its page is.

    Raises:
        subprocess.CalledProcessError: a command failed; it has said why.
    """
    # As Ctrl-C: what was started is ended on the way out.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    names = [f"trial-demo-{number}" for number in range(1, GUESTS + 1)]
    os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        work = pathlib.Path(directory)
        inventory = work / "inventory.yml"
        for name in names:
            stack.callback(lab, "down", "--name", name)
        print(
            lab(
                "up",
                *(word for name in names for word in ("--name", name)),
                "--shape",
                "1x1x2",
                "--inventory",
                str(inventory),
            ),
            end="",
            flush=True,
        )
        serve(names, inventory, ROUNDS)
        seen = stack.enter_context(clients({name: address(name, PAGES) for name in names}, work, *TRAFFIC))
        url = stack.enter_context(prometheus(seen, {name: address(name, NODE) for name in names}, work))
        variables = {"smt_trial_metrics_url": url, "smt_trial_dest": str(RESULTS), "smt_trial_most_switched": GUESTS}
        play(inventory, "threadwise.smt.smt_trial", "-b", "-e", f"@{HERE / 'trial.yml'}", "-e", json.dumps(variables))
    pages = sorted(RESULTS.glob("*/index.html"), key=lambda page: page.stat().st_mtime)
    print(f"The page: {pages[-1]}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; all guests are down")
    except subprocess.CalledProcessError as failure:
        sys.exit(f"{failure.cmd[0]} failed, see above")
