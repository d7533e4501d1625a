# Everything that a fresh Debian 12 with git, make and Python 3.11 lacks comes from these targets.
# `make help` lists them; README.md says when to use which.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3.11
VENV := .venv
LAB_SHAPE ?= 2x2x2

# The venv comes first, so that ansible, molecule and the laboratory find each other and no other Python is picked up.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Where it is set, each of hundreds of calls compiles all of Ansible again, which takes as long as the call itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## what can be made
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z -]+):.*## /\1\t/' | sort | expand -t 16

.PHONY: setup
setup: $(VENV)/.ready ## Python environment in which threadwise.smt is this working tree

$(VENV)/.ready: requirements-dev.lock requirements-collections.lock tools/setup.sh
	tools/setup.sh $(PYTHON) $(VENV) requirements-dev.lock
	touch $@

# The oldest versions of libraries that requirements.txt names.
LOWEST := .cache/lowest
$(LOWEST)/.ready: requirements-lowest.lock requirements-collections.lock tools/setup.sh
	tools/setup.sh $(PYTHON) $(LOWEST) requirements-lowest.lock
	touch $@

# What Galaxy does with an archive that is published.
IMPORTER := .cache/importer
$(IMPORTER)/.ready: requirements-importer.lock requirements-collections.lock tools/setup.sh
	tools/setup.sh $(PYTHON) $(IMPORTER) requirements-importer.lock
	touch $@

# What takes alerts in examples/eda.
RULEBOOK := .cache/rulebook
$(RULEBOOK)/.ready: requirements-rulebook.lock
	$(PYTHON) -m venv --clear $(RULEBOOK)
	$(RULEBOOK)/bin/pip --quiet --disable-pip-version-check install --no-deps --require-hashes -r $<
	touch $@

.PHONY: archive
archive: setup $(IMPORTER)/.ready ## the archive as a user gets it: built, installed and tried as the README says, linted, read by Galaxy's importer
	python tools/archive.py $(IMPORTER)

.PHONY: release
release: setup $(IMPORTER)/.ready ## the archive of a release: make release REPOSITORY=https://HOST/PATH; publishes nothing
	python tools/release.py $(IMPORTER) "$${REPOSITORY:-}"

# Other releases of ansible-core. The newest one needs a newer Python than Debian's.
CORES := 2.16 2.18
.cache/core-%/.ready: requirements-core-%.lock $(VENV)/.ready tools/core.sh
	tools/core.sh $(VENV) $(@D) $<
	touch $@
NEWER_PYTHON = $(firstword $(foreach python,python3.14 python3.13 python3.12,$(shell $(python) -c 'print("$(python)")' 2>/dev/null)))
.cache/core-newest/.ready: requirements-dev.lock requirements-collections.lock tools/setup.sh
	tools/setup.sh $(NEWER_PYTHON) $(@D) requirements-dev.lock
	touch $@

.PHONY: registries
registries: setup ## write what is generated: options, lists of alternatives, such as boot loaders, and published schemas, after their source was changed
	python tools/registries.py

.PHONY: lock
lock: setup ## pin what the set-up installs anew, to the newest versions that requirements*.txt allow
	tools/lock.sh

.PHONY: eval
eval: setup ## evaluate this machine, about three minutes
	tools/debian-packages.sh gzip sysbench
	ansible-playbook -i tools/this-machine.yml playbooks/smt_eval.yml -e smt_eval_budget=150

.PHONY: lab
lab: setup ## two guests with real SMT, .lab/inventory.yml; LAB_SHAPE=2x9x2 gives other sockets x cores x threads
	python lab/lab.py up --shape $(LAB_SHAPE)

.PHONY: lab-down
lab-down: setup ## end exactly what `make lab` started
	python lab/lab.py down --name smt-adjacent --name smt-split

.PHONY: test
test: ## everything that CI runs: unit tests, pages in a browser, lint, sanity, scenarios on guests
	$(MAKE) --no-print-directory --jobs=2 $(LOWEST)/.ready .cache/core-$(firstword $(CORES))/.ready
	python tools/test.py test

.PHONY: bare
bare: ## the proof before a release: `make eval` and `make test` on a bare Debian 12, as root
	$(PYTHON) lab/bare.py

.PHONY: scenarios
scenarios: setup $(RULEBOOK)/.ready ## all longer scenarios on guests, `make long` and `make kills`, hours; not part of `make test`
	python tools/test.py scenarios

.PHONY: unit field playbooks browser lint sanity
unit field playbooks browser lint sanity: setup ## one step of `make test`
	python tools/test.py $@

.PHONY: long
long: setup ## the playbooks that take most of a minute each, and more of what `make unit` tests; not part of `make test`
	python tools/test.py $@ unit-long

.PHONY: kills
kills: setup ## rollouts, evaluations and pulls that are ended half way, minutes each; not part of `make test`
	python tools/test.py $@ pull-kills

.PHONY: remediation
remediation: setup $(RULEBOOK)/.ready ## from an alert to smt_enforce, as in examples/eda, needs Java; not part of `make test`
	python tools/test.py $@

.PHONY: airlock
airlock: setup ## hosts that ask airlock, the reference server of FleetLock: make airlock AIRLOCK=PROGRAM; not part of `make test`
	@command -v "$${AIRLOCK:-airlock}" >/dev/null || { echo 'airlock: the program is missing, and is not installed by this: give its path, make airlock AIRLOCK=PROGRAM' >&2; exit 1; }
	AIRLOCK="$$(command -v "$${AIRLOCK:-airlock}")" python -m pytest -q --durations 10 tests/airlock

.PHONY: recipes
recipes: setup ## each recipe of docs/tools.md with its tool, of Debian; JMH_JARS=FOLDER adds JMH; not part of `make test`
	python tools/test.py $@

.PHONY: hostile
hostile: setup ## 3,000 answers of compromised hosts beside honest ones, each attack that has a name alone, 1,000 sets of facts; not part of `make test`
	tools/debian-packages.sh gzip
	FACT_SETS=1000 python -m pytest -q tests/unit/_actions
	HOSTILE_ALONE=1 HOSTILE_ANSWERS=3000 python -m pytest -q -n 2 --dist loadgroup --maxschedchunk 1 --durations 10 tests/hostile

.PHONY: orders
orders: setup ## 20,000 random orders of changes, confirmations, rollbacks and reboots, with a fault at any write; not part of `make test`
	ORDERS=20000 python -m pytest -q tests/unit/_smt/test_orders.py

.PHONY: lowest
lowest: setup $(LOWEST)/.ready ## the step of `make test` with the oldest versions of libraries that requirements.txt names
	python tools/test.py $@

.PHONY: cores
cores: $(CORES:%=.cache/core-%/.ready) ## playbooks with other releases of ansible-core, the newest one if a Python 3.12 or later is found; not part of `make test`
	newest=$(if $(NEWER_PYTHON),core-newest)
	if [ -n "$$newest" ]; then $(MAKE) --no-print-directory .cache/core-newest/.ready
	else echo 'cores: the newest ansible-core is left out: it needs Python 3.12 or later, and none was found'; fi
	python tools/test.py $(CORES:%=core-%) $$newest

.PHONY: scenario
scenario: setup ## one Molecule scenario of molecule/: make scenario SCENARIO=smt_eval
	python tools/test.py $(SCENARIO)

# What makes the documentation site.
DOCS := .cache/docs-python
$(DOCS)/.ready: requirements-docs.lock requirements-collections.lock tools/setup.sh
	tools/setup.sh $(PYTHON) $(DOCS) requirements-docs.lock
	touch $@

.PHONY: docs
docs: $(DOCS)/.ready ## the documentation site, .cache/docs/html/index.html: the README, all pages, the reference of modules, plugins and roles
	PATH="$(CURDIR)/$(DOCS)/bin:$$PATH" tools/docs/build.sh

.PHONY: trial-demo
trial-demo: setup ## the example of a trial: two guests with nginx, clients and a Prometheus on this machine, about 20 minutes
	python examples/trial/laboratory.py

.PHONY: tour
tour: setup ## docs/tour.md anew: its commands are called on guests, its pictures are taken of the pages that they make, about 30 minutes
	python tools/tour.py

.PHONY: calibrate
calibrate: setup ## record pinned samples for half an hour and print how often verdicts are wrong, and what planned looks do; not part of `make test`
	python tests/calibration/record.py .cache/calibration.json.gz
	python tests/calibration/evaluate.py .cache/calibration.json.gz --simulated 150
	python tests/calibration/stopping.py .cache/calibration.json.gz
	python tests/calibration/record.py --equal --sample-seconds 0.02 --seconds 760 .cache/looks.json.gz
	python tests/calibration/looks.py .cache/looks.json.gz --made-up 300

.PHONY: bench
bench: setup ## what reading a host's topology costs beside lscpu, pinning beside taskset, a report of many hosts, validation beside another library; not part of `make test`
	PYTHONPATH=tests/unit/support python tests/benchmarks/bench_facts.py
	python tests/benchmarks/bench_runner.py
	PYTHONPATH=tests/unit/support python tests/benchmarks/bench_report.py --hosts 1000 10000
	PYTHONPATH=tests/unit/support python tests/benchmarks/bench_border.py
	PYTHONPATH=tests/unit/support:tests/playbooks python tests/benchmarks/bench_compliance.py
