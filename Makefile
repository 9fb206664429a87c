# Everything runs in .venv, which the first target that needs it creates; TensorFlow, which needs
# neither torch nor jax, in .venv-tensorflow. pip's own settings (PIP_* variables, pip.conf) are
# honoured. Start over with: rm -rf .venv .venv-tensorflow

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TENSORFLOW := .venv-tensorflow
PIP := python -m pip install -qq --disable-pip-version-check -c constraints.txt
INSTALL := $(BIN)/$(PIP)
# Installed first and by its exact version: from a looser requirement pip may choose a build
# with gigabytes of CUDA libraries.
TORCH := $(shell grep '^torch==' constraints.txt)

.DEFAULT_GOAL := help
.PHONY: help demo test test-tensorflow lint bench docs clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    show AutoLRS choosing learning rates on a small task"
	@echo "make test    lint, types and tests"
	@echo "make lint    lint and types only"
	@echo "make bench   the smoke profile of every task, rival and table"
	@echo "make docs    build the documentation site and run its examples"
	@echo "make test-tensorflow   the Keras adapter on TensorFlow, in an environment of its own"
	@echo "make clean   remove caches and build products (keeps .venv and runs)"

demo: $(VENV)/.demo-stamp
	@$(BIN)/autolrs demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(VENV)/.test-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src/autolrs

test-tensorflow: $(TENSORFLOW)/.stamp
	OMP_NUM_THREADS=1 KERAS_BACKEND=tensorflow $(TENSORFLOW)/bin/python -m pytest tests/test_keras_.py

bench: $(VENV)/.test-stamp
	@OMP_NUM_THREADS=1 $(BIN)/autolrs bench smoke --out runs/smoke

docs: $(VENV)/.test-stamp
	$(BIN)/mkdocs build --strict
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/docs

clean:
	rm -rf build dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# venv installs pip last, so its presence means that the environment is complete.
%/bin/pip:
	@echo "creating $* with $(PYTHON)"
	@$(PYTHON) -m venv $*

$(VENV)/.demo-stamp: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "setting up $(VENV) (first time: about two minutes)"
	@echo "  $(TORCH)"
	@$(INSTALL) $(TORCH)
	@echo "  autolrs[torch,cli,report], scikit-learn"
	@$(INSTALL) -e '.[torch,cli,report]' scikit-learn
	@touch $@

$(VENV)/.test-stamp: $(VENV)/.demo-stamp
	@echo "  autolrs[dev]: every adapter, test and lint tools"
	@$(INSTALL) -e '.[dev]'
	@touch $@

$(TENSORFLOW)/.stamp: pyproject.toml constraints.txt | $(TENSORFLOW)/bin/pip
	@echo "setting up $(TENSORFLOW) (first time: about a minute)"
	@$(TENSORFLOW)/bin/$(PIP) -e '.[keras]' tensorflow-cpu scikit-learn pytest pytest-timeout hypothesis
	@touch $@
