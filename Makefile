# Every target sets up what it needs, from a machine that has nothing but Python 3.11 or newer.
#
#   make demo        the main job on small images, ends with the path of a report
#   make test        the default tests
#   make slow        the slow tests
#   make exhaustive  further settings and twins of what the slow tests cover, every week and before a release
#   make lint        style, format, types, import directions
#   make notebooks   every notebook executed, an error in a cell is an error here
#   make docs        the documentation, its pages executed; ends with the path of the site
#   make newest      tests on the newest Python here with the newest releases of everything
#   make oldest      the same tests with the oldest releases that pyproject.toml admits
#   make lock        notes the installed versions as those that .ci/run installs
#   make wheel       the built wheel in an environment of its own, where the demo runs
#   make all         all of these but the demo from the checkout

PYTHON ?= python3
VENV ?= .venv
# How many tests, notebooks or pages run side by side: one a core, two at most.
WORKERS ?= 2
PYTEST_ARGS ?=
# A worker that XLA ended is not started again (the run would wait for it without end), and what
# hangs shows where.
PYTEST := -m pytest -o faulthandler_timeout=300
PYTEST_WORKERS := -n $(WORKERS) --max-worker-restart=0

PY := $(VENV)/bin/python
WHEEL_VENV := build/wheel-venv
# What depends on the releases of others: verbs, files, compiled loops, answers, command line.
RELEASE_TESTS := $(addprefix tests/, test_api.py _kernels/test_compiled_sweeps.py _kernels/test_fusion_probe.py \
  cli/test_cli.py data/test_data.py data/test_data_readers.py engine/test_checkpoint.py \
  engine/test_engine_run.py posterior/test_posterior.py settings/test_settings.py sklearn/test_sklearn.py)
RELEASE_PACKAGES := '.[arviz,data,sklearn]' chex hypothesis pytest pytest-xdist
NEWEST_PYTHON ?= $(shell .ci/newest-python)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Compiled programs outlive the process: a second run of the tests compiles little. All of them, the
# smallest too: those of one line are many, and to read one takes half as long as to compile it.
test slow exhaustive newest oldest notebooks docs: export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
test slow exhaustive newest notebooks docs: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
# jaxlib 0.10.0 prints a line on stderr for every program that it reads from the cache.
oldest: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.3
# One thread for each worker's programs and their linear algebra: workers share the cores, and small
# programs only wait for one another on more.
test slow exhaustive newest oldest notebooks docs: export PJRT_NPROC ?= 1
test slow exhaustive newest oldest notebooks docs: export OPENBLAS_NUM_THREADS ?= 1
# Sources are compiled once, whatever the caller's shell says: tests start many processes, and each
# would take half a second more.
test slow exhaustive newest oldest: export PYTHONDONTWRITEBYTECODE :=
# Tests compile more than they run, and share what they compiled; the tests before a release,
# notebooks, pages and demo compile as a user's programs are.
test slow newest oldest: export XLA_FLAGS ?= --xla_backend_optimization_level=0

.PHONY: all demo test slow exhaustive compare newest oldest lock lint format notebooks docs wheel env clean
all: test lint slow notebooks docs wheel

demo: $(VENV)/.stamp-demo
	$(VENV)/bin/jaxmf demo

test: $(VENV)/.stamp-dev
	$(PY) $(PYTEST) $(PYTEST_WORKERS) --dist loadfile --durations 15 $(PYTEST_ARGS)

slow: $(VENV)/.stamp-dev
	$(PY) $(PYTEST) $(PYTEST_WORKERS) --dist load --durations 15 -m "slow and not exhaustive" $(PYTEST_ARGS)

exhaustive: $(VENV)/.stamp-dev
	$(PY) $(PYTEST) $(PYTEST_WORKERS) --dist load --durations 15 -m exhaustive -o testpaths=tests $(PYTEST_ARGS)

compare: $(VENV)/.stamp-dev
	$(PY) -m pip install --quiet -e '.[bench]'
	$(PY) $(PYTEST) -m compare $(PYTEST_ARGS)

newest:
	@test -n "$(NEWEST_PYTHON)" || { echo "no Python newer than python3 here; name one: make newest NEWEST_PYTHON=..."; exit 1; }
	$(NEWEST_PYTHON) -m venv build/newest-venv
	build/newest-venv/bin/python -m pip install --quiet --upgrade -e $(RELEASE_PACKAGES)
	build/newest-venv/bin/python $(PYTEST) $(PYTEST_WORKERS) --dist loadfile $(RELEASE_TESTS) $(PYTEST_ARGS)

oldest:
	$(PYTHON) -m venv build/oldest-venv
	build/oldest-venv/bin/python -m pip install --quiet -c constraints/oldest.txt -e $(RELEASE_PACKAGES)
	build/oldest-venv/bin/python $(PYTEST) $(PYTEST_WORKERS) --dist loadfile $(RELEASE_TESTS) $(PYTEST_ARGS)

lock: $(VENV)/.stamp-dev $(VENV)/.stamp-docs
	$(PY) -m pip list --format=freeze --exclude jaxmf --exclude pip --exclude setuptools > constraints/ci.txt

lint: $(VENV)/.stamp-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/.stamp-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

notebooks: $(VENV)/.stamp-dev
	JAXMF_FAST=1 $(PY) notebooks/execute.py --timeout 240 --at-once $(WORKERS)

# A warning is an error: a link without a page, a cell that fails or warns, a name without a docstring.
docs: $(VENV)/.stamp-docs
	$(PY) -m sphinx -W --keep-going -n -q -D pages_at_once=$(WORKERS) -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "the site: $(CURDIR)/docs/_build/html/index.html"

wheel: $(VENV)/.stamp-dev
	rm -rf build/dist $(WHEEL_VENV) build/demo
	$(PY) -m build --wheel --outdir build/dist .
	$(PY) -m twine check --strict build/dist/*.whl
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python -m pip install --quiet build/dist/*.whl
	mkdir -p build/demo
	cd build/demo && ../../$(WHEEL_VENV)/bin/python -c "import jaxmf; print('jaxmf', jaxmf.__version__, 'at', jaxmf.__file__)"
	cd build/demo && ../../$(WHEEL_VENV)/bin/jaxmf demo

env: $(VENV)/.stamp-dev

# The environment itself: only Python 3.11 or newer will do, said in words.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "jaxmf needs Python 3.11 or newer; name one with: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-demo: pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --quiet -e '.[sklearn]'
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --quiet -e '.[dev]'
	@touch $@ $(VENV)/.stamp-demo

$(VENV)/.stamp-docs: pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --quiet -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build docs/_build docs/benchmarks dist .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
