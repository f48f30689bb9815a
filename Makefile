# Everything runs from a fresh clone with Python (3.11 or newer) and make alone.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# The yardstick needs packages that the project itself does not use (docs/fla_yardstick.md).
FLA_VENV  ?= .venv-fla
FLA_BIN   := $(FLA_VENV)/bin
FLA_STAMP := $(FLA_VENV)/.installed

# Waiting OpenMP threads must sleep, not spin: on a busy machine spinning costs a factor of ten.
export OMP_WAIT_POLICY = PASSIVE
export PYTHONUNBUFFERED = 1

.DEFAULT_GOAL := help
.PHONY: help install install-fla demo docs results study test test-fla test-oldest sanitize gpu-check lint format clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: $(STAMP) ## make .venv with the project and its pinned dependencies in it

$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard tabicl_linear/backends/cpp/csrc/*)
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; set PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "$$(grep '^pip==' constraints.txt || echo pip)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools
	# The C++ kernels take a core for a minute, and packages wait for the network: side by side.
	$(BIN)/python setup.py -q build_ext --inplace & \
		$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0 && wait $$!
	TABICL_LINEAR_PURE=1 $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,baselines]'
	touch $@

demo: $(STAMP) ## pretrain a small DeltaNet on synthetic tables, score real tables, draw figures
	$(BIN)/python -m experiments.demo.run --output runs/demo

# Hours on two cores; stopped, it goes on where it was. What was scored once is kept in experiments/results/measured and not
# scored again. The model of `make demo` is scored where its checkpoint is there.
TABLES ?= ../shared/data/real
DEMO   ?= $(wildcard runs/demo/version_0/last.ckpt)
results: $(STAMP) ## score models and baselines on the real tables in TABLES, write docs/results
	$(BIN)/python -m experiments.results.run --tables $(TABLES) $(DEMO:%=--demo %) --output runs/results

# Tables and figures of the kept measurements; more are trained and measured with experiments.study.run.
# The smallest scale trains and measures tiny models first.
SCALE ?= small
SMOKE  = runs/study/smoke
study: $(STAMP) ## make every table and figure of the study anew (SCALE=small, or smoke)
ifeq ($(SCALE),smoke)
	rm -rf $(SMOKE)
	$(BIN)/python -m experiments.study.run --scale smoke --store $(SMOKE)/store --measured $(SMOKE)/measured
	$(BIN)/python -m experiments.study.cost --scale smoke --measured $(SMOKE)/measured
	$(BIN)/python -m experiments.study.report --scale smoke --measured $(SMOKE)/measured --output $(SMOKE)/results
else
	$(BIN)/python -m experiments.study.report --scale $(SCALE)
endif

# A worker for each core and one thread for each worker. Each takes its half in order, so that what the
# tests of a file share is made once; who is done first takes over a part of the rest.
test: export OMP_NUM_THREADS = 1
# Containers often ask Python to keep no compiled files. Then every worker compiles all tests, and every
# command that a test starts the whole package; empty is as not asked.
test: export PYTHONDONTWRITEBYTECODE =
test: $(STAMP) ## run all tests (CPU, no network)
	$(BIN)/python -m pytest --numprocesses=auto --dist=worksteal

test-fla: export TRITON_INTERPRET = 1
test-fla: export CUDA_VISIBLE_DEVICES =
test-fla: $(FLA_STAMP) ## compare with flash-linear-attention, in a separate environment
	$(FLA_BIN)/python -m pytest -c tests/fla_yardstick/pytest.ini --confcutdir tests/fla_yardstick tests/fla_yardstick

# Versions that are years old warn of each other, which is no fault of ours.
test-oldest: export OMP_NUM_THREADS = 1
test-oldest: constraints-oldest.txt ## run all tests with the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint $< --editable '.[train,benchmarks,dask,baselines]' \
		polars pytest pytest-timeout pytest-xdist hypothesis beartype
	.venv-oldest/bin/python -m pytest --numprocesses=auto --dist=worksteal --override-ini=filterwarnings=default

# The project need not be installed: torch and jaxtyping are enough to check the kernels. Timings also
# need lightning, jsonargparse and scipy; without them they are listed as skipped (tools/gpu_check).
gpu-check: ## check kernels, training, prior and long contexts on this machine's CUDA device
	$(PYTHON) -m tools.gpu_check --output runs/gpu_check.md

# A copy of the package with a checked library; the tests of everything that computes in C++.
CHECKED = runs/sanitize
sanitize: export CXXFLAGS = -fsanitize=address,bounds -fno-omit-frame-pointer
sanitize: export LDFLAGS = -fsanitize=address,bounds
sanitize: $(STAMP) ## run the tests of the C++ kernels with every access to memory checked (gcc; 15 minutes)
	rm -rf $(CHECKED) && mkdir -p $(CHECKED)
	cp -r tabicl_linear tests configs setup.py pyproject.toml README.md $(CHECKED)
	rm -f $(CHECKED)/tabicl_linear/backends/cpp/*.so
	cd $(CHECKED) && $(abspath $(BIN))/python setup.py -q build_ext --inplace
	cd $(CHECKED) && LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 $(abspath $(BIN))/python -m pytest -p no:xdist \
		tests/backends tests/kernels tests/mixers tests/ridge_inputs tests/embedding tests/nn tests/estimator/learners

install-fla: $(FLA_STAMP) ## make .venv-fla, the environment of `make test-fla`

# What is in .venv already, torch above all, is seen through a line of a .pth file and not installed again; what
# constraints-fla.txt pins to another version is, and comes first.
$(FLA_STAMP): $(STAMP) constraints-fla.txt
	$(BIN)/python -m venv --without-pip $(FLA_VENV)
	$(BIN)/python -c 'import os, sysconfig; print(sysconfig.get_path("purelib"), os.getcwd(), sep="\n")' \
		> $$(echo $(FLA_VENV)/lib/python*/site-packages)/shared.pth
	$(FLA_BIN)/python -m pip install --quiet --constraint constraints-fla.txt flash-linear-attention \
		triton packaging pytest jaxtyping pyyaml safetensors numpy
	touch $@

lint: $(STAMP) ## ruff, mypy and codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs tabicl_linear experiments tests tools configs

format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs ## build the documentation as a site in runs/site, which is read without a network
	$(BIN)/python -m mkdocs build

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

clean: ## remove environments and caches (not runs/)
	rm -rf $(VENV) $(FLA_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
