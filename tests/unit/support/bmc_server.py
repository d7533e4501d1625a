# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A BMC: a real HTTPS server on loopback that answers with recorded or with made resources."""

import atexit
import base64
import contextlib
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import prometheus_server
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
    key, cert = str(directory / "key.pem"), str(directory / "cert.pem")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


class Bmc:
    """A BMC of resources: path -> what is answered: an object, or a function of the handler that answers by itself.

    Attributes:
        host: its address with the port.
        asked: method and path of each request, in order.
        sessions: how many are open.
    """

    def __init__(self, resources):
        self.resources = {path.rstrip("/"): answer for path, answer in resources.items()}
        self.host, self.asked, self.heads, self.sessions = "", [], [], 0

    def answer(self, handler):
        """Answer a request, as a BMC does that has users."""
        path, method = handler.path.partition("?")[0], handler.command
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
        body = json.load(handler.rfile)
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
    content = answer if isinstance(answer, bytes) else json.dumps(answer)
    with contextlib.suppress(OSError):
        prometheus_server.send(handler, content, status, **headers)


@contextlib.contextmanager
def serving(resources):
    """Run a BMC with these resources. Yields a Bmc."""
    bmc = Bmc(resources)
    with prometheus_server.serving(bmc.answer, certificate()) as address:
        bmc.host = address.removeprefix("https://")
        yield bmc


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
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    how = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    asked = json.dumps({"ANSIBLE_MODULE_ARGS": {**given, "_ansible_check_mode": check}})
    return subprocess.run([sys.executable, "-m", name], input=asked, check=False, **how).stdout


def kernel(**changes):
    """Return facts ``smt`` of a host with SMT in use, as far as they count here."""
    fields = {"supported": True, "active": True, "control": "on", "hypervisor": None, "boot": {"running": []}}
    return {**fields, **changes}


ONE_THREAD = kernel(supported=False, active=False, control="notsupported")


def small(attributes, settings=None, system=None, bios=None, **more):
    """Return the resources of a small BMC with one system: of its BIOS, what is staged, and ``more`` by their path."""
    top, one = "/redfish/v1", "/redfish/v1/Systems/1"
    staged = {"SettingsObject": {"@odata.id": f"{one}/Bios/Settings"}}
    parts = {name: {"@odata.id": f"{top}/{name}"} for name in ("Systems", "Registries")}
    found = {
        top: {**parts, "Links": {"Sessions": {"@odata.id": SESSIONS}}},
        f"{top}/Systems": {"Members": [{"@odata.id": one}]},
        one: {"Bios": {"@odata.id": f"{one}/Bios"}, **(system or {})},
        f"{one}/Bios": {
            "@odata.id": f"{one}/Bios",
            "@Redfish.Settings": staged,
            "Attributes": attributes,
            **(bios or {}),
        },
        **{f"{one}/{path}": answer for path, answer in more.items()},
    }
    return found if settings is None else {**found, f"{one}/Bios/Settings": {"Attributes": settings}}
