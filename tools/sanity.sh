#!/usr/bin/env bash
# usage: sanity.sh [--day] [ARGUMENT OF ansible-test SANITY...]
# Runs ansible-test sanity on the working tree, without an ignore file. --day: three of its tests, of what changed since the last release or the last `make test`
# that was green, else of all modules, plugins and roles.
# ansible-test wants the collection at a real path .../ansible_collections/threadwise/smt: it gets a copy of what git would commit.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/.cache/sanity
chosen=()
if [ "${1:-}" = --day ]; then
    shift
    since=$(cat .cache/results/green 2>/dev/null || git describe --tags --abbrev=0 2>/dev/null) || since=$(git hash-object -t tree /dev/null)
    mapfile -t chosen < <(git diff --name-only --diff-filter=d "$since" -- plugins roles tools '*.py' ':!tests' ':!molecule'; git ls-files --others --exclude-standard plugins roles)
    [ "${#chosen[@]}" -gt 0 ] || { echo "sanity: nothing changed since $since"; exit 0; }
    chosen=(--test validate-modules --test import --test compile "${chosen[@]}")
fi
# The environments that ansible-test makes for itself, in minutes, are the same for each clone: they lie in the user's cache, under what they are made from.
made_from=$(python -c 'import ansible.release, sys; print("ansible-core-%s-python-%d.%d" % (ansible.release.__version__, *sys.version_info[:2]))')
base=${XDG_CACHE_HOME:-}
[[ $base == /* ]] || base=$HOME/.cache
home=$base/threadwise-smt/sanity/$made_from
mkdir -p "$work" "$home/.ansible/test/cache"
exec 9>"$home/lock"
flock --nonblock 9 || { echo "sanity: waiting for another run in $home"; flock 9; }

# ansible-test fetches its pip from a host of its own, which a closed network does not reach: it looks into this cache first.
for version in 20.3.4 21.3.1 24.2 25.2; do
    cat >"$home/.ansible/test/cache/get_pip_${version//./_}.py" <<PY
import subprocess
import sys

subprocess.check_call([sys.executable, "-m", "ensurepip", "--default-pip"], stdout=subprocess.DEVNULL)
subprocess.check_call([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip==$version"])
PY
done

collection=$work/ansible_collections/threadwise/smt
rm -rf "$collection"
mkdir -p "$collection"
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
done | tar -cf - --null -T - | tar -xf - -C "$collection"
cd "$collection"
git init --quiet && git add -A
version=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
HOME=$home ansible-test sanity --venv --requirements --python "$version" --color no "${chosen[@]}" "$@"
