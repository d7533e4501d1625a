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

$(VENV)/.ready: requirements/dev.lock requirements/collections.lock tools/setup.sh
	tools/setup.sh $(PYTHON) $(VENV) requirements/dev.lock
	touch $@

# The oldest versions of libraries that requirements.txt names.
LOWEST := .cache/lowest
$(LOWEST)/.ready: requirements/lowest.lock requirements/collections.lock tools/setup.sh
	tools/setup.sh $(PYTHON) $(LOWEST) requirements/lowest.lock
	touch $@

# What Galaxy does with an archive that is published.
IMPORTER := .cache/importer
$(IMPORTER)/.ready: requirements/importer.lock requirements/collections.lock tools/setup.sh
	tools/setup.sh $(PYTHON) $(IMPORTER) requirements/importer.lock
	touch $@

# What takes alerts in examples/eda.
RULEBOOK := .cache/rulebook
$(RULEBOOK)/.ready: requirements/rulebook.lock
	$(PYTHON) -m venv --clear $(RULEBOOK)
	$(RULEBOOK)/bin/pip --quiet --disable-pip-version-check install --no-deps --require-hashes -r $<
	touch $@

.PHONY: archive
archive: setup $(IMPORTER)/.ready ## the archive as a user gets it: built, installed and tried as the README says, linted, read by Galaxy's importer
	python tools/results.py run $@ python tools/archive.py $(IMPORTER)

.PHONY: release
release: setup $(IMPORTER)/.ready ## the archive of a release: make release REPOSITORY=https://HOST/PATH; publishes nothing
	python tools/release.py $(IMPORTER) "$${REPOSITORY:-}"

# Releases of ansible-core beside that of `make setup`. The last two need a newer Python than Debian's 3.11.
CORES := core-2.16 core-2.17 core-2.18
NEWER_CORES := core-2.20 core-newest
.cache/core-%/.ready: requirements/core-%.lock $(VENV)/.ready tools/core.sh
	tools/core.sh $(VENV) $(@D) $<
	touch $@
NEWER_PYTHON = $(firstword $(foreach python,python3.14 python3.13 python3.12,$(shell $(python) -c 'print("$(python)")' 2>/dev/null)))
.cache/core-2.20/.ready: requirements/core-2.20.lock .cache/core-newest/.ready tools/core.sh
	tools/core.sh .cache/core-newest $(@D) $<
	touch $@
.cache/core-newest/.ready: requirements/dev.lock requirements/collections.lock tools/setup.sh
	tools/setup.sh $(NEWER_PYTHON) $(@D) requirements/dev.lock
	touch $@

.PHONY: registries
registries: setup ## write what is generated: options, lists of alternatives, such as boot loaders, and published schemas, after their source was changed
	python tools/registries.py

.PHONY: lock
lock: setup ## pin what the set-up installs anew, to the newest versions that requirements.txt and requirements/*.txt allow
	tools/lock.sh

.PHONY: eval
eval: setup ## evaluate this machine, about three minutes
	tools/debian-packages.sh gzip sysbench
	ansible-playbook -i tools/this-machine.yml playbooks/smt_eval.yml -e smt_eval_budget=150

.PHONY: lab
lab: setup ## two guests with real SMT, .lab/inventory.yml; LAB_SHAPE=2x9x2 gives other sockets x cores x threads
	python tools/lab/lab.py up --shape $(LAB_SHAPE)

.PHONY: lab-down
lab-down: setup ## end exactly what `make lab` started
	python tools/lab/lab.py down --name smt-adjacent --name smt-split

# ---- tests: each target installs what it needs, and tools/results.py keeps what came of it ----
RUN = tools/debian-packages.sh $(PACKAGES) && python tools/results.py run $@
PYTEST = python -m pytest -q -n 2 --dist worksteal --durations 5
# One at a time to each worker: playbooks differ much in what they take.
PLAYS = $(PYTEST) --dist load --maxschedchunk 1
# What whole playbooks need beside Ansible.
OF_PLAYBOOKS := git gzip openssh-client sysbench
SCENARIOS := $(patsubst molecule/%/molecule.yml,%,$(wildcard molecule/*/molecule.yml))
# In the order in which they begin, two side by side.
DAY := playbooks unit field hostile sanity lint smt_kernel browser

.PHONY: test
test: setup ## ten minutes: whether it works, with one case of each kind; what CI runs on each push
	tools/debian-packages.sh git
	$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target $(DAY)
	git rev-parse HEAD >.cache/results/green

ALL := $(DAY) lowest archive $(filter-out $(DAY),$(SCENARIOS)) recipes remediation

.PHONY: test-all
test-all: setup ## hours: all cases, all scenarios on guests, all of sanity, all releases of ansible-core; what CI runs at night
	NIGHT=1 $(MAKE) --no-print-directory --keep-going $(ALL) $(CORES) $(if $(NEWER_PYTHON),$(NEWER_CORES)); code=$$?; \
		python tools/results.py write; exit $$code

.PHONY: night-targets
night-targets:
	@python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' $(ALL)

.PHONY: $(DAY) $(SCENARIOS) $(CORES) $(NEWER_CORES) lowest recipes remediation airlock
$(DAY) $(SCENARIOS) recipes remediation airlock: setup

unit: PACKAGES := fio gcc gnupg gzip libc6-dev linux-perf nghttp2-client nginx openssh-client postgresql procps stress-ng sysbench util-linux
unit: ## one part of `make test`, as are field, playbooks, hostile, browser, lint and sanity; NIGHT=1 adds what is for the night
	$(RUN) $(PYTEST) tests/unit

field: PACKAGES := procps
field:
	$(RUN) $(PYTEST) tests/field

playbooks: PACKAGES := $(OF_PLAYBOOKS)
playbooks:
	$(RUN) $(PLAYS) tests/playbooks

hostile: PACKAGES := gzip
hostile:
	$(RUN) $(PLAYS) tests/hostile

browser: PACKAGES := chromium chromium-driver
browser:
	$(RUN) python -m pytest -q tests/browser

lint:
	$(RUN) tools/lint.sh

sanity: PACKAGES := git shellcheck util-linux
sanity:
	$(RUN) tools/sanity.sh $(if $(NIGHT),,--day)

$(SCENARIOS): ## a scenario of molecule/ on guests: make smt_runtime; PYTEST_ADDOPTS='-k ...' chooses among its tests
	$(RUN) molecule test -s $@
smt_eval_truth: PACKAGES := sysbench

# The rooms that use the controller's libraries, with the oldest versions of these that requirements.txt names.
lowest: PACKAGES := gzip sysbench
lowest: setup $(LOWEST)/.ready ## the controller's packages with the oldest libraries that requirements.txt names
	$(RUN) $(LOWEST)/bin/$(PYTEST) tests/unit/_ask/border tests/unit/_measure/report

$(CORES) $(NEWER_CORES): PACKAGES := $(OF_PLAYBOOKS)
$(CORES) $(NEWER_CORES): core-%: .cache/core-%/.ready ## playbooks with another release of ansible-core: make core-2.16 to core-2.18, and with Python 3.12 or later core-2.20 and core-newest
	$(RUN) .cache/$@/bin/$(PLAYS) tests/cores tests/playbooks

recipes: PACKAGES := apache2-utils fio g++ golang-go hey hyperfine libbenchmark-dev openssl p7zip-full postgresql redis-server redis-tools stress-ng sysbench wrk
recipes: ## each recipe of docs/tools.md with its tool, of Debian; JMH_JARS=FOLDER adds JMH
	$(RUN) python -m pytest -q --durations 10 tests/recipes

# Debian's Prometheus and Alertmanager are unpacked and not installed.
remediation: PACKAGES := default-jre-headless
remediation: $(RULEBOOK)/.ready ## from an alert to smt_enforce, as in examples/eda
	$(RUN) python -m pytest -q --durations 10 tests/eda

airlock: ## hosts that ask airlock, the reference server of FleetLock: make airlock AIRLOCK=PROGRAM
	@command -v "$${AIRLOCK:-airlock}" >/dev/null || { echo 'airlock: the program is missing, and is not installed by this: give its path, make airlock AIRLOCK=PROGRAM' >&2; exit 1; }
	AIRLOCK="$$(command -v "$${AIRLOCK:-airlock}")" python tools/results.py run $@ python -m pytest -q --durations 10 tests/airlock

.PHONY: results
results: setup ## bring the last result of each target into tests/RESULTS.md
	python tools/results.py write

.PHONY: bare
bare: ## the proof before a release: `make eval` and `make test` on a bare Debian 12, as root
	$(PYTHON) tools/lab/bare.py

# What makes the documentation site.
DOCS := .cache/docs-python
$(DOCS)/.ready: requirements/docs.lock requirements/collections.lock tools/setup.sh
	tools/setup.sh $(PYTHON) $(DOCS) requirements/docs.lock
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
bench: setup ## what reading a host's topology costs beside lscpu, pinning beside taskset, a report of many hosts; not part of `make test`
	PYTHONPATH=tests/unit/support python tests/benchmarks/bench_facts.py
	python tests/benchmarks/bench_runner.py
	PYTHONPATH=tests/unit/support python tests/benchmarks/bench_report.py --hosts 1000 10000
	PYTHONPATH=tests/unit/support:tests/playbooks python tests/benchmarks/bench_compliance.py
