# muster: every task that people and CI run. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TRACES ?=
SINCE ?=
SERVER := $(VENV)/.server
READY := $(VENV)/.ready
PEERS := .venv-bench
# Tests, and once more, alone, those that failed: real processes that share two cores can be late.
# Quick ones wait for processes half of their time, so four share two cores.
tests = $(BIN)/python -m pytest -n $(2) -m $(1) $(ARGS) || \
	{ echo "--- once more, alone: what failed above" && \
	$(BIN)/python -m pytest -n 0 -m $(1) $(ARGS) --last-failed --last-failed-no-failures none; }
# Bytecode of what is imported is written the first time, whatever the shell that calls says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env docs demo test test-slow check format lint types imports stubs stub-drift lint-proto fuzz protocol validate fit-steps bench bench-service bench-queue bench-watch bench-console drill-crash bench-routing bench-placement bench-time bench-emulated bench-replay drill-crash-postgres drill-failover drill-failures drill-partition lock release clean bench-agents bench-copies bench-launch drill-launch conformance conformance-k8s

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1|\2/' | column -t -s '|'

env: $(READY) ## make the environment in .venv (done by every other target)

# What a server is installed with: enough for the demo.
$(SERVER): deploy/requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r deploy/requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	$(BIN)/python -m placement.warmup
	@touch $@

# What the tests and checks need on top.
$(READY): $(SERVER) requirements.lock
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

demo: $(SERVER) ## the main job, end to end, on this machine in under a minute
	@$(BIN)/python scripts/demo.py

test: $(READY) ## all tests but the exhaustive ones
	$(call tests,"not slow",4)

test-slow: $(READY) ## the exhaustive ones
	$(call tests,slow,2)

check: lint types imports stub-drift lint-proto docs ## format, lint, types, import contracts, stubs, proto, links of the docs

format: $(READY) ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy
	$(BIN)/mypy -p bench -p drills
	$(BIN)/python -m scripts.console_types

imports: $(READY)
	$(BIN)/lint-imports

docs: $(READY) ## build docs/ as a site in build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs build --quiet

stubs: $(READY) ## regenerate scheduler/v1, docs/api.md and docs/job-file.md from proto/
	$(BIN)/python scripts/stubs.py

stub-drift: $(READY)
	$(BIN)/python scripts/stubs.py --check

lint-proto: $(READY) ## lint proto/, and compare it with the last release (SINCE=ref) for changes that break clients
	@$(BIN)/python -m scripts.protolint
	@since="$(SINCE)"; since="$${since:-$$(git describe --tags --abbrev=0 --match 'v*' 2> /dev/null)}"; \
	if [ -z "$$since" ]; then echo "buf breaking: skipped, nothing is released yet (compare with SINCE=ref)"; \
	else $(BIN)/python -m scripts.protolint "$$since" && echo "buf breaking: none since $$since"; fi

protocol: $(READY) ## search every order of faults over leaders, launches and agents: half an hour; ARGS="--only drain"
	$(BIN)/python -m drills.protocol $(ARGS)

fuzz: $(READY) ## a million wrong inputs: requests, files, traces; ARGS="--seed 2 --only yaml"
	$(BIN)/python -m drills.fuzz $(ARGS)

conformance: $(READY) ## one script of calls by clients in Python, JavaScript and Go; ARGS="--only go"
	$(BIN)/python -m tests.conformance $(ARGS)

conformance-k8s: $(READY) ## whether a cluster does what muster needs: KUBECONFIG=file ARGS="--node NODE --image IMAGE"
	$(BIN)/python -m drills.cluster_check $(if $(KUBECONFIG),--kubeconfig "$(KUBECONFIG)") $(ARGS)

validate: $(READY) ## published values against ours, then the real traces of TRACES=folder
	$(BIN)/python -m scripts.validate "$(TRACES)"
	@if [ -n "$(TRACES)" ]; then $(BIN)/python -m scripts.yearly "$(TRACES)"; fi

fit-steps: $(READY) ## fit the step's constants to measured runs, STEPS=file.csv; ARGS="--write" keeps them, ARGS="--ablation" drops terms
	@if [ -z "$(STEPS)" ]; then echo "fit-steps: STEPS=FILE.csv names the measured steps"; exit 2; fi
	$(BIN)/python -m scripts.fit_steps "$(STEPS)" $(ARGS)

bench: $(READY) ## measure a handful of placements and decisions; checks every answer
	$(BIN)/python -m bench.placement --quick
	$(BIN)/python -m bench.decisions.decide
	$(BIN)/python -m bench.decisions.windows

bench-service: $(READY) ## submits, watches and memory of a server, beside the bare gRPC limit: 5 minutes
	$(BIN)/python -m bench.service.submits $(ARGS)

bench-agents: $(READY) ## what 3,072 agents cost: beats, submits beside them, a launch on 2,048 hosts: 2 minutes
	$(BIN)/python -m bench.service.agents $(ARGS)

bench-launch: $(READY) ## seconds until a real gang steps, and steps again after a fault: 5 minutes; ARGS="--torch PYTHON"
	$(BIN)/python -m bench.service.launch $(ARGS)

bench-copies: $(READY) ## seconds until a gang steps again, from copies in memory and from storage: 8 minutes; ARGS=--lab
	$(BIN)/python -m bench.service.copies $(ARGS)

bench-queue: $(READY) ## long queues of one and of eleven tenants, and 150,000 jobs on 98,304 GPUs: 10 minutes
	$(BIN)/python -m bench.replay.long_queue $(ARGS)

bench-watch: $(READY) ## submits and swaps while 200 watches resume, and during dry runs: 6 minutes
	$(BIN)/python -m bench.service.watch $(ARGS)

bench-console: $(READY) ## what 100 readers of the live map cost, commits beside them, and a repaint: 2 minutes; ARGS="--minutes 10": paint, frames, latency, memory of a page
	$(BIN)/python -m bench.service.console $(ARGS)

drill-crash: $(READY) ## kill -9 a server 1,000 times under load, then check all it ever answered: 20 minutes
	$(BIN)/python -m drills.crash $(ARGS)

bench-routing: $(READY) ## route Llama 3 405B over every switch of both presets; checks the bytes
	$(BIN)/python -m bench.steps.routing

bench-restart: $(READY) ## how fast a gang of 16,384 GPUs that lost hosts goes on, in process and by a server
	$(BIN)/python -m bench.decisions.restart $(ARGS)

bench-placement: $(PEERS)/.ready ## 336 placements against every peer: 10 to 20 minutes on two cores
	$(PEERS)/bin/python -m bench.placement --jobs 2 --traces "$(TRACES)" $(ARGS) \
	  --json build/bench-placement.json --docs docs/benchmarks.md --plot docs/img/placement.png

bench-time: $(READY) ## seconds of a training step against what other schedulers place: 15 minutes on two cores
	$(BIN)/python -m bench.steps.seconds $(ARGS) --json build/bench-time.json --docs docs/seconds.md

bench-emulated: $(READY) ## formula, simulation and packets of 14 small jobs in six placements: 15 minutes; ARGS=--no-packets
	$(BIN)/python -m bench.steps.emulated $(ARGS)

bench-replay: $(PEERS)/.ready ## the same jobs replayed by AccaSim: the same starts, and how fast
	$(PEERS)/bin/python -m bench.replay --traces "$(TRACES)" $(ARGS) \
	  --json build/bench-replay.json --docs docs/replay-benchmarks.md

# Peers one by one: one that cannot be installed here is skipped, and the page says so.
$(PEERS)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@pins=$$($(PEERS)/bin/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['dependency-groups']['bench'])"); \
	for pin in $$pins; do \
	  $(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "$$pin" || echo "skipped: $$pin"; \
	done
	@command -v scotch_gmap > /dev/null || echo "skipped: Scotch (Debian: apt install scotch)"
	@touch $@

drill-crash-postgres: $(READY) ## the same on PostgreSQL, whose own processes are killed as well: an hour
	$(BIN)/python -m drills.crash --postgres $(ARGS)

drill-launch: $(READY) ## kill ranks, agents, hosts and leaders under 20 real gangs: 10 minutes; ARGS="--on slurm", "--on kubernetes"
	$(BIN)/python -m drills.launch $(ARGS)

drill-failover: $(READY) ## break the leader of three servers on PostgreSQL, 40 times: 6 minutes
	$(BIN)/python -m drills.failover $(ARGS)

drill-partition: $(READY) ## cut the network of three servers, PostgreSQL, agents and clients in a lab, 15 ways: 9 minutes, as root
	$(BIN)/python -m drills.partition $(ARGS)

drill-failures: $(READY) ## flapping, lossy and slow links, a slow host, a rack without power, a defragmentation, in a lab: 8 minutes, as root
	$(BIN)/python -m drills.failures $(ARGS)

lock: ## resolve requirements.lock again (needs uv on PATH)
	uv pip compile --universal --python-version 3.11 --group dev --extra server --extra kubernetes --extra dask --generate-hashes pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --extra server --extra kubernetes --no-annotate --generate-hashes pyproject.toml \
	  -c requirements.lock -o deploy/requirements.lock
	uv pip compile --universal --python-version 3.11 --no-annotate --generate-hashes pyproject.toml \
	  -c requirements.lock -o deploy/requirements-client.lock

release: ## build, check, describe and tag a release in dist/, all but its upload; ARGS=--try of any commit, as in CI
	$(PYTHON) -m scripts.release $(ARGS)

clean: ## remove the environment and caches
	rm -rf $(VENV) $(PEERS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
