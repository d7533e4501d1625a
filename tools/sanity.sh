#!/usr/bin/env bash
# Runs ansible-test sanity on the working tree, without an ignore file.
# ansible-test wants the collection at a real path .../ansible_collections/threadwise/smt: it gets a copy of what git would commit.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$PWD/.cache/sanity
mkdir -p "$cache/home/.ansible/test/cache"

# ansible-test fetches its pip from a host of its own, which a closed network does not reach: it looks into this cache first.
for version in 20.3.4 21.3.1 24.2 25.2; do
    cat >"$cache/home/.ansible/test/cache/get_pip_${version//./_}.py" <<PY
import subprocess
import sys

subprocess.check_call([sys.executable, "-m", "ensurepip", "--default-pip"], stdout=subprocess.DEVNULL)
subprocess.check_call([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip==$version"])
PY
done

# tests/output stays from run to run: it holds the environment that ansible-test makes for itself.
collection=$cache/ansible_collections/threadwise/smt
mkdir -p "$collection"
find "$collection" -mindepth 1 -maxdepth 1 ! -name tests -exec rm -rf {} +
find "$collection" -mindepth 2 -maxdepth 2 -path '*/tests/*' ! -name output -exec rm -rf {} +
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
done | tar -cf - --null -T - | tar -xf - -C "$collection"
cd "$collection"
git init --quiet && git add -A
version=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
HOME=$cache/home ansible-test sanity --venv --requirements --python "$version" --color no "$@"
