# The two commands of a newcomer are `make demo` and `make test`; each sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Processes that share the tests; a file stays in one of them.
TEST_PROCESSES ?= 2
PYTEST := $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile

.PHONY: demo test test-fast test-agents chaos red-team check format wheel clean

demo: $(VENV)/.installed
	$(BIN)/agent2 demo

test: $(VENV)/.installed
	$(PYTEST)

test-fast: $(VENV)/.installed
	$(PYTEST) -m "not slow"

# Installs the agent systems below $AGENT2_HOME (needs a registry) and plays a trial with each of them.
test-agents: $(VENV)/.installed
	$(BIN)/python -m pytest -m agents -rs tests/agents

# Every attack of tests/red_team for real, as a table; parts of names choose: make red-team ONLY="clock template".
red-team: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python -m red_team $(ONLY)

# A scripted trial, killed -9 a hundred times at seeded moments and gone on with; about ten minutes.
chaos: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python -m chaos.run --kills 100

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.installed
	$(BIN)/python -m build --wheel

# One stamp for the whole environment; it is made anew when a requirement changes.
$(VENV)/.installed: pyproject.toml constraints.txt scripts/install-sandbox.sh
	sh scripts/install-sandbox.sh
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache
