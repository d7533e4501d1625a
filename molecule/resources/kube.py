# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of Kubernetes, built from the Go module proxy, and an image for pods that needs no registry."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile

VERSION = "1.33.13"
CACHE = pathlib.Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / ".cache" / f"kubernetes-{VERSION}"
IMAGE = "lab.invalid/sleep:1"
_NEEDS = '//go:build tools\n\npackage main\n\nimport _ "k8s.io/kubernetes/cmd/{}"\n'


def built(program):
    """The path of a program of Kubernetes, such as kubelet, which takes minutes once."""
    path = CACHE / program
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        where = CACHE / f"{program}-source"
        where.mkdir(exist_ok=True)
        (where / "tools.go").write_text(_NEEDS.format(program))
        (where / "go.mod").write_text(f"module lab\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v{VERSION}\n")
        answer = json.loads(_go(where, "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"))
        # What Kubernetes takes from folders beside it is published under versions that begin with 0.
        beside = re.findall(r"^\s*(\S+) => \./staging", pathlib.Path(answer["GoMod"]).read_text(), re.MULTILINE)
        replaced = "".join(f"replace {name} => {name} v0{VERSION[1:]}\n" for name in beside)
        with (where / "go.mod").open("a") as file:
            file.write(replaced)
        _go(where, "mod", "tidy", "-e")
        said = f"-s -w -X k8s.io/component-base/version.gitVersion=v{VERSION}"
        options = ("-mod=mod", "-trimpath", "-ldflags", said, "-o", str(path))
        _go(where, "build", *options, f"k8s.io/kubernetes/cmd/{program}")
    return path


def image(busybox):
    """An image, as ``docker save`` writes it, of one program that sleeps; it is the pause container, too."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo("busybox")
        entry.size, entry.mode = len(busybox), 0o755
        tar.addfile(entry, io.BytesIO(busybox))
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/busybox", "sleep", "1000000"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]).encode()
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for path, content in (("layer.tar", layer.getvalue()), (name, config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def _go(where, *words):
    done = subprocess.run(
        ("go", *words),
        cwd=where,
        env={**os.environ, "CGO_ENABLED": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
