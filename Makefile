# Everything a newcomer needs. `make run` and `make test` set up all that they use, with Python, pip and make alone.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
# Parts that a checkout may lack.
TYPED := $(wildcard tests/typing examples)

.PHONY: run demo-crash test check format coverage proof bench baseline clean

run: .venv/run.stamp
	$(BIN)/turnwright run examples/support_desk.py examples/inbox.mbox $(ARGS) || [ $$? -eq 3 ]  # 3: a refund waits

demo-crash: .venv/run.stamp
	@$(BIN)/python examples/demo_crash.py

test: check
	$(BIN)/pytest $(ARGS)

check: .venv/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src adapters contracts $(TYPED)
	$(BIN)/basedpyright src adapters contracts $(TYPED)
	$(BIN)/lint-imports contracts/architecture.toml --no-logo --cache-dir .cache/import-linter

format: .venv/dev.stamp
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

coverage: .venv/dev.stamp
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage report

# The long proofs: many crash points, many seeds. One may take longer than a test is given.
proof: .venv/dev.stamp
	$(BIN)/pytest -m proof --hypothesis-profile=proof -o faulthandler_timeout=2400 $(ARGS)

bench: .venv/dev.stamp
	$(BIN)/python -m tests.benchmarks $(ARGS)

# Writes the byte-identity baselines anew. Read the diff: a changed byte is a changed request.
baseline: .venv/dev.stamp
	$(BIN)/python -m tests.baseline

clean:
	rm -rf .venv .cache build dist

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run.stamp: pyproject.toml | .venv/bin/python
	$(PIP) --editable '.[cli,local]'
	touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/python
	$(PIP) --editable '.[dev]'
	touch $@ .venv/run.stamp
