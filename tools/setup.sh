#!/usr/bin/env bash
# usage: setup.sh PYTHON VENV
# Makes the Python environment, and makes this working tree importable in it as the collection threadwise.smt.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
venv=$2

command -v "$python" >/dev/null || { echo "setup: $python not found: name yours with 'make PYTHON=...' (3.11 or later)" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "setup: $python is older than 3.11: name another with 'make PYTHON=...'" >&2; exit 1; }
# Debian splits venv's ensurepip off python3: without it a venv has no pip.
"$python" -c 'import ensurepip' 2>/dev/null || tools/debian-packages.sh python3-venv

echo "setup: Python environment in $venv"
"$python" -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements-dev.txt

# Collections are found through sys.path, so a link inside the venv is enough: no configuration, no link in the repository.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$site/ansible_collections/threadwise"
ln -sfn "$PWD" "$site/ansible_collections/threadwise/smt"

# Other collections come from Galaxy where it answers, and else out of the "ansible" package of the Python registry, which carries them.
if ! "$venv/bin/ansible-galaxy" collection install --timeout 10 -p "$site" -r requirements-dev.yml >/dev/null 2>&1; then
    wheel=$(mktemp -d)
    trap 'rm -rf "$wheel"' EXIT
    "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps -d "$wheel" ansible
    "$venv/bin/python" - "$wheel" "$site" <<'PY'
import pathlib
import sys
import zipfile

wheels, site = sys.argv[1:]
with zipfile.ZipFile(next(pathlib.Path(wheels).glob("ansible-*.whl"))) as archive:
    wanted = tuple(f"ansible_collections/{name}/" for name in ("ansible/posix", "community/general"))
    archive.extractall(site, [name for name in archive.namelist() if name.startswith(wanted)])
PY
fi
"$venv/bin/ansible-galaxy" collection list 2>/dev/null | grep -E '^(threadwise.smt|ansible.posix|community.general) ' \
    || { echo "setup: the collections did not come up in $venv" >&2; exit 1; }
