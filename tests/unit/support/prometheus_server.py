# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus on loopback that scrapes an exporter of the test each second, a real nginx in front of it."""

import base64
import contextlib
import http.server
import io
import itertools
import json
import pathlib
import socket
import socketserver
import ssl
import subprocess
import threading
import time
import urllib.parse
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
SCRAPE_SECONDS = 1
# The content type of what a service exports.
EXPOSITION = "text/plain; version=0.0.4"


def free_port():
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def unpacked(package, path):
    """Return the path of a program of one of Debian's packages, which is not installed."""
    command = [str(REPOSITORY / "tools" / "unpacked.sh"), package, path]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@contextlib.contextmanager
def raw(*pieces, drips=()):
    """Answer each connection with these bytes as they are, then the ``drips`` again and again. Yields the address.

    A number is a pause of so many seconds. Nothing is closed here: what ends before that knows from the bytes
    themselves where an answer ends.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            with contextlib.suppress(OSError):
                while self.rfile.readline().strip():
                    pass
                for piece in itertools.chain(pieces, itertools.cycle(drips)):
                    time.sleep(piece) if isinstance(piece, float) else self.wfile.write(piece)
                while self.rfile.read(1):
                    pass

    with _threaded(socketserver.ThreadingTCPServer, Handler) as address:
        yield f"http://{address}"


@contextlib.contextmanager
def serving(answer, certificate=None):
    """Serve HTTP, with the files of a certificate and its key HTTPS; ``answer(handler)`` answers each request.

    Yields the address.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            # A body that nobody has read resets the connection under the answer.
            self.rfile = io.BytesIO(self.rfile.read(int(self.headers["Content-Length"] or 0)))
            with contextlib.suppress(ConnectionError):
                answer(self)

        def log_message(self, *_arguments):
            pass

    Handler.do_POST = Handler.do_DELETE = Handler.do_GET
    with _threaded(http.server.ThreadingHTTPServer, Handler, certificate) as address:
        yield f"http{'s' if certificate else ''}://{address}"


@contextlib.contextmanager
def _threaded(kind, handler, certificate=None):
    """Run a server whose threads end with the tests, and which says nothing of clients that go away."""
    server = kind(("127.0.0.1", 0), handler, bind_and_activate=False)
    server.daemon_threads = server.allow_reuse_address = True
    server.handle_error = lambda *_given: None
    server.server_bind()
    server.server_activate()
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def send(handler, body, status=200, kind="application/json", **headers):
    """Answer a request."""
    content = body if isinstance(body, bytes) else body.encode()
    handler.send_response(status)
    for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
        handler.send_header(name, str(value))
    handler.end_headers()
    handler.wfile.write(content)


class Exporter:
    """What a service exports: text in Prometheus' format, which a test changes; None answers with an error.

    With ``is_punctual`` it says itself when its samples were taken, each SCRAPE_SECONDS after the last: on a busy
    machine scrapes are late by tenths of a second.
    """

    def __init__(self, is_punctual=False):
        self.text, self.scrapes = "", 0
        # So long ago that no sample is of a time after that of a query.
        self._first = time.time() - 2 if is_punctual else None

    def answer(self, handler):
        self.scrapes += 1
        if self.text is None:
            send(handler, "down", 500, "text/plain")
        elif self._first is None:
            send(handler, self.text, 200, EXPOSITION)
        else:
            moment = round((self._first + self.scrapes * SCRAPE_SECONDS) * 1000)
            send(handler, "".join(f"{line} {moment}\n" for line in self.text.splitlines()), 200, EXPOSITION)

    def wait(self, scrapes):
        """Wait until so many more scrapes are over."""
        wanted = self.scrapes + scrapes + 1
        until(lambda: self.scrapes >= wanted)


def until(is_so):
    """Wait for it, a minute at most."""
    for _turn in range(600):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("it is not so after a minute")


@contextlib.contextmanager
def _process(directory, command, is_ready):
    """Run a server whose log is in a directory, and wait until it is ready."""
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory)

    def ready():
        assert process.poll() is None, f"{command[0]} has ended: {(directory / 'log').read_text()[-2000:]}"
        return is_ready()

    try:
        until(ready)
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def prometheus(
    directory, targets, web_config=None, scheme="http", instance_labels=None, credentials=None, rules=(),
    scraped=None, alertmanagers=(),
):  # fmt: skip
    """Run Prometheus over ``targets`` (addresses without scheme), and wait until it answers. Yields its address.

    ``rules`` are groups of rules, as in a file of them; ``credentials`` (user and password) those that its
    ``web_config`` asks for; ``scraped`` further settings of scrapes.
    """
    port = free_port()
    static = [{"targets": [target], "labels": (instance_labels or {}).get(target, {})} for target in targets]
    config = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"},
        "scrape_configs": [{"job_name": "service", "static_configs": static, **(scraped or {})}],
        "rule_files": [str(directory / "rules.yml")],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}]},
    }
    files = {"rules": {"groups": list(rules)}, "prometheus": config, "web": web_config or {}}
    for name, content in files.items():
        (directory / f"{name}.yml").write_text(json.dumps(content))
    given = {"config.file": "prometheus.yml", "web.config.file": "web.yml", "storage.tsdb.path": "data"}
    given |= {"web.listen-address": f"127.0.0.1:{port}", "log.level": "error"}
    command = [unpacked("prometheus", "usr/bin/prometheus"), *(f"--{name}={value}" for name, value in given.items())]
    url = f"{scheme}://127.0.0.1:{port}"
    with _process(directory, command, lambda: is_ready(url, credentials)):
        yield url


def backfilled(directory, *words):
    """Write blocks of a server that does not run yet: ``promtool tsdb create-blocks-from`` with these words."""
    command = [unpacked("prometheus", "usr/bin/promtool"), "tsdb", "create-blocks-from", *words]
    subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def is_ready(url, credentials=None):
    """Return whether it says that it is ready: while it starts, it answers every query with status 503."""
    request = urllib.request.Request(f"{url}/-/ready")
    if credentials:
        request.add_header("Authorization", "Basic " + base64.b64encode(":".join(credentials).encode()).decode())
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=2, context=anybody) as answer:
        return answer.status == 200
    return False


def number(url, query):
    """Return the number that a query gives now, None where it gives none."""
    with urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    return float(result[0]["value"][1]) if result else None


@contextlib.contextmanager
def nginx(directory, url, *directives, server=()):
    """Run nginx in front of a server, with directives of the way to that and of where it listens."""
    port = free_port()
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds)
    of_proxy, of_server = ("".join(f"{one};" for one in some) for some in (directives, server))
    (directory / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {directory}/pid; events {{}}"
        f"http {{ access_log off; {temporary} upstream behind {{ server {url.removeprefix('http://')}; keepalive 4; }}"
        f"server {{ listen 127.0.0.1:{port}; {of_server} location / {{ proxy_pass http://behind; {of_proxy} }} }} }}"
    )
    command = [unpacked("nginx", "usr/sbin/nginx"), "-p", directory, "-c", directory / "nginx.conf", "-e"]

    def listens():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    with _process(directory, [*command, directory / "errors"], listens):
        yield f"http://127.0.0.1:{port}"
