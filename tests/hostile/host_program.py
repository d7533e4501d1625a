# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of a play, as far as Ansible sees it: the program that stands for its shell and for its Python."""

import json
import os
import re
import subprocess
import sys
import time

MODULE = re.compile(rb"^module_fqn='[a-z_.]*?([a-z0-9_]+)'", re.MULTILINE)
PARAMETERS = re.compile(rb"^params=(.*),$", re.MULTILINE)
# What tells calls of one module apart.
ASKED = {"smt_benchmark": b"_step", "async_status": b"mode"}
TRANSFERRED = re.compile(r"(\S+/AnsiballZ_[a-z0-9_]+\.py)")


def main():
    home = os.path.dirname(os.path.abspath(sys.argv[0]))
    command = sys.argv[2] if sys.argv[1:2] == ["-c"] else " ".join([sys.argv[0], *sys.argv[1:]])
    real = _read(os.path.join(home, "real"))
    python = (real or b"").decode().strip() or os.path.join(home, "python")
    piped = b""
    if python in command and not TRANSFERRED.search(command):
        piped = sys.stdin.buffer.read()
    key, run = _asked(command, python, piped)
    if key and (not real or os.path.exists(os.path.join(home, "mutants", key))):
        _answer(home, key, run)
    if key:
        sys.exit(_record(home, key, command, piped, run))
    if python in command and not real:
        # The play was ended before it sent the module. To run this program again would never end.
        sys.exit(1)
    if piped:
        sys.exit(subprocess.run(["/bin/sh", "-c", command], input=piped, check=False).returncode)
    os.execv("/bin/sh", ["/bin/sh", "-c", command])


def _asked(command, python, piped):
    """What is asked, None where it only serves the transport, and the name of the run where there is one."""
    if "cat progress.json" in command:
        return "look", ""
    if "threadwise-smt-rollback" in command:
        return "rollback", ""
    if python not in command:
        return None, ""
    if "async_wrapper.py" in command:
        return "async_wrapper", ""
    file = TRANSFERRED.search(command)
    text = _read(file.group(1)) if file else piped
    module = MODULE.search(text or b"")
    if not module:
        return None, ""
    name, parameters = module.group(1).decode(), PARAMETERS.search(text)
    given = parameters.group(1) if parameters else b""
    asked = re.search(rb'"%s": "([a-z]+)"' % ASKED[name], given) if name in ASKED else None
    run = re.search(rb'"run": "([^"]*)"', given)
    key = f"{name}.{asked.group(1).decode()}" if asked else name
    return key, run.group(1).decode().replace(" ", "_") if run else ""


def _record(home, key, command, piped, run):
    done = subprocess.run(["/bin/sh", "-c", command], input=piped, capture_output=True, check=False)
    with open(os.path.join(home, "said", f"{key}.{_nth(home, key)}"), "wb") as file:
        file.write(done.stdout)
    _log(home, f"{key} said {run}\n")
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    return done.returncode


def _answer(home, key, run):
    names = [f"{key}.{_nth(home, key)}", key]
    for folder in ("mutants", "answers"):
        for name in names:
            path = os.path.join(home, folder, name)
            if os.path.exists(path):
                _log(home, f"{key} {folder} {run}\n")
                _say(path)
    _log(home, f"{key} unknown {run}\n")
    sys.stdout.write('{"changed": false}')
    sys.stdout.flush()
    # To run this program, which stands for the host's Python, would never end.
    os._exit(0)


def _say(path):
    how = json.loads(_read(path + ".how") or b"{}")
    if how.get("sleep"):
        time.sleep(how["sleep"])
    errors = how.get("stderr", "").encode("utf-8", "surrogatepass")
    # Ansible may close its end before all is said.
    try:
        for number, text, times in ((2, errors, how.get("stderr_times", 1)), (1, _read(path), how.get("times", 1))):
            for _again in range(times):
                left = memoryview(text)
                while left:
                    left = left[os.write(number, left) :]
    except OSError:
        pass
    if how.get("signal"):
        os.kill(os.getpid(), how["signal"])
    os._exit(how.get("exit", 0))


def _nth(home, key):
    """Which call of this kind it is; the first is 1. One host is asked one thing at a time."""
    seen = (_read(os.path.join(home, "log")) or b"").decode().splitlines()
    return 1 + sum(line.split(" ")[0] == key for line in seen)


def _log(home, line):
    with open(os.path.join(home, "log"), "a") as file:
        file.write(line)


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


if __name__ == "__main__":
    main()
