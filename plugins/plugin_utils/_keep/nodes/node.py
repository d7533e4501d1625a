# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Kubernetes around a change of its host: drained before, and with pods again when its kubelet has spoken
after it.

That this collection has cordoned a node is an annotation of the node, set and removed in one patch with the cordon: a
controller that dies leaves a node that the next call takes on, and nobody else's cordon is ever lifted.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.nodes import kubectl

ANNOTATION = "threadwise-smt/drained"
# RFC 1123, as Kubernetes has it for names of nodes.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# A kubelet renews its lease every ten seconds (nodeLeaseDurationSeconds / 4).
PAUSE_SECONDS = 2.0
_LEASES = "kube-node-lease"


class NodeError(Exception):
    """The node cannot be drained, or does not come back; the text has the node, the reason and the way out."""


@dataclasses.dataclass(frozen=True)
class Status:
    """A node as the cluster sees it.

    Attributes:
        is_ready: whether its condition Ready is True.
        is_cordoned: whether it gets no pods.
        is_ours: whether this collection has cordoned it.
    """

    is_ready: bool
    is_cordoned: bool
    is_ours: bool


class Node:
    """A node.

    Args:
        name: its name in the cluster.
        run_command: runs kubectl.
        pause: waits.
        now: seconds of a clock that only goes forward.
    """

    def __init__(
        self,
        name: str,
        run_command: kubectl.Run = kubectl.run,
        pause: t.Callable[[float], object] = time.sleep,
        now: t.Callable[[], float] = time.monotonic,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise NodeError(f"{name!r:.100} is no name of a node of Kubernetes: set smt_policy_kubernetes_node")
        self.name, self._run, self._pause, self._now = name, run_command, pause, now

    def status(self) -> Status:
        """Return how the cluster sees the node.

        Raises:
            NodeError: it does not know it, or kubectl cannot be used.
        """
        try:
            node = kubectl.document(self._run, "get", "node", self.name)
        except kubectl.KubectlError as error:
            raise NodeError(f"node {self.name}: {error}") from None
        spec, status, metadata = (_mapping(node, part) for part in ("spec", "status", "metadata"))
        conditions = [condition for condition in _items(status, "conditions") if condition.get("type") == "Ready"]
        return Status(
            is_ready=any(condition.get("status") == "True" for condition in conditions),
            is_cordoned=spec.get("unschedulable") is True,
            is_ours=ANNOTATION in _mapping(metadata, "annotations"),
        )

    def drain(self, options: t.Sequence[str], seconds: int, check: bool) -> bool:
        """Take the pods from the node; return whether it had to be cordoned.

        Args:
            options: of ``kubectl drain``.
            seconds: how long that may take.
            check: only see whether it would be done.

        Raises:
            NodeError: it is not drained, and gets pods as before.
        """
        before = self.status()
        if not before.is_ready:
            # Pods of a kubelet that does not speak do not end: they are deleted, and not waited for.
            options = (*options, "--skip-wait-for-delete-timeout=1")
        try:
            if check:
                self._drain(options, seconds, "--dry-run=client")
                return not before.is_cordoned
            if not before.is_cordoned:
                self._cordon(True)
            self._drain(options, seconds)
        except kubectl.KubectlError as error:
            left = self._given_back(before) if not check else "nothing was changed"
            raise NodeError(f"node {self.name} was not drained, and {left}: {error}") from None
        return not before.is_cordoned

    def ready(self, seconds: int, check: bool) -> bool:
        """Wait until the kubelet of a node that this collection has drained speaks, and let the node have pods.

        Args:
            seconds: how long that may take.
            check: only say whether it would be done.

        Returns:
            whether the node was drained by this collection

        Raises:
            NodeError: it does not come back, and stays cordoned.
        """
        if not self.status().is_ours or check:
            return self.status().is_ours
        try:
            self._wait(seconds)
            self._cordon(False)
        except kubectl.KubectlError as error:
            raise NodeError(
                f"node {self.name} stays cordoned: {error}. When it is well: kubectl uncordon {self.name} && kubectl"
                f" annotate node {self.name} {ANNOTATION}-"
            ) from None
        return True

    def label(self, labels: t.Mapping[str, str]) -> bool:
        """Give the node labels; return whether it had others.

        Args:
            labels: their values, by their names.

        Raises:
            NodeError: kubectl cannot be used.
        """
        try:
            metadata = _mapping(kubectl.document(self._run, "get", "node", self.name), "metadata")
            known = _mapping(metadata, "labels")
            missing = {name: value for name, value in labels.items() if known.get(name) != value}
            if missing:
                self._patch({"metadata": {"labels": missing}})
        except kubectl.KubectlError as error:
            raise NodeError(f"node {self.name} has no labels of its SMT state: {error}") from None
        return bool(missing)

    def _wait(self, seconds: int) -> None:
        """Wait until the node is ready, by a kubelet that has renewed its lease since: the condition alone holds for 40
        seconds after a kubelet has died (node-monitor-grace-period).
        """
        first, end = self._renewed(), self._now() + seconds
        while True:
            if self.status().is_ready and self._renewed() != first:
                return
            if self._now() >= end:
                raise kubectl.KubectlError(f"its kubelet did not say within {seconds} s that it is ready")
            self._pause(PAUSE_SECONDS)

    def _renewed(self) -> str | None:
        """Return when the kubelet has renewed its lease; None where there is none yet."""
        try:
            lease = kubectl.document(self._run, "get", "lease", self.name, "--namespace", _LEASES)
        except kubectl.KubectlError:
            return None
        renewed = _mapping(lease, "spec").get("renewTime")
        return renewed if isinstance(renewed, str) else None

    def _drain(self, options: t.Sequence[str], seconds: int, *more: str) -> None:
        words = ("drain", self.name, *options, *more, f"--timeout={seconds}s")
        kubectl.ask(self._run, *words, seconds=seconds + kubectl.CALL_SECONDS)

    def _cordon(self, is_cordoned: bool) -> None:
        patch = {
            "spec": {"unschedulable": True if is_cordoned else None},
            "metadata": {"annotations": {ANNOTATION: host_text.utc_now() if is_cordoned else None}},
        }
        self._patch(patch)

    def _patch(self, patch: dict[str, t.Any]) -> None:
        kubectl.ask(self._run, "patch", "node", self.name, "--type=merge", "--patch", json.dumps(patch))

    def _given_back(self, before: Status) -> str:
        """Let a node have pods again that this call has cordoned; return what came of it."""
        if before.is_cordoned and not before.is_ours:
            return "was cordoned before, by somebody else"
        try:
            self._cordon(False)
        except kubectl.KubectlError as error:
            return f"stays cordoned ({error})"
        return "gets pods as before"


def _mapping(value: t.Mapping[str, object], key: str) -> dict[str, t.Any]:
    entry = value.get(key)
    return entry if isinstance(entry, dict) else {}


def _items(value: t.Mapping[str, object], key: str) -> list[dict[str, t.Any]]:
    entries = value.get(key)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
