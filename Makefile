# Every target builds its own .venv where there is none; Python 3.11 to 3.14 and make are all it takes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: demo gallery test test-all test-cluster dist mutants attack faults docs fuzz lint format bench gpu clean

demo: $(STAMP)
	$(BIN)/normscope demo

# The manual's notebook with the outputs that its code gives now; a minute.
gallery: $(STAMP)
	$(BIN)/python tests/notebooks.py docs/gallery.ipynb

# Bytecode is kept whatever the environment says: the tests start many interpreters, and pytest rewrites every assertion.
# One thread each: two workers whose matrix products take every core wait for each other.
TESTED := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python
test: $(STAMP)
	$(TESTED) -m pytest -n 2 --dist worksteal

# Every case of every test: `make test` leaves out some cases of tests that take long, the same ones every time.
test-all: $(STAMP)
	$(TESTED) -m pytest -n 2 --dist worksteal --whole

# Grids on a Ray cluster of two machines and on a Slurm of one, all on this machine, whose parts are killed meanwhile; a
# part that is not installed is skipped with its reason.
test-cluster: $(VENV)/cluster
	env NORMSCOPE_CLUSTER=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/engines tests/train/together --whole --timeout=1800

# The wheel and the source distribution of the commit, with the same bytes wherever they are built.
dist: $(STAMP)
	rm -rf build/lib build/bdist.* dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -c \
		'import setuptools.build_meta as b; b.build_sdist("dist"); b.build_wheel("dist")'

# As many mutants of the source as MUTANTS says, of the ROOMS named and by their tests, or of all; a run that was stopped
# goes on.
MUTANTS ?= 300
mutants: $(VENV)/mutants
	$(BIN)/python tests/mutants.py $(MUTANTS) $(ROOMS)

# Every file operation of every command that writes: each fails in turn, and after each the power is cut. Takes hours;
# EVERY=20 takes one fault of twenty, ALIKE=--alike of operations that do the same to the same file, numbers apart, the
# first and the last, WORKS="training prepare" these commands. What was found right is kept in .faults, so that a run
# that was stopped goes on.
EVERY ?= 1
faults: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m faults.attack errors $(WORKS) --every $(EVERY) $(ALIKE)
	PYTHONPATH=tests $(BIN)/python -m faults.attack power-cut $(WORKS) --every $(EVERY) $(ALIKE)
	PYTHONPATH=tests $(BIN)/python -m faults.attack stops $(WORKS) --every $(EVERY) $(ALIKE)
	NORMSCOPE_RUN_STATES=200 $(BIN)/python -m pytest tests/faults/test_run_states.py
	PYTHONPATH=tests $(BIN)/python tests/kill_preparations.py

# Everything hostile that we have met, each within a folder of its own, and how many of each kind were answered: files and
# manifests, names and links, code that ends the program, streams, disks, power, signals, changed files. Half an hour.
# KINDS="names code" takes these alone.
KINDS ?=
attack: $(STAMP)
	$(TESTED) tests/attacks $(KINDS)

# The manual as a site that opens from files, without a network: build/manual/index.html. A warning is an error.
docs: $(VENV)/docs
	$(BIN)/sphinx-build -W --keep-going --quiet -c docs/site . build/manual
	@echo build/manual/index.html

# Changed files for every reader, for FUZZ_SECONDS; goes on with other ones where the last call stopped.
FUZZ_SECONDS ?= 3600
fuzz: $(STAMP)
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python tests/fuzz

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python benchmarks/train_step.py
	$(BIN)/python benchmarks/bert_step.py
	$(BIN)/python benchmarks/llama_step.py
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/figure3.py
	$(BIN)/python benchmarks/monitor.py
	$(BIN)/python benchmarks/doctor.py
	$(BIN)/python benchmarks/corpora.py
	$(BIN)/python benchmarks/grid.py
	$(BIN)/python benchmarks/cell.py
	$(BIN)/python benchmarks/engines.py local 1000
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/predict.py

# What needs a CUDA device, tests and then measurements; says so and ends where there is none. PARTS="step-bert decode"
# takes these alone. GPU_PYTHON=python3 takes an interpreter that has the packages already, and builds no environment.
PARTS ?= step-translation step-bert step-llama decode training doctor predict
GPU_OUT ?= results/gpu
GPU_PYTHON ?= $(BIN)/python
gpu: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(STAMP))
	PYTHONPATH=src:$(PYTHONPATH) $(GPU_PYTHON) -m pytest tests/cuda
	PYTHONPATH=src:benchmarks:$(PYTHONPATH) $(GPU_PYTHON) -m gpu --parts $(PARTS) --out $(GPU_OUT)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis mutants build/manual

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14) and "NormScope needs Python 3.11 to 3.14; set PYTHON=...")'
	@echo "building $(VENV): some minutes, in which pip says nothing"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

$(VENV)/docs: $(STAMP) requirements-docs.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-docs.lock
	touch $(VENV)/docs

$(VENV)/cluster: $(STAMP) requirements-cluster.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-cluster.lock
	touch $(VENV)/cluster

$(VENV)/mutants: $(STAMP) requirements-mutants.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-mutants.lock
	touch $(VENV)/mutants
