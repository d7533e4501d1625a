# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus on loopback that scrapes an exporter of the test each second, and servers that lie."""

from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
SCRAPE_SECONDS = 1


def free_port():
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(answer):
    """Serve HTTP on loopback; ``answer(handler)`` answers each request. Yields the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            with contextlib.suppress(ConnectionError):
                answer(self)

        def log_message(self, *_arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def send(handler, body, status=200, kind="application/json", **headers):
    """Answer a request."""
    content = body if isinstance(body, bytes) else body.encode()
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(content)))
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)


class Exporter:
    """What a service exports: text in Prometheus' format, which a test changes; None answers with an error."""

    def __init__(self):
        self.text = ""
        self.scrapes = 0

    def answer(self, handler):
        self.scrapes += 1
        if self.text is None:
            send(handler, "down", 500, "text/plain")
        else:
            send(handler, self.text, 200, "text/plain; version=0.0.4")

    def wait(self, scrapes):
        """Wait until so many more scrapes are over."""
        wanted = self.scrapes + scrapes + 1
        for _turn in range(600):
            if self.scrapes >= wanted:
                return
            time.sleep(0.1)
        raise AssertionError(f"no {scrapes} scrapes in a minute")


@contextlib.contextmanager
def prometheus(directory, targets, web_config=None, scheme="http", instance_labels=None):
    """Run Prometheus over ``targets`` (addresses without scheme). Yields its address."""
    program = subprocess.run([str(REPOSITORY / "tools" / "prometheus.sh")], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    port = free_port()
    static = [{"targets": [target], "labels": (instance_labels or {}).get(target, {})} for target in targets]
    config = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"},
        "scrape_configs": [{"job_name": "service", "static_configs": static}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    command = [
        program,
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    if web_config:
        (directory / "web.yml").write_text(json.dumps(web_config))
        command.append(f"--web.config.file={directory / 'web.yml'}")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
        try:
            _wait_until_it_listens(process, port, directory / "log")
            yield f"{scheme}://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _wait_until_it_listens(process, port, log):
    for _turn in range(600):
        if process.poll() is not None:
            raise AssertionError(f"Prometheus has ended: {log.read_text()[-2000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            if _is_ready(port):
                return
        time.sleep(0.1)
    raise AssertionError("Prometheus does not listen after a minute")


def _is_ready(port):
    """Return whether it answers queries; one with TLS or credentials refuses this request, and is ready too."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as error:
        return error.code != 503
    except OSError:
        return False
