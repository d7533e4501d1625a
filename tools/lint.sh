#!/usr/bin/env bash
# What is held about the form of everything here: Python, its types, YAML, roles and playbooks, changelog, documentation.
set -euo pipefail
cd "$(dirname "$0")/.."
ruff format --check --diff .
ruff check .
tools/types.sh
python tools/registries.py --check
yamllint --config-file .config/yamllint.yml --strict .
ansible-lint
antsibull-changelog lint
antsibull-docs lint-collection-docs --plugin-docs .
