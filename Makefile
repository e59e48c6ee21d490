# Every command a developer types. All of them share one environment, .venv, which is made on the first use
# (network needed) and left alone until requirements/ or setup.cfg changes (no network needed).

SHELL := /bin/sh
.DELETE_ON_ERROR:
.PHONY: help demo quick test test-minimum test-newest test-mpi example-mlx mutation lint types table docs package bench bench-gpu environment lock clean

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/stamp
LOCK := requirements/lock.txt
OLDEST := requirements/lock-minimum.txt
# Everything but cupy, which is of use on a machine with CUDA only, the peers of the benchmarks, and trackers of runs.
APART := chainer-cuda bench bench-alone mutation wandb mlflow
REQUIREMENTS := $(filter-out $(LOCK) $(OLDEST) $(APART:%=requirements/%.txt),$(sort $(wildcard requirements/*.txt)))
# What pip says goes to a log, of which the end is shown when it fails.
PIP := -m pip --disable-pip-version-check --require-virtualenv --no-input install --progress-bar off
# Two test processes of one thread each: more threads than cores make each other slow.
WORKERS ?= 2
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMEXPR_NUM_THREADS=1

help:
	@echo "make demo    see it work"
	@echo "make quick   the folders that take a minute or two, at each save"
	@echo "make test    all tests, before a commit (PYTEST='-k nest' passes arguments on)"
	@echo "make test-minimum  the folders of make quick with the oldest versions that requirements/ admits"
	@echo "make test-newest  the conformance suite with the newest releases (PYTHON=python3.13 chooses the Python)"
	@echo "make example-mlx  the backend of examples/mlx on MLX itself: its suite, proofs against PyTorch, a run on the digits"
	@echo "make mutation  which changes of a file its tests see (FILE=deliralike/nest/tree.py TESTS=tests/core)"
	@echo "make test-mpi  the tests of processes over MPI alone"
	@echo "make lint    style, floors of imports, types"
	@echo "make types   write the types of self.nn, after a change of its layers"
	@echo "make table   write the table of the zoo, after a change of an architecture"
	@echo "make docs    the documentation, into docs/_build/html"
	@echo "make package  the wheel and the source archive, tried without and with one framework"
	@echo "make bench   the benchmarks"
	@echo "make bench-gpu  the benchmarks that need a GPU, into build/gpu.md and build/gpu.jsonl"
	@echo "make lock    refresh requirements/lock.txt from the ranges in requirements/"
	@echo "make clean   remove the environment and everything built"

demo: $(STAMP)
	@$(PY) examples/demo.py

# Every framework is in this environment, so a module that cannot be imported is an error here,
# not a doctest to skip as it is in pyproject.toml.
RUN_TESTS = $(ONE_THREAD) MPLBACKEND=Agg $(PY) -m pytest -n $(WORKERS) --dist loadgroup \
	-o addopts="--doctest-modules --import-mode=importlib"
QUICK := tests/core tests/data tests/inference tests/optimizer tests/weights tests/test_weights.py tests/test_neutral_state.py

quick: $(STAMP)
	@$(RUN_TESTS) $(QUICK) $(PYTEST)

test: $(STAMP)
	@$(RUN_TESTS) --durations=20 $(PYTEST)

# The folders of `make quick` in an environment of its own.
test-minimum: PY := .venv-minimum/bin/python
test-minimum: .venv-minimum/stamp
	@$(RUN_TESTS) $(QUICK) $(PYTEST)

.venv-minimum/stamp: $(OLDEST) setup.cfg
	@rm -f $@
	@$(call make_venv,$(@D))
	@{ PIP_BUILD_CONSTRAINT=$(OLDEST) PIP_CONSTRAINT=$(OLDEST) $(@D)/bin/python $(PIP) -r $(OLDEST) && \
		$(@D)/bin/python $(PIP) --no-index --no-deps --no-build-isolation -e .; } > $(@D)/pip.log 2>&1 \
		|| { $(call tell,test-minimum,$(@D)); exit 1; }
	@touch $@

# The newest releases, above the ranges of requirements/ too: the suite of each backend, and a proof between them.
# Without PyTorch, whose newest wheel may be a CUDA build of several gigabytes.
NEWEST := .venv-newest
test-newest:
	@rm -rf $(NEWEST)
	@$(call make_venv,$(NEWEST))
	@sed 's/,<[^,]*$$//' requirements/base.txt requirements/jax.txt > $(NEWEST)/newest.txt
	@cp requirements/build.txt $(NEWEST)/build.txt
	@{ PIP_BUILD_CONSTRAINT=$(NEWEST)/build.txt PIP_CONSTRAINT=$(NEWEST)/build.txt $(NEWEST)/bin/python $(PIP) \
		-r $(NEWEST)/newest.txt -r requirements/chainer.txt -r requirements/build.txt pytest && \
		$(NEWEST)/bin/python $(PIP) --no-index --no-deps --no-build-isolation -e .; } > $(NEWEST)/pip.log 2>&1 \
		|| { $(call tell,test-newest,$(NEWEST)); exit 1; }
	@$(NEWEST)/bin/python -m pip list 2>/dev/null | grep -iE '^(jax|flax|optax|chainer|numpy|scipy) '
	@$(NEWEST)/bin/deliralike compare resnet8 --backends chainer,jax
	@for one in chainer jax; do \
		$(ONE_THREAD) $(NEWEST)/bin/python -m pytest -q -o addopts= --pyargs deliralike.conformance --backend $$one || exit 1; \
	done

# The tests of processes over MPI alone; `make test` runs them too.
test-mpi: $(STAMP)
	@$(ONE_THREAD) $(PY) -m pytest -n $(WORKERS) tests/processes tests/cli/test_launch.py -k mpi $(PYTEST)

# The example of a backend in a package of its own, on MLX itself, in an environment on top of .venv (network needed).
# `make test` tests it on NumPy.
MLX := .venv-mlx
example-mlx: PAIR := --backends torch,mlx --batch 4
example-mlx: $(STAMP)
	@$(call make_venv,$(MLX))
	@$(PY) -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > \
		$$($(MLX)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth
	@{ $(MLX)/bin/python $(PIP) "mlx[cpu]" && $(MLX)/bin/python $(PIP) --no-deps -e examples/mlx; } > $(MLX)/pip.log 2>&1 \
		|| { $(call tell,example-mlx,$(MLX)); exit 1; }
	@$(ONE_THREAD) $(MLX)/bin/python -m pytest -q -o addopts= --pyargs deliralike.conformance --backend mlx
	@for network in lenet "resnet18 --input 3x64x64" "unet --input 1x32x32" "examples/mlx/own_network.py:Pictures --input 3x9x9" \
		"gpt2 --set n_layer=2 --set n_embd=64 --set n_head=4 --set vocab_size=300 --set n_positions=64" \
		"deit_tiny_patch16_224 --set image_size=32 --set num_layers=3 --input 3x32x32"; do \
		$(ONE_THREAD) $(MLX)/bin/python -m deliralike compare $$network $(PAIR) | tail -n 1; \
	done
	@$(ONE_THREAD) $(MLX)/bin/python examples/mlx/digits.py

# Which changes of one file its tests see, by cosmic-ray, on a copy: make mutation FILE=deliralike/nest/tree.py TESTS=tests/core
mutation: COPY := build/mutation
mutation: CALL := cd $(COPY) && $(ONE_THREAD) MPLBACKEND=Agg PYTHONPATH=. $(abspath $(VENV))/bin
mutation: $(STAMP)
	@test -n "$(FILE)" && test -n "$(TESTS)" || { echo "make mutation FILE=deliralike/nest/tree.py TESTS=tests/core"; exit 2; }
	@PIP_CONSTRAINT=$(LOCK) $(PY) $(PIP) -q -r requirements/mutation.txt
	@rm -rf $(COPY) && mkdir -p $(COPY)
	@git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $(COPY)
	@printf '[cosmic-ray]\nmodule-path = "%s"\ntimeout = 120.0\nexcluded-modules = []\ntest-command = "%s"\ndistributor.name = "local"\n' \
		"$(FILE)" "$(abspath $(PY)) -m pytest -x -q -n 0 -p no:cacheprovider $(TESTS)" > $(COPY)/mutants.toml
	@$(CALL)/cosmic-ray baseline mutants.toml
	@$(CALL)/cosmic-ray init mutants.toml mutants.sqlite
	@$(CALL)/cosmic-ray exec mutants.toml mutants.sqlite
	@$(CALL)/cr-report --surviving-only --show-diff mutants.sqlite

lint: $(STAMP)
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check -q
	@$(VENV)/bin/lint-imports --no-logo
	@$(PY) -m mypy

types: $(STAMP)
	@$(PY) -m tests.typed.interface

table: $(STAMP)
	@$(PY) -m tests.zoo.table

docs: $(STAMP)
	@$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "docs: docs/_build/html/index.html"

# The wheel and the source archive, whole and alike; then the wheel in an environment that has nothing but what it asks
# for: no framework, no file of this folder; and at last with the lightest framework that ONE names.
package: EMPTY := .venv-empty
package: REBUILT := build/from-archive
package: ONE ?= torch
package: $(STAMP)
	@rm -rf dist build/lib build/bdist.* $(REBUILT) $(EMPTY)
	@$(PY) $(PIP:install%=wheel) -q --no-deps --no-build-isolation -w dist .
	@$(PY) -m build -q --sdist --no-isolation
	@$(PY) $(PIP:install%=wheel) -q --no-deps --no-build-isolation -w $(REBUILT) dist/*.tar.gz
	@$(PY) -m tests.packaged dist $(REBUILT)
	@$(call make_venv,$(EMPTY))
	@PIP_CONSTRAINT=$(LOCK) $(EMPTY)/bin/python $(PIP) dist/*.whl > $(EMPTY)/pip.log 2>&1 || { $(call tell,package,$(EMPTY)); exit 1; }
	@cd $(EMPTY) && bin/python -I ../tests/package_alone.py
	@PIP_CONSTRAINT=$(LOCK) $(EMPTY)/bin/python $(PIP) "$$(ls dist/*.whl)[$(ONE),data]" > $(EMPTY)/pip.log 2>&1 || { $(call tell,package,$(EMPTY)); exit 1; }
	@cd $(EMPTY) && bin/python -I ../tests/package_with_framework.py $(ONE)
	@rm -rf $(EMPTY)
	@echo "package: $$(ls dist/*)"

bench: $(STAMP)
	@PIP_CONSTRAINT=$(LOCK) $(PY) $(PIP) -q -r requirements/bench.txt
	@$(PY) $(PIP) -q --no-deps -r requirements/bench-alone.txt
	@$(PY) -m benchmarks

# What only a GPU can show, a line of JSON for each result. Where there is none, each step says so.
bench-gpu: $(STAMP)
	@$(PY) -m benchmarks.gpu

environment: $(STAMP)

# The lock binds what is built on the way, too (Chainer's setuptools): PIP_CONSTRAINT does it for pip before 25.3,
# PIP_BUILD_CONSTRAINT from there on. The stamp comes last, so an install that failed is tried again.
$(STAMP): $(REQUIREMENTS) $(LOCK) setup.cfg
	@rm -f $@
	@$(call make_venv,$(VENV))
	@echo "environment: installing $$(grep -c == $(LOCK)) pinned packages into $(VENV) (minutes the first time)"
	@{ PIP_CONSTRAINT=$(LOCK) PIP_BUILD_CONSTRAINT=$(LOCK) $(PY) $(PIP) $(addprefix -r ,$(REQUIREMENTS)) && \
		$(PY) $(PIP) --no-index --no-deps --no-build-isolation -e .; } > $(VENV)/pip.log 2>&1 \
		|| { $(call tell,environment,$(VENV)); exit 1; }
	@touch $@
	@echo "environment: ready, $$($(PY) --version)"

# torch keeps its pin: a newer wheel may be a CUDA build of several gigabytes. To move it, edit its line in the lock.
lock: LOCKING := .venv-lock
lock:
	@rm -rf $(LOCKING)
	@$(call make_venv,$(LOCKING))
	@echo "lock: resolving the ranges in requirements/"
	@grep '^torch==' $(LOCK) > $(LOCKING)/constraint.txt
	@cat requirements/build.txt >> $(LOCKING)/constraint.txt
	@PIP_CONSTRAINT=$(LOCKING)/constraint.txt PIP_BUILD_CONSTRAINT=$(LOCKING)/constraint.txt \
		$(LOCKING)/bin/python $(PIP) $(addprefix -r ,$(REQUIREMENTS)) -r requirements/bench.txt > $(LOCKING)/pip.log 2>&1 \
		|| { $(call tell,lock,$(LOCKING)); exit 1; }
	@{ echo "# Every package of the environment, exactly, for Python 3.11. Written by 'make lock'; used as a constraint."; \
		$(LOCKING)/bin/python -m pip freeze --all --exclude pip | sed 's/+cpu$$//'; } > $(LOCKING)/lock.txt
	@mv $(LOCKING)/lock.txt $(LOCK)
	@rm -rf $(LOCKING)
	@echo "lock: $$(grep -c == $(LOCK)) packages in $(LOCK); run 'make test' and 'make lint' before you commit it"

clean:
	rm -rf $(VENV) .venv-lock .venv-empty .venv-minimum .venv-newest $(MLX) build dist docs/_build docs/_generated *.egg-info
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

tell = { grep -v -e '^WARNING: Location' -e '^Requirement already' $(2)/pip.log | tail -n 25; echo "$(1): pip failed; its whole log is $(2)/pip.log"; } >&2

# A virtual environment with pip at the path given, made anew if the one that is there is broken or half made.
define make_venv
$(1)/bin/python -m pip --version >/dev/null 2>&1 && exit 0; \
for candidate in $(PYTHON) python3.11 python3 python3.12 python3.13 python; do \
	"$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	echo "environment: making $(1) with $$("$$candidate" --version)"; \
	"$$candidate" -m venv --clear $(1); exit; \
done; \
echo "environment: no Python of 3.11 or later with the modules venv and ensurepip was found" >&2; \
echo "  (tried: $(strip $(PYTHON) python3.11 python3 python3.12 python3.13 python)). Install one, or name it: make PYTHON=/path/to/python3.11" >&2; \
exit 1
endef
