# Needs Python 3.11 or newer and make; everything else comes with `make install`.
SHELL := /bin/sh
.DEFAULT_GOAL := help
VENV := .venv
RUN := $(VENV)/bin/
ARGS ?=
# Python 3.12 and 3.11 first: for them the embedded Redis comes as a wheel.
PYTHON ?= $(shell for python in python3.12 python3.11 python3 python3.13 python3.14; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

.PHONY: help install up demo test lint format bench chaos schema lock

help: ## show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' \
		| while IFS='|' read -r name text; do printf '  make %-9s %s\n' "$$name" "$$text"; done

install: $(VENV)/.installed ## create .venv and put the locked packages into it

$(VENV)/.installed: requirements.lock pyproject.toml packaging/redis_server.py
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer with venv and ensurepip found \
	(on Debian and Ubuntu: the package python3-venv); name one with make PYTHON=..." >&2; exit 1; }
	@echo "installing into $(VENV) with $(PYTHON)"
	@test -x $(RUN)python || $(PYTHON) -m venv $(VENV)
	@$(RUN)python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(RUN)python packaging/redis_server.py
	@$(RUN)python -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --editable .
	@touch $@

up: install ## run everything on http://127.0.0.1:8080; Ctrl-C stops it (ARGS="--port 9000")
	@$(RUN)wheel-timer up $(ARGS)

demo: install ## thousands of timers in a temporary directory: lateness percentiles and audits
	@$(RUN)wheel-timer demo $(ARGS)

test: install ## the whole suite on real embedded servers (ARGS="-k claim -x"; "-n 0" for one process)
	@$(RUN)python -m pytest -n logical --dist worksteal $(ARGS)

lint: install ## format, rules, types, imports between packages, spelling
	@$(RUN)ruff format --check --quiet . || { echo "make format puts this right" >&2; exit 1; }
	@$(RUN)ruff check --quiet .
	@$(RUN)mypy --no-error-summary
	@$(RUN)mypy --no-error-summary packaging/server/hatch_build.py
	@$(RUN)lint-imports --no-logo >$(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }
	@$(RUN)codespell

format: install ## put the format right, and what the rules can mend themselves
	@$(RUN)ruff check --fix --quiet . || true
	@$(RUN)ruff format --quiet .

bench: install ## measure drain rate, lateness, submits, idle cost (ARGS="drain far --strict")
	@$(RUN)python -m tests.bench $(ARGS)

chaos: install ## break everything under load and account for every task (ARGS="leader --minutes 60")
	@test -n "$(ARGS)" || $(RUN)python -m tests.sim --walks 1000000 --seconds 100
	@test -n "$(ARGS)" || $(RUN)python -m tests.sim --service --seconds 60
	@$(RUN)python -m tests.chaos $(ARGS)

schema: install ## write tests/schema.sql anew from the migrations
	@$(RUN)python -m tests.schema $(ARGS)

lock: install ## pin the newest allowed versions (ARGS="--upgrade")
	@PATH="$(RUN):$$PATH" $(RUN)python packaging/lock.py $(ARGS)
