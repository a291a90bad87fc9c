# make demo    what Kernelwright does, in a minute
# make test    everything that this machine can check: lint, types, imports, tests
# The rest: make tiny (ten seconds, before each commit), make all-tests (slow ones, too), make check, make docs, make lock.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test tiny all-tests check docs lock clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	$(BIN)/kernelwright demo

test: check
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow" -q

tiny: $(INSTALLED)
	$(BIN)/python -m pytest -m tiny -q

all-tests: check
	$(BIN)/python -m pytest -n $(JOBS) -q

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(INSTALLED)
	$(BIN)/python scripts/generate.py

# The exact versions that this environment holds, for everyone else; nvcc's wheels have a list of their own.
lock: $(INSTALLED)
	$(BIN)/python scripts/lock.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Exact versions, and no source builds but our own. A machine without nvcc gets NVIDIA's wheels of it.
$(INSTALLED): pyproject.toml requirements.lock requirements-nvcc.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --only-binary :all: -r requirements.lock
	command -v nvcc >/dev/null || test -x "$${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" \
		|| $(BIN)/python -m pip install --quiet --only-binary :all: -r requirements-nvcc.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@
