#!/usr/bin/env bash
# usage: core.sh VENV CORE LOCK
# Makes the Python environment CORE that has the release of ansible-core that LOCK names, and everything else from the environment VENV.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
core=$2
lock=$3

echo "core: Python environment in $core"
"$venv/bin/python" -m venv --clear --without-pip "$core"
"$venv/bin/pip" --quiet --disable-pip-version-check --python "$core/bin/python" install --no-deps --require-hashes -r "$lock"
# Python looks there last, so what was just installed comes first.
site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }
site "$venv" >"$(site "$core")/rest.pth"
"$core/bin/ansible" --version | sed -n 1p
