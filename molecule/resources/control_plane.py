# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server of Kubernetes on this machine, with Debian's etcd: what kubectl and a kubelet of a guest speak to.

Without a scheduler and controllers: pods are given their node by hand, and nobody says of a node that its kubelet is
gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import time

import calls
import kube

ROOT = pathlib.Path(__file__).resolve().parents[2]


class ControlPlane:
    """Runs while it is a context.

    Args:
        folder: for its files.
    """

    def __init__(self, folder):
        self.folder, self.token = pathlib.Path(folder), secrets.token_hex(16)
        self.etcd, self.peers, self.port = _free_ports(3)

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            subprocess.run([ROOT / "tools/debian-packages.sh", "etcd-server", "openssl"], check=True)
            where = f"http://127.0.0.1:{self.etcd}"
            peers = f"http://127.0.0.1:{self.peers}"
            etcd = ["etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync"]
            etcd += ["--listen-client-urls", where, "--advertise-client-urls", where]
            etcd += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
            self._start(stack, [*etcd, "--initial-cluster", f"default={peers}"])
            key, tokens = self.folder / "accounts.key", self.folder / "tokens.csv"
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
            tokens.write_text(f"{self.token},admin,admin,system:masters\n")
            server = [kube.built("kube-apiserver"), "--etcd-servers", where, "--bind-address", "127.0.0.1"]
            server += ["--secure-port", str(self.port), "--cert-dir", self.folder / "certificates"]
            server += ["--service-cluster-ip-range", "10.96.0.0/24", "--authorization-mode", "AlwaysAllow"]
            server += ["--token-auth-file", tokens, "--disable-admission-plugins", "ServiceAccount"]
            server += ["--service-account-issuer", "https://lab.invalid", "--service-account-key-file", key]
            self._start(stack, [*server, "--service-account-signing-key-file", key])
            self.kubeconfig.write_text(self.config)
            self._wait()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exception):
        self._stack.close()

    @property
    def kubeconfig(self):
        """The file for a kubectl of this machine."""
        return self.folder / "kubeconfig"

    @property
    def config(self):
        """The kubeconfig of whoever has the API server at its port of loopback."""
        cluster = {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "lab", "cluster": cluster}],
                "users": [{"name": "admin", "user": {"token": self.token}}],
                "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "admin"}}],
                "current-context": "lab",
            }
        )

    @contextlib.contextmanager
    def at_loopback_of(self, guest):
        """A guest, which reaches nothing by itself, has the API server at the same port, also after its next boot."""
        options = f"-N -o ExitOnForwardFailure=yes -o ServerAliveInterval=5 -R {self.port}:127.0.0.1:{self.port}"
        loop = f"while :; do {calls.ssh(guest, options)}; sleep 1; done"
        with (self.folder / "tunnel.log").open("w") as log:
            process = subprocess.Popen(
                ["sh", "-c", loop], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def kubectl(self, *words, given=None):
        """What kubectl prints."""
        command = [kube.built("kubectl"), "--kubeconfig", self.kubeconfig, *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _start(self, stack, command):
        log = stack.enter_context((self.folder / f"{pathlib.Path(command[0]).name}.log").open("w"))
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        stack.callback(process.wait)
        stack.callback(process.kill)

    def _wait(self):
        """Wait until there are the namespaces that nodes and pods need."""
        for _attempt in range(120):
            with contextlib.suppress(AssertionError):
                if {"namespace/default", "namespace/kube-node-lease"} <= set(
                    self.kubectl("get", "namespaces", "-o", "name").split()
                ):
                    return
            time.sleep(1)
        raise AssertionError((self.folder / "kube-apiserver.log").read_text()[-4000:])


def _free_ports(number):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _port in range(number)]
        return [one.getsockname()[1] for one in sockets]
