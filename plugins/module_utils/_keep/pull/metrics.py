# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of a pull for node_exporter's textfile collector: how the host was found,
beside how old that is and whether the pull succeeded.

The collector shows a file for ever that nobody replaces, so what is not known any more is removed before all else.
"""

import contextlib
import os
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._keep.pull.errors import PullError
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import metrics as names

MAX_BYTES = 1 << 20
_END = "# EOF\n"
# How its file begins, and no other one of this collection.
_OURS = ("# HELP threadwise_smt_compliant ", _END)
_PULL = {
    "threadwise_smt_pull_success": (
        "1 when the host was judged under the newest commit of its repository, 0 when under an earlier one or not"
        " at all"
    ),
    names.PULL_RUN: "time of the pull that wrote these metrics, in seconds since 1970",
    "threadwise_smt_pull_last_success_timestamp_seconds": "time of the last pull that succeeded, in seconds since 1970",
    "threadwise_smt_pull_commit_info": "1 for the commit whose policy is in use, and for one that was refused",
}
_WHY_UNKNOWN = "the pull could not judge this host: see journalctl -u threadwise-smt-pull.service"


class Outcome(t.NamedTuple):
    """What came of a pull.

    Attributes:
        at: when, in seconds since 1970.
        is_success: whether the host was judged under the newest commit.
        last_success: when a pull last succeeded, in seconds since 1970; None where none did.
        used: the commit whose policy is in use; None where there is none.
        refused: a newer one that cannot be used; None where there is none.
        judged: the metrics that smt_compliance wrote of the host; None where it was not judged.
    """

    at: float
    is_success: bool
    last_success: "float | None"
    used: "str | None"
    refused: "str | None"
    judged: "str | None"


def text(host: str, outcome: Outcome) -> str:
    """Format an outcome as OpenMetrics text; unknown values have no line.

    Args:
        host: its name, without characters that a label would have to escape.
        outcome: of the pull.
    """
    values: dict[str, dict[str, t.Optional[float]]] = {
        "threadwise_smt_pull_success": {"": int(outcome.is_success)},
        names.PULL_RUN: {"": int(outcome.at)},
        "threadwise_smt_pull_last_success_timestamp_seconds": {
            "": None if outcome.last_success is None else int(outcome.last_success)
        },
        "threadwise_smt_pull_commit_info": {
            f',commit="{commit}",use="{use}"': 1
            for use, commit in (("enforced", outcome.used), ("refused", outcome.refused))
            if commit
        },
    }
    head = _unknown(host, outcome.at) if outcome.judged is None else outcome.judged[: -len(_END)]
    return head + "".join(_family(name, _PULL[name], host, samples) for name, samples in values.items()) + _END


def _unknown(host: str, at: float) -> str:
    """Return what smt_compliance says of a host that cannot be judged."""
    labels = ',hardware_class="",status="unknown"'
    samples: dict[str, dict[str, t.Optional[float]]] = {
        names.COMPLIANT: {',hardware_class=""': 0},
        names.STATUS: {labels: 1},
        names.STATUS_TIME: {f'{labels},sentence="{_WHY_UNKNOWN}"': int(at)},
    }
    return "".join(_family(name, names.HELP[name], host, of_name) for name, of_name in samples.items())


def _family(name: str, description: str, host: str, samples: "t.Mapping[str, float | None]") -> str:
    lines = [f'{name}{{host="{host}"{labels}}} {value}\n' for labels, value in samples.items() if value is not None]
    return f"# HELP {name} {description}\n# TYPE {name} gauge\n{''.join(lines)}" if lines else ""


def write(path: str, content: str) -> None:
    """Replace the file of metrics; where there is no room, remove the old one, which would be taken for the present.

    Args:
        path: of the file.
        content: its new text.

    Raises:
        PullError: it is somebody else's file, or cannot be written; in the latter case there is none.
    """
    fs, name = files.HostFs(os.path.dirname(path)), os.path.basename(path)
    head = fs.head(name, max(map(len, _OURS)))
    if head and not head.startswith(_OURS):
        raise PullError(
            f"{path} is there, and smt_pull did not write it: set smt_pull_metrics to another path, or move it away"
        )
    try:
        fs.write(name, content)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        try:
            # What was removed may leave the room.
            fs.write(name, content)
        except OSError as error:
            raise PullError(f"{path} cannot be written, so there are no metrics: {error}") from None
