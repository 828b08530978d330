# Needs Python 3.11 or newer with venv, and make. Everything else is installed into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SCENARIO ?= examples/digits.toml
# That of `make up` runs for hours, unless SCENARIO names another.
UP_SCENARIO = $(if $(filter file,$(origin SCENARIO)),examples/containers.toml,$(SCENARIO))
# The Python of the images' base, for which wheels are fetched.
WHEELS_PYTHON ?= 3.11
STUBS := proto/muster/v1
PROTOC := $(BIN)/python -m grpc_tools.protoc -Iproto --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

install: $(VENV)/installed  ## set up .venv with the pinned versions (PYTHON=python3, VENV=.venv)

$(VENV)/installed: pyproject.toml constraints.txt
	@echo "install: making $(VENV); torch comes first, and may take minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	@echo "install: muster and what else it needs"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

# All extras at once need versions of their own (make beside), and PyTorch the pinned one.
.venv-extras/installed: pyproject.toml constraints.txt deploy/beside.txt
	$(PYTHON) -m venv .venv-extras
	.venv-extras/bin/python -m pip install --quiet --upgrade pip
	{ grep ^torch== constraints.txt; grep -v ^torch== deploy/beside.txt; } > .venv-extras/constraints.txt
	.venv-extras/bin/python -m pip install --quiet --constraint .venv-extras/constraints.txt torch
	.venv-extras/bin/python -m pip install --quiet --constraint .venv-extras/constraints.txt --editable '.[dev,browser,datasets,flower,mlflow,notebook,parquet,pictures,ray,tensorboard,wandb]'
	-npm install --silent --prefix .venv-extras/axe axe-core@4.14.1
	@touch $@

.venv-models/installed: pyproject.toml constraints.txt tests/models/requirements.txt
	$(PYTHON) -m venv .venv-models
	.venv-models/bin/python -m pip install --quiet --upgrade pip
	.venv-models/bin/python -m pip install --quiet --constraint constraints.txt torch
	.venv-models/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --requirement tests/models/requirements.txt
	@touch $@

run: install  ## the main job: a fleet trains a model (SCENARIO=examples/digits.toml)
	$(BIN)/muster run $(SCENARIO)

up: install  ## a fleet in containers, left running for hours (SCENARIO=examples/containers.toml); needs Docker
	$(BIN)/muster up $(UP_SCENARIO)

down: install  ## end the newest fleet in containers; nothing of it is left in Docker
	$(BIN)/muster down

# Tests in virtual time or without any; the others start processes and measure. They leave room for
# a busy machine, so those of two files may run beside each other.
IN_VIRTUAL_TIME = tests/unit tests/property tests/studies tests/simulation tests/conformance

# Another environment for them: VIRTUAL=.venv-newest/bin
VIRTUAL ?= $(BIN)

# The others wait for processes a third of their time, so more of them than there are cores run at once.
WAITING = $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)

test: check  ## everything a change must pass
	$(VIRTUAL)/pytest --numprocesses auto $(IN_VIRTUAL_TIME)
	$(BIN)/pytest --numprocesses $(WAITING) --dist loadfile --durations 25 $(IN_VIRTUAL_TIME:%=--ignore %)

test-fast: install  ## unit and property tests without the slowest, on all cores: for daily work
	$(BIN)/pytest --numprocesses auto -m "not slow" --hypothesis-profile fast tests/unit tests/property

fix: install  ## format, and correct what the linter can correct
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: install  ## format, lint, types, imports, stubs, layout, generated pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory proto-check layout-check docs-check images-check

proto: install  ## generate the stubs in proto/muster/v1
	$(PROTOC) --python_out=proto --mypy_out=proto --grpc_python_out=proto --mypy_grpc_out=proto $(STUBS)/*.proto

proto-check: install  ## the committed stubs are those of the .proto files
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
	$(PROTOC) --python_out=$$out --mypy_out=$$out --grpc_python_out=$$out --mypy_grpc_out=$$out $(STUBS)/*.proto >/dev/null 2>&1 && \
	for stub in $$out/muster/v1/*; do cmp "$$stub" "$(STUBS)/$$(basename $$stub)" || { echo "stubs differ from the .proto files: make proto"; exit 1; }; done

docs: install  ## write the generated parts of docs/commands.md, protocol.md, results.md and scenario.md, and deploy/compose.example.yml
	$(BIN)/python docs/generate.py
	$(BIN)/python deploy/example.py

docs-check: install  ## the generated parts are those of the code
	$(BIN)/python docs/generate.py --check
	$(BIN)/python deploy/example.py --check

.venv-site/installed: docs/website/requirements.txt
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/python -m pip install --quiet --requirement docs/website/requirements.txt
	@touch $@

site: .venv-site/installed  ## build the pages as a site with search, .site/html/index.html; a link that leads nowhere fails
	$(PYTHON) docs/website/stage.py
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --config-file docs/website/mkdocs.yml

soak: install .venv-extras/installed  ## the long tests, all sets of parameters, more examples, and 20 kills of every sort (hours)
	MUSTER_SOAK=1 MUSTER_KILLS=20 $(BIN)/pytest tests/system/test_crash.py
	MUSTER_SOAK=1 $(BIN)/pytest tests/simulation/test_claims.py
	MUSTER_SOAK=1 $(BIN)/pytest --numprocesses auto tests/property
	MUSTER_SOAK=1 MUSTER_TEST_DOCKER=1 $(BIN)/pytest -m soak --deselect tests/system/test_crash.py --ignore tests/mutations --ignore tests/ray $(NEED_EXTRAS:%=--ignore %)
	MUSTER_SOAK=1 MUSTER_TEST_RAY=1 .venv-extras/bin/pytest -m soak -p no:unraisableexception tests/ray $(NEED_EXTRAS)

FLIPS ?= 10000
flips: install  ## flip FLIPS=10000 single bits in the files of run folders: each is noticed by name, or changes nothing
	MUSTER_FLIPS=$(FLIPS) $(BIN)/pytest -s tests/simulation/test_flips.py

combinations: install  ## play all combinations of rules and other features in virtual time (about an hour)
	MUSTER_COMBINATIONS=1 $(BIN)/pytest tests/simulation/test_combinations.py

mutations: install  ## put defects into the product, and require that a claim of a quick study, or the named test of a mutant, fails
	MUSTER_SOAK=1 $(BIN)/pytest tests/mutations

work: install  ## count the work of a round of six fleets again: tests/simulation/work.csv, which make test compares
	$(BIN)/python -m tests.simulation.work

KINDS ?=
tamperings: install  ## tamper with runs in every way, and require that muster audit finds what docs/audit.md does not except (about an hour; KINDS="masks sums")
	$(BIN)/python -m tests.tampering $(KINDS)

REPETITIONS ?= 100
rates: install  ## how often the claims of a quick study hold: STUDY=fedipw, about 40 minutes each
	$(BIN)/python -m muster.studies.rate_measurement $(STUDY) --repetitions $(REPETITIONS) --out runs/rates-$(STUDY)

N ?= 2000
FIRST ?= 0
simulate: install  ## whole runs in virtual time with faults: N=2000 seeds from FIRST=0, or SEED=17 again with a trace, or EVERY=inline (PAIRS=1); PROBES=docs/probes.md writes how often each probe was reached
	$(BIN)/python -m muster.simulation $(if $(PROBES),--probes $(PROBES)) $(if $(SEED),--seed $(SEED),$(if $(EVERY),--every $(EVERY) $(if $(PAIRS),--pairs),--number $(N) --first $(FIRST)))

replays: install  ## play N=1000 drawn runs again from their life records: each must end with the same model
	$(BIN)/python -m muster.laboratory.proof --number $(if $(filter file,$(origin N)),1000,$(N)) --first $(FIRST)

WORST_RUNS = $(if $(filter file,$(origin N)),40,$(N))
worst-cases: install  ## break rules that are fragile in a known way, each with N=40 schedules (10 to 20 minutes)
	$(BIN)/python -m muster.laboratory.worst_case.proof --runs $(WORST_RUNS)

worst-floor: install  ## compare the worst cases of ten rules with the least error that an adversary forces on every algorithm
	$(BIN)/python -m muster.laboratory.worst_case.floor

worst-corrections: install  ## search the worst schedule for each correction of the papers on the seeds that docs/studies/worst-case.json lacks, five unless SEEDS=9401,9402 (15 minutes)
	$(BIN)/python -m muster.laboratory.worst_case.corrections $(if $(SEEDS),--seeds $(SEEDS))

LEAGUE ?= runs/league
league: install  ## play the league, or what is left of it in LEAGUE=runs/league, and write docs/league-table.md and .csv (about 15 minutes)
	if [ -d $(LEAGUE) ]; then $(BIN)/muster league --resume $(LEAGUE); else $(BIN)/muster league --out $(LEAGUE); fi
	$(BIN)/python -m muster.laboratory.league.publishing $(LEAGUE) docs/league-table.md

league-check: install  ## play a random tenth of docs/league-table.csv again: each must end with the same model
	$(BIN)/python -m muster.laboratory.league.check docs/league-table.md --jobs 2

# Real processes are slower than virtual time, so there are fewer seeds by default.
CHAOS_SEEDS = $(if $(filter file,$(origin N)),20,$(N))
chaos: install  ## random faults and kills in random fleets over real processes: N=20 seeds from FIRST=0, or SEED=17 again (LOCKSTEP=1: only such fleets)
	$(BIN)/python -m muster.chaos $(if $(SEED),--seed $(SEED),--number $(CHAOS_SEEDS) --first $(FIRST)) $(if $(LOCKSTEP),--lockstep)

S ?= 300
fuzz: .venv/fuzz-installed  ## try to break everything that reads input from outside: S=300 seconds together, or TARGET=journals alone
	$(BIN)/python -m tests.fuzz $(TARGET) --seconds $(S)

.venv/fuzz-installed: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	@touch $@

bench: install  ## all benchmarks of this machine: benchmarks/out/session.md (about an hour; more with MUSTER_DATA)
	$(BIN)/python benchmarks/session.py $(if $(MUSTER_DATA),--data $(MUSTER_DATA))

bench-peers: install  ## the same work beside Flower and other simulators, in environments of its own (.bench-peers); needs MUSTER_DATA
	$(BIN)/python benchmarks/peers/install.py
	$(BIN)/python benchmarks/peers/run_peers.py --out benchmarks/out/peers.json
	$(BIN)/python benchmarks/peers/secure_peers.py
	$(BIN)/python benchmarks/peers/run_simulators.py

images:  ## build the images muster-server and muster-client (BASE, PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FLAGS, EXTRA_PACKAGES, TAG_SUFFIX)
	deploy/images.sh

images-check: install  ## the images' packages and settings are those of the code
	$(BIN)/python deploy/requirements.py --check

sbom: install  ## list the components of .venv and of the images, in CycloneDX (deploy/components)
	$(BIN)/python deploy/components.py

audit-packages: sbom  ## ask an advisory service for vulnerabilities of these components (AUDIT_FLAGS: options of pip-audit)
	$(BIN)/python deploy/audit_packages.py $(AUDIT_FLAGS)

beside: install  ## ask the package index for versions with which muster, flwr, mlflow, ray, tensorboard and wandb fit together (deploy/beside.txt)
	$(BIN)/python deploy/beside.py

wheel: install  ## build dist/muster_fl-VERSION-py3-none-any.whl, with the examples, without a network
	$(BIN)/python -m hatchling build --target wheel

wheels: deploy/wheels/.made-$(WHEELS_PYTHON)  ## fill deploy/wheels, for images built without an index (PIP_FLAGS=--no-index)

deploy/wheels/.made-$(WHEELS_PYTHON): .venv/installed deploy/requirements.py
	@rm -f deploy/wheels/*.whl deploy/wheels/.made-*
	$(BIN)/python deploy/requirements.py all > deploy/wheels/.list
	$(BIN)/python -m pip download --quiet --quiet --only-binary=:all: --python-version $(WHEELS_PYTHON) --constraint constraints.txt --requirement deploy/wheels/.list --dest deploy/wheels
	@touch $@

# In a process of its own: where MLflow has been imported, Jupyter finds its kernels no longer.
NOTEBOOK = tests/system/test_notebook.py
NEED_EXTRAS = tests/integration/flower tests/integration/test_named_inputs.py tests/system/test_flower.py tests/system/test_hub.py tests/system/test_notebook.py tests/system/test_tracking.py tests/unit/emulator/test_export.py tests/unit/tasks/test_sources_of_packages.py tests/unit/population/test_parquet_tables.py tests/unit/laboratory/test_life_parquet.py
test-extras: .venv-extras/installed  ## the tests of Flower apps, notebooks, exports and trackers, with all extras installed in .venv-extras
	.venv-extras/bin/pytest --numprocesses auto --dist loadfile $(filter-out $(NOTEBOOK),$(NEED_EXTRAS))
	.venv-extras/bin/pytest $(NOTEBOOK)

test-browser: .venv-extras/installed  ## the live page in headless Chromium, which must be installed (CHROMIUM=/usr/bin/chromium)
	.venv-extras/bin/pytest tests/browser

test-models: .venv-models/installed  ## ten public model definitions in fleets of processes, with kills; about 15 minutes
	.venv-models/bin/pytest tests/models

RAY_TESTS ?= tests/ray
test-ray: .venv-extras/installed  ## the tests of fleets on nodes of Ray; about 10 minutes
	MUSTER_TEST_RAY=1 .venv-extras/bin/pytest -p no:unraisableexception $(RAY_TESTS)

DOCKER_TESTS ?= tests/docker
test-docker: wheels  ## the tests of the fleet in containers; makes a base image and starts a daemon where it must and can
	deploy/test-docker.sh $(DOCKER_TESTS)

layout-check:  ## source roots are portions of one namespace
	@if ls */muster/__init__.py 2>/dev/null; then echo "a file */muster/__init__.py would hide the other roots: remove it"; exit 1; fi
	@for part in */muster/*/; do case $$part in *__pycache__*) ;; *) [ -f "$${part}py.typed" ] || { echo "$${part}py.typed is missing"; exit 1; };; esac; done

.PHONY: worst-cases worst-corrections worst-floor league league-check flips help install run up down test test-fast fix soak combinations mutations tamperings rates simulate chaos fuzz check proto proto-check docs docs-check site layout-check bench bench-peers beside images images-check sbom audit-packages wheel wheels test-browser test-docker test-extras test-models test-ray
