# Start with `make demo` and `make test`; each installs what it needs.
PYTHON ?= python3
VENV ?= .venv
# Source of torch: auto (the CPU build where no GPU is found), pypi, or the URL of a package index.
TORCH_INDEX ?= auto
BIN := $(VENV)/bin
# Number of test processes; each test file runs in one of them, files with slow tests first.
TEST_PROCESSES ?= 6
PYTEST := $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# Revision whose changes `make test-near` tests: the last commit, or for a branch: make test-near SINCE=main
SINCE ?= HEAD

.PHONY: demo levels12 level3 real test test-again test-near test-fast test-thorough test-agents chaos red-team check format wheel clean

demo: $(VENV)/.installed-demo
	$(BIN)/agent2 demo

# Two reference agents on arithmetic, pyfunc and replies: a table of gains, then the report's path. Resumed if interrupted.
levels12: $(VENV)/.installed-demo
	$(BIN)/agent2 sweep examples/sweep-levels12.yaml

# The same on interactive tasks; needs the ALFWorld engine, which comes with the installation for the tests.
level3: $(VENV)/.installed-test
	$(BIN)/agent2 sweep examples/sweep-level3.yaml

# Four reference agents on a real language model of 135 million weights, and what the gain cost: one table, in real/table.md.
# Three to four hours of one core and 7 GB of memory; resumed if interrupted. Other settings: make real REAL="--agents best-of-n".
real: $(VENV)/.installed-demo
	$(BIN)/python -m pip install --quiet --constraint constraints.txt gguf
	$(BIN)/python scripts/real.py --out real $(REAL)

test: $(VENV)/.installed-test
	$(PYTEST) $(PYTEST_OPTIONS)

# After `make test PYTEST_OPTIONS="--failures failures.txt"` failed: what failed, in one process on a machine that does nothing
# else. A test that fails twice fails; one that passes now is named in the last lines and is to be corrected all the same.
test-again: $(VENV)/.installed-test
	$(BIN)/python scripts/test_again.py failures.txt

# After each change: the fast tests of the test files near what changed; usually under a minute.
test-near: $(VENV)/.installed-dev
	$(BIN)/python scripts/near_tests.py --since $(SINCE) --run

# Before a push: every test that neither trains a model nor starts a server.
test-fast: $(VENV)/.installed-dev
	$(PYTEST) -m "not slow" $(PYTEST_OPTIONS)

# Repeats slow tests for every reference agent, back end and shipped base; about half an hour more.
test-thorough: $(VENV)/.installed-test
	$(PYTEST) -m thorough

# Installs the agent systems below $AGENT2_HOME (needs a registry) and plays a trial with each of them.
test-agents: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m agents -rs tests/agents

# Run every attack in tests/red_team for real and print a table; select by name: make red-team ONLY="clock template".
red-team: $(VENV)/.installed-test
	PYTHONPATH=tests $(BIN)/python -m red_team $(ONLY)

# Kill a scripted trial with -9 a hundred times at seeded moments and resume it; about ten minutes.
chaos: $(VENV)/.installed-test
	PYTHONPATH=tests $(BIN)/python -m chaos.run --kills 100

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.installed-dev
	$(BIN)/python -m build --wheel

# Three stamps: demo (the package), dev (with tools and test libraries), test (with the ALFWorld engine, which needs a
# compiler); each includes those before it. Installed again when a requirement changes.
STAMPS_demo := demo
STAMPS_dev := demo dev
STAMPS_test := demo dev test
$(VENV)/.installed-%: pyproject.toml constraints.txt scripts/install-sandbox.sh scripts/install.py
	sh scripts/install-sandbox.sh
	$(PYTHON) scripts/install.py $* --venv $(VENV) --torch-index "$(TORCH_INDEX)"
	touch $(STAMPS_$*:%=$(VENV)/.installed-%)

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache
