PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PLOTS_READY := $(VENV)/.plots-ready

.PHONY: test lint types pytest demo bench gpu-check clean

test: lint types pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

pytest: $(READY)
	$(BIN)/python -m pytest -n 2

demo: $(READY)
	$(BIN)/python examples/demo.py

bench: $(PLOTS_READY)
	$(BIN)/python bench/results.py

gpu-check: $(READY)
	$(BIN)/python bench/gpu_check.py

# numpy stays below 2 here, because the reticulate of Debian 12 shares this environment
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV) || ./.ci/install-venv $(PYTHON)
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]' 'numpy<2'
	touch $@

$(PLOTS_READY): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]' 'numpy<2'
	touch $@

clean:
	rm -rf $(VENV)
