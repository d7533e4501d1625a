#!/usr/bin/env bash
# usage: archive.sh IMPORTER
# Holds what a user gets: builds the archive of what git would commit, installs it elsewhere, lints it there, and has Galaxy's importer read it, also as
# version 1.0.0. IMPORTER is the Python environment with galaxy-importer.
set -euo pipefail
cd "$(dirname "$0")/.."
importer=$PWD/$1/bin
work=$PWD/.cache/archive
rm -rf "$work"
mkdir -p "$work/tree"
git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || cp --parents -- "$file" "$work/tree"
done

# The importer reports what it does as INFO: without that it has no word for an archive without faults. Its linter gives up after three minutes.
export GALAXY_IMPORTER_LOG_LEVEL_MAIN=WARNING GALAXY_IMPORTER_CHECK_REQUIRED_TAGS=true
import() {
    local said
    said=$(cd "$work" && env -u PYTHONPATH -u ANSIBLE_COLLECTIONS_PATH PATH="$importer:$PATH" python -m galaxy_importer.main "$1" 2>&1) || { echo "$said" >&2; return 1; }
    if [ -n "$said" ]; then
        echo "$said" >&2
        return 1
    fi
    echo "archive: galaxy-importer has no word for ${1##*/}"
}
build() { ansible-galaxy collection build --output-path "$work" "$work/tree" >/dev/null; }

build
archive=$(echo "$work"/threadwise-smt-*.tar.gz)
ansible-galaxy collection install --offline --no-deps --force -p "$work/installed" "$archive" >/dev/null 2>&1
(cd "$work/installed/ansible_collections/threadwise/smt" && ANSIBLE_COLLECTIONS_PATH="$work/installed" ansible-lint --profile production --offline --nocolor)
import "$archive"

sed -i 's/^version: .*/version: 1.0.0/' "$work/tree/galaxy.yml"
build
export GALAXY_IMPORTER_REQUIRE_V1_OR_GREATER=true
import "$work/threadwise-smt-1.0.0.tar.gz"
