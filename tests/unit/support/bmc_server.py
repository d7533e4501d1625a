# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A BMC: a real HTTPS server on loopback that answers with recorded or with made resources; and the real module that
reads it.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import http.server
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading

from ansible.module_utils.urls import open_url
from ansible_collections.threadwise.smt.plugins.module_utils._know.firmware import agreement, client, facts

RECORDED = pathlib.Path(__file__).parent / "recorded_bmcs"
USER, PASSWORD, TOKEN = "reader", "s3cret/word", "t0ken"
SESSIONS = "/redfish/v1/SessionService/Sessions"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def recorded(name):
    """Return the resources of a recorded form: path -> object."""
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))["resources"]


@functools.cache
def certificate():
    """Return the paths of a self-signed certificate for 127.0.0.1 and its key, made once."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="bmc-"))
    atexit.register(shutil.rmtree, directory)
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", directory / "key.pem", "-out", directory / "cert.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files],
        check=True,
        capture_output=True,
    )
    return str(directory / "cert.pem"), str(directory / "key.pem")


class Bmc:
    """A BMC.

    Args:
        resources: path -> what is answered: an object, or a function of the handler that answers by itself.

    Attributes:
        host: its address with the port.
        asked: method and path of each request, in order.
        sessions: how many are open.
    """

    def __init__(self, resources):
        self.resources = {path.rstrip("/"): answer for path, answer in resources.items()}
        self.host, self.asked, self.heads, self.sessions = "", [], [], 0

    def answer(self, handler, method):
        """Answer a request, as a BMC does that has users."""
        path = handler.path.partition("?")[0]
        self.asked.append(f"{method} {handler.path}")
        self.heads.append(dict(handler.headers))
        resource = self.resources.get(handler.path.rstrip("/"), self.resources.get(path.rstrip("/")))
        if callable(resource):
            resource(handler)
        elif method == "POST" and path == SESSIONS:
            self._sign_in(handler)
        elif method == "DELETE":
            self.sessions -= 1
            send(handler, {})
        elif path.rstrip("/") != "/redfish/v1" and not self._is_user(handler):
            send(handler, {"error": {"message": f"who are you, {handler.headers['Authorization']}?"}}, 401)
        elif resource is None:
            send(handler, {"error": {"@Message.ExtendedInfo": [{"Message": "none"}]}}, 404)
        else:
            send(handler, resource)

    def _sign_in(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        if body == {"UserName": USER, "Password": PASSWORD}:
            self.sessions += 1
            send(handler, {"Id": "7"}, 201, **{"X-Auth-Token": TOKEN, "Location": f"{SESSIONS}/7"})
        else:
            send(handler, {"error": {"@Message.ExtendedInfo": [{"Message": f"no {body['Password']}"}]}}, 401)

    @staticmethod
    def _is_user(handler):
        return handler.headers["X-Auth-Token"] == TOKEN or handler.headers["Authorization"] == BASIC


def send(handler, answer, status=200, **headers):
    """Send an answer: an object as JSON, or bytes as they are."""
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", "Content-Length": len(content), **headers}.items():
        handler.send_header(name, str(value))
    handler.end_headers()
    with contextlib.suppress(OSError):
        handler.wfile.write(content)


@contextlib.contextmanager
def serving(resources):
    """Run a BMC with these resources, whose threads end with the tests. Yields a Bmc."""
    bmc = Bmc(resources)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            bmc.answer(self, "GET")

        def do_POST(self):
            bmc.answer(self, "POST")

        def do_DELETE(self):
            bmc.answer(self, "DELETE")

        def log_message(self, *_arguments):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments):
            """Say nothing of clients that go away."""

    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate())
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    bmc.host = f"127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield bmc
    finally:
        server.shutdown()
        server.server_close()


def access(host, **changes):
    """Return how to reach a BMC: with its certificate, user and password."""
    fields = {"user": USER, "password": PASSWORD, "token": "", "validate_certs": True, "ca_path": certificate()[0]}
    return client.Access(host=host, **{**fields, "seconds": 20, **changes})


def read(resources, kernel=None, system=None, by_session=True, **changes):
    """Return the facts of a BMC with these resources, by the real client."""
    with serving(resources) as bmc:
        return read_from(bmc, kernel, system, by_session, **changes)


def read_from(bmc, kernel=None, system=None, by_session=True, **changes):
    """Return the facts of a BMC that runs already."""
    request = facts.Request(by_session, system, None if kernel is None else agreement.kernel_of(kernel))
    return facts.gather(client.Client(access(bmc.host, **changes), open_url), request)


def run_module(host, check=False, **options):
    """Run the real module as Ansible does on a host, in a process of its own. Returns what it prints, as text."""
    arguments = {"baseuri": host, "username": USER, "password": PASSWORD, "ca_path": certificate()[0], **options}
    given = {name: value for name, value in arguments.items() if value is not None}
    name = "ansible_collections.threadwise.smt.plugins.modules.smt_firmware_facts"
    done = subprocess.run(
        [sys.executable, "-m", name],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {**given, "_ansible_check_mode": check}}),
        env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def kernel(**changes):
    """Return facts ``smt`` of a host with SMT in use, as far as they count here."""
    fields = {"supported": True, "active": True, "control": "on", "hypervisor": None, "boot": {"running": []}}
    return {**fields, **changes}


ONE_THREAD = kernel(supported=False, active=False, control="notsupported")


def small(attributes, settings=None, system=None, bios=None, **more):
    """Return the resources of a small BMC with one system.

    Args:
        attributes: of its BIOS.
        settings: attributes that are staged; None where it has no such resource.
        system: further fields of the system.
        bios: further fields of the BIOS.
        more: further resources, by their path below ``/redfish/v1/Systems/1/``.
    """
    top = "/redfish/v1"
    found = {
        top: {
            "Systems": {"@odata.id": f"{top}/Systems"},
            "Registries": {"@odata.id": f"{top}/Registries"},
            "Links": {"Sessions": {"@odata.id": SESSIONS}},
        },
        f"{top}/Systems": {"Members": [{"@odata.id": f"{top}/Systems/1"}]},
        f"{top}/Systems/1": {"Bios": {"@odata.id": f"{top}/Systems/1/Bios"}, **(system or {})},
        f"{top}/Systems/1/Bios": {
            "@odata.id": f"{top}/Systems/1/Bios",
            "@Redfish.Settings": {"SettingsObject": {"@odata.id": f"{top}/Systems/1/Bios/Settings"}},
            "Attributes": attributes,
            **(bios or {}),
        },
        **{f"{top}/Systems/1/{path}": answer for path, answer in more.items()},
    }
    if settings is not None:
        found[f"{top}/Systems/1/Bios/Settings"] = {"Attributes": settings}
    return found
