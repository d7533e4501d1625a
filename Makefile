# Everything a fresh Debian 12 with git, make and Python 3.11 needs comes from these targets.
# `make help` lists them; README.md says when to use which.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
CACHE := .cache

# The venv first in PATH, so that ansible, molecule and lab find each other and no other Python is picked up.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export ANSIBLE_HOME := $(CURDIR)/$(CACHE)/ansible

.PHONY: help
help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | sort | expand -t 16

.PHONY: setup
setup: $(VENV)/.ready ## Python environment with Ansible, in which threadwise.smt resolves to this working tree

$(VENV)/.ready: requirements.txt requirements-dev.txt tools/setup.sh
	tools/setup.sh $(PYTHON) $(VENV)
	touch $@
