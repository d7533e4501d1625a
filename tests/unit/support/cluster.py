# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of one node behind kubectl, whose state is a file: as a program, or as a function."""

import json
import pathlib
import sys

NODE = {
    "metadata": {"name": "worker", "annotations": {}, "labels": {}},
    "spec": {},
    "status": {"conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}]},
}
NEW = {"node": NODE, "renewed": 0, "speaks": True, "pods": ["app"], "stuck": [], "calls": [], "fails": []}


def answer(state, words):
    """Return the status, the output and the errors of kubectl."""
    state["calls"].append(" ".join(words))
    if any(" ".join(words).startswith(one) for one in state["fails"]):
        return 1, "", "error: You must be logged in to the server (Unauthorized)"
    if words[0] != "drain" and words[2] != "worker":
        return 1, "", f'Error from server (NotFound): nodes "{words[2]}" not found'
    done = {"get node": _node, "get lease": _lease, "patch node": _patch}.get(" ".join(words[:2]), _drain)
    return done(state, words)


def _node(state, _words):
    return 0, json.dumps(state["node"]), ""


def _lease(state, _words):
    state["renewed"] += bool(state["speaks"])
    return 0, json.dumps({"spec": {"renewTime": f"2026-01-01T00:00:{state['renewed']:02}.000000Z"}}), ""


def _patch(state, words):
    patch = json.loads(words[words.index("--patch") + 1])
    node = state["node"]
    for given, mine in (
        (patch.get("spec", {}), node["spec"]),
        *((patch.get("metadata", {}).get(key, {}), node["metadata"][key]) for key in ("annotations", "labels")),
    ):
        mine.update(given)
        for name in [name for name, value in mine.items() if value is None]:
            del mine[name]
    return 0, "node/worker patched", ""


def _drain(state, words):
    if state["stuck"]:
        return 1, "", f"error: cannot delete Pods that declare no controller: {', '.join(state['stuck'])}"
    if "--dry-run=client" not in words:
        state["node"]["spec"]["unschedulable"] = True
        state["pods"] = []
    return 0, "node/worker drained", ""


def main():
    """What kubectl prints; the state is in the file that the first argument names."""
    path = pathlib.Path(sys.argv[1])
    state = json.loads(path.read_text())
    status, output, errors = answer(state, sys.argv[2:])
    path.write_text(json.dumps(state))
    sys.stdout.write(output)
    sys.stderr.write(errors)
    return status


if __name__ == "__main__":
    sys.exit(main())
