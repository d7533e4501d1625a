#!/usr/bin/env bash
# Holds the types of what runs on hosts and on the controller. mypy passes over what lies in an environment's packages, where the set-up puts the collection:
# it is shown the working tree under the collection's name.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/.cache/types
mkdir -p "$work/ansible_collections/threadwise"
ln -sfn "$PWD" "$work/ansible_collections/threadwise/smt"
name=ansible_collections.threadwise.smt.plugins
cd "$work"
MYPYPATH=$work mypy --config-file "$OLDPWD/pyproject.toml" --cache-dir "$work/cache" -p "$name.module_utils" -p "$name.plugin_utils"
