#!/usr/bin/env bash
# usage: setup.sh PYTHON VENV LOCK
# Makes the Python environment of exactly the packages that LOCK names, and makes this working tree importable in it as the collection threadwise.smt.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
venv=$2
lock=$3

command -v "$python" >/dev/null || { echo "setup: $python not found: name yours with 'make PYTHON=...' (3.11 or later)" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "setup: $python is older than 3.11: name another with 'make PYTHON=...'" >&2; exit 1; }
# Debian splits venv's ensurepip off python3: without it a venv has no pip.
"$python" -c 'import ensurepip' 2>/dev/null || tools/debian-packages.sh python3-venv

echo "setup: Python environment in $venv"
"$python" -m venv --clear "$venv"
pip() { "$venv/bin/pip" --quiet --disable-pip-version-check "$@"; }
# uv does in seconds what takes pip more than a minute. It reads nothing of pip's configuration: where only that leads to a registry, pip does it.
pip install --no-deps --require-hashes -r <(awk '/^uv==/ { found = 1 } found { print } found && !/\\$/ { exit }' requirements/dev.lock)
export UV_LINK_MODE=copy UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1
wanted=(install --quiet --no-deps --require-hashes -r "$lock")
"$venv/bin/uv" pip "${wanted[0]}" --no-config --python "$venv/bin/python" "${wanted[@]:1}" 2>"$venv/uv.log" || {
  echo "setup: uv could not install the packages ($venv/uv.log says why): pip does it, which takes longer"
  pip "${wanted[@]}"
}

# Collections are found through sys.path, so a link inside the venv is enough: no configuration, no link in the repository.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$site/ansible_collections/threadwise"
ln -sfn "$PWD" "$site/ansible_collections/threadwise/smt"

# Other collections come out of the "ansible" package of the Python registry, which carries them: there with and without Galaxy, and pinned.
wheel=$(mktemp -d)
trap 'rm -rf "$wheel"' EXIT
pip download --no-deps --require-hashes -d "$wheel" -r requirements/collections.lock
"$venv/bin/python" - "$wheel" "$site" <<'PY'
import pathlib
import sys
import zipfile

wheels, site = sys.argv[1:]
with zipfile.ZipFile(next(pathlib.Path(wheels).glob("ansible-*.whl"))) as archive:
    wanted = tuple(f"ansible_collections/{name}/" for name in ("ansible/posix", "community/general"))
    archive.extractall(site, [name for name in archive.namelist() if name.startswith(wanted)])
PY
found=$("$venv/bin/ansible-galaxy" collection list 2>/dev/null | grep -E '^(threadwise.smt|ansible.posix|community.general) ' || true)
echo "$found"
[ "$(wc -l <<<"$found")" -eq 3 ] || { echo "setup: the collections did not come up in $venv" >&2; exit 1; }
