# the system's, which is compiled with optimizations: with one from pyenv the tests took 8 % longer
PYTHON ?= $(shell /usr/bin/python3 -c 'import sys; print(sys.executable if sys.version_info >= (3, 11) else "python3")' \
  2>/dev/null || echo python3)
VENV := .venv
BIN := $(VENV)/bin
# uv takes seconds where pip takes minutes; pip knows mirrors of its own settings
INSTALL = install() { $(BIN)/uv pip install --quiet --python $(BIN)/python "$$@" || $(BIN)/pip install --quiet \
  --disable-pip-version-check "$$@"; }; install
READY := $(VENV)/.ready
PLOTS_READY := $(VENV)/.plots-ready
DOCS_READY := $(VENV)/.docs-ready
RPY2_READY := $(VENV)/.rpy2-ready
RELEASE_READY := $(VENV)/release/.ready
HUB_READY := $(VENV)/hub/.ready
JAX_READY := $(VENV)/jax/.ready
R_LIB := $(VENV)/r
R_CHECK := $(VENV)/r-check
R_LINTED := $(VENV)/.r-linted

export RETICULATE_PYTHON := $(CURDIR)/$(BIN)/python
# uv compiles nothing that it installs: where this is set, each process of the tests compiles Keras, for seven seconds
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test quick lint types pytest jax r r-lint r-check r-packages r-library r-site test-tarball test-debian13 test-keras3 docs test-docs test-pages test-example test-site test-versions release demo bench soak mutants gpu-check null-gpu-check test-hub clean

# the tests in R beside those in Python, some of which wait; each says what it has to say when it is done
test: $(READY)
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types r-library $(RPY2_READY)
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target pytest r jax

# Keras imports what it can do without, where it is there: a third of the time of each process that starts
pytest quick test-docs test-pages test-example test-site soak: export PYTHONPATH := $(CURDIR)/tests/support/imports

# what a developer runs after each edit: the tests with the mark `quick`; one device is as users have it, in graphs
quick: lint types r-library $(RPY2_READY)
	MULTIGPU_GRAPHS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "quick and not soak"
	rm -rf $(VENV)/testthat && cp -r tests/testthat $(VENV)/testthat # snapshots of what does not run may be deleted
	R_LIBS=$(R_LIB) NOT_CRAN=false TF_CPP_MIN_LOG_LEVEL=2 Rscript -e \
	  'testthat::test_dir("$(VENV)/testthat", package = "multigpu", load_package = "installed", reporter = "summary")'

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo

types: $(READY)
	$(BIN)/mypy

pytest: $(RPY2_READY) r-library
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not pages and not soak"

# numbers on the engine on JAX, and its own tests, with the newest JAX and without TensorFlow. XLA leaves out LLVM's
# optimizations here, for one device too, and JAX keeps what is compiled, as many tests compile the same: each saves a
# quarter of the time or more. `make test-versions` does neither
jax: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/$(VENV)/jax/compiled
jax: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
jax: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES := -1
jax: $(JAX_READY)
	XLA_FLAGS=--xla_backend_optimization_level=0 KERAS_BACKEND=jax PYTHONPATH=python $(VENV)/jax/bin/python -m pytest -m "not soak" tests/exactness tests/engines/jax

r: r-lint r-check

r-lint: $(R_LINTED)

# anew where a file in R has changed, or is new or gone
$(R_LINTED): $(wildcard .lintr .ci/*roxygen* .ci/*.R DESCRIPTION NAMESPACE man man/* R R/* tests/testthat tests/testthat/*.R \
  tests/keras3/*.R bench/*/*.R examples examples/*.R* vignettes/*.Rmd inst/rstudio/*) | r-library
	./.ci/check-roxygen
	R_LIBS=$(R_LIB) Rscript .ci/lint-r.R
	touch $@

r-check: $(READY) r-packages
	./.ci/check-r $(R_CHECK)

r-packages:
	./.ci/install-r

r-library: $(READY) r-packages
	mkdir -p $(R_LIB)
	R CMD INSTALL --library=$(R_LIB) . >/dev/null

# the site of both languages, in .venv/site
docs: $(DOCS_READY) r-packages
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m sphinx -q -W --keep-going -b html -c docs . $(VENV)/site
	@echo 'The site is in $(VENV)/site: open $(VENV)/site/index.html'

test-docs: test-pages test-example test-site

# the code of pages and examples
test-pages: $(DOCS_READY) $(RPY2_READY) r-library
	$(BIN)/python -m pytest -n 2 --dist load -m pages tests/project tests/r/embedded

test-example: $(READY) r-library
	R_LIBS=$(R_LIB) NOT_CRAN=true TF_CPP_MIN_LOG_LEVEL=2 Rscript -e \
	  'testthat::test_file("tests/r/test-example.R", package = "multigpu", load_package = "installed", stop_on_failure = TRUE)'

# the site's links, and how it looks and works in Chromium, with screenshots beside it
test-site: docs
	./.ci/install-chromium
	$(BIN)/python -m pytest -p no:xdist tests/site

# the pages of the R package, as a site in .venv/r-site
r-site: r-library
	R_LIBS=$(R_LIB) Rscript .ci/r-site.R

# what R CMD build made, as a new user installs it
test-tarball: $(READY)
	[ -e $(R_CHECK)/multigpu_*.tar.gz ] || ./.ci/check-r $(R_CHECK)
	./.ci/test-tarball $(R_CHECK)/multigpu_*.tar.gz

test-debian13:
	./.ci/test-debian13

# beside the real keras3, in the R library KERAS3_LIB
test-keras3: $(READY)
	mkdir -p $(VENV)/r-keras3
	R_LIBS=$(KERAS3_LIB) R CMD INSTALL --library=$(VENV)/r-keras3 . >/dev/null
	R_LIBS=$(CURDIR)/$(VENV)/r-keras3:$(KERAS3_LIB) TF_CPP_MIN_LOG_LEVEL=2 CUDA_VISIBLE_DEVICES=-1 Rscript -e \
	  'testthat::test_dir("tests/keras3", reporter = "summary")'

# the lowest and the newest versions of what the package needs; NAMES=lowest is one of the environments
NAMES ?=
test-versions:
	$(PYTHON) .ci/test_versions.py $(NAMES)

# wheel, sdist and R tarball of the last commit, in dist/: built, checked, installed anew and trained with
release: $(READY) $(RELEASE_READY) r-packages
	$(VENV)/release/bin/python .ci/release.py

demo: $(READY) r-library
	$(BIN)/python examples/demo.py
	R_LIBS=$(R_LIB) Rscript examples/demo.R

bench: $(PLOTS_READY) r-library
	$(BIN)/python bench/lib/report.py

# two hours on two cores; SEED=1 gives other models, moments and files
SEED ?= 0
soak: $(PLOTS_READY) $(RPY2_READY) $(JAX_READY) r-library
	MULTIGPU_GRAPHS=1 $(BIN)/python -m pytest -n 3 --dist loadfile -m "soak and not pages"
	XLA_FLAGS=--xla_backend_optimization_level=0 KERAS_BACKEND=jax PYTHONPATH=python $(VENV)/jax/bin/python -m pytest -m soak tests/engines/jax
	$(BIN)/python bench/soak --seed $(SEED) --write

# small defects in the package, which the tests have to notice: the first line takes a run of all tests
mutants: $(PLOTS_READY) r-library
	$(BIN)/python bench/mutants --coverage
	$(BIN)/python bench/mutants --seed $(SEED)

# models of keras-hub, in an environment of its own; ONLY="Bert SAM" are those whose names begin so. With
# KERAS_BACKEND=jax, on JAX. It goes on where it was ended
ONLY ?=
test-hub: $(HUB_READY)
	PYTHONPATH=$(CURDIR)/python CUDA_VISIBLE_DEVICES=-1 TF_CPP_MIN_LOG_LEVEL=3 \
	  XLA_FLAGS=--xla_backend_optimization_level=0 $(VENV)/hub/bin/python bench/hub \
	  $(if $(ONLY),--only $(ONLY),--write --rows $(VENV)/hub/$(or $(KERAS_BACKEND),tensorflow).jsonl)

gpu-check: $(READY)
	$(BIN)/python tests/gpu/gpu_check.py

# what a step copies and XLA compiles, counted by a CUDA without a GPU, which NULL_CUDA/build makes with g++;
# HOW=--quick leaves out what takes long, HOW=--write keeps the figures
null-gpu-check: $(READY)
	$(NULL_CUDA)/build $(VENV)/null-gpus $(BIN)/python
	LD_LIBRARY_PATH=$(CURDIR)/$(VENV)/null-gpus PYTHONPATH=$(NULL_CUDA) \
	  XLA_FLAGS=--xla_gpu_enable_command_buffer= $(BIN)/python bench/traffic/null_gpus.py $(HOW)
	LD_LIBRARY_PATH=$(CURDIR)/$(VENV)/null-gpus PYTHONPATH=$(NULL_CUDA) $(BIN)/python bench/traffic/null_pipeline.py $(HOW)
	LD_LIBRARY_PATH=$(CURDIR)/$(VENV)/null-gpus NULL_CUDA_DEVICES=8 TF_FORCE_GPU_ALLOW_GROWTH=true \
	  XLA_FLAGS=--xla_gpu_enable_command_buffer= $(BIN)/python bench/speed/xla_programs.py --count $(HOW)

# numpy stays below 2 here, because the reticulate of Debian 12 shares this environment
$(READY): pyproject.toml
	$(BIN)/python -c 'import pip, subprocess' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV) || ./.ci/install-venv $(PYTHON)
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv || true # without it pip does it all
	$(INSTALL) --editable '.[dev]' 'numpy<2'
	touch $@

$(PLOTS_READY): $(READY)
	$(INSTALL) --editable '.[bench]' 'numpy<2'
	touch $@

$(DOCS_READY): $(READY)
	$(INSTALL) --editable '.[docs]' 'numpy<2'
	touch $@

# the one that fits this R; without its C part, which needs a compiler
RPY2 = $$($(BIN)/python -c 'from multigpu.r.embedded import requirements as r; print(r.rpy2_for(r.version_of_r()))')
$(RPY2_READY): $(READY) | r-packages
	export RPY2_CFFI_MODE=ABI; $(INSTALL) --editable '.[r]' "$(RPY2)" 'numpy<2'
	touch $@

# keras-hub brings tensorflow-text, and with it its own TensorFlow; the package is read from here
$(HUB_READY): $(READY)
	$(PYTHON) -m venv $(VENV)/hub
	versions=$$($(BIN)/python -c 'from importlib.metadata import version as v; \
	  print(*(f"{name}=={v(name)}" for name in ("keras", "tensorflow")))'); \
	  $(BIN)/uv pip install --quiet --python $(VENV)/hub/bin/python keras-hub jax $$versions || \
	  $(VENV)/hub/bin/pip install --quiet --disable-pip-version-check keras-hub jax $$versions
	touch $@

# JAX from 0.7.2 on needs numpy 2, which the reticulate of Debian 12 does not take; the package is read from here
$(JAX_READY): $(READY)
	$(PYTHON) -m venv $(VENV)/jax
	$(BIN)/uv pip install --quiet --python $(VENV)/jax/bin/python jax keras h5py scipy pytest hypothesis || \
	  $(VENV)/jax/bin/pip install --quiet --disable-pip-version-check jax keras h5py scipy pytest hypothesis
	touch $@

# tools alone, without the package
$(RELEASE_READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)/release
	$(VENV)/release/bin/pip install --quiet --disable-pip-version-check $$($(PYTHON) -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["release"])')
	touch $@

clean:
	rm -rf $(VENV)
