# One list of commands. `make demo` and `make test` need Python 3.11+ and nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The first Python that is new enough; give another with `make PYTHON=...`.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell command -v $(p) >/dev/null && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $(p))) python3)
NAME ?= default

export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export ANSIBLE_HOME := $(CURDIR)/.ansible
export ACK_SANDBOX ?= $(NAME)
export PYTHONUNBUFFERED := 1
unexport PYTHONDONTWRITEBYTECODE
BIN := $(CURDIR)/.venv/bin
export PATH := $(BIN):$(PATH)

.PHONY: help setup demo test lint unit charts integration molecule proof sandbox sandbox-down sandbox-status bench docs lock format clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

setup: ## virtual environment and collections (the other commands call it)
	@$(PYTHON) tools/setup.py

demo: setup ## the whole job on a real control plane on this machine, then a cGPU upgrade of its nodes
	@tools/demo

test: lint unit charts integration molecule ## everything that CI runs

lint: setup ## ansible-lint (production), yamllint, ruff, mypy --strict on the core, import contract
	@ruff check .
	ruff format --check .
	mypy
	PYTHONPATH=.ansible/collections lint-imports --no-logo
	yamllint --strict .
	ansible-lint --offline --profile production

unit: setup ## tables, contracts and properties: no server needed
	@python -m pytest -q tests/unit

charts: setup sandbox-build ## the charts: schemas, templates, and a dry run against the real API server
	@python -m pytest -q tests/charts

integration: setup sandbox-build ## clients, modules, the engine and its kills against real control planes
	@python -m pytest -q tests/sandbox tests/integration

molecule: setup sandbox-build ## a scenario for each noun that writes, one for those that read, and the whole site
	@tools/molecule

proof: setup sandbox-build bench ## what takes longer than CI allows: benchmarks, chaos, fuzzing, other ansible-core
	@python -m pytest -q tests --proof

sandbox-build: setup
	@python -m sandbox build

sandbox: setup ## start the sandbox (NAME=default): a real control plane with fake nodes, and a local Alibaba Cloud
	@python -m sandbox up --name $(NAME)

sandbox-down: ## stop it and remove what it left
	@python -m sandbox down --name $(NAME)

sandbox-status: ## what runs, where, and how to reach it
	@python -m sandbox status --name $(NAME)

bench: setup sandbox-build ## side by side with kubectl, ratios in one run
	@python -m benchmarks

docs: setup ## write again what is generated from the code
	@python tools/docs.py

lock: setup ## resolve requirements.lock anew
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --group dev pyproject.toml --output-file requirements.lock

format: setup ## format the Python code
	@ruff format --quiet .
	ruff check --quiet --fix .

clean: ## remove everything that set-up and runs made, except the cache of built binaries
	@-[ ! -x $(BIN)/python ] || for each in .sandbox/*/; do [ ! -d "$$each" ] || python -m sandbox down --name "$$(basename "$$each")"; done
	rm -rf .venv .sandbox reports .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find .ansible -mindepth 1 -maxdepth 1 ! -name collections -exec rm -rf {} +
	rm -rf .ansible/collections/ansible_collections/kubernetes
