# Every command a contributor needs. `make demo` and `make test` each start from a bare clone.

# Where the environment forbids Python to keep what it compiles, each of the hundreds of processes that the tests start
# would compile torch and all else anew, as setup does not compile anything: it would take half as long again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test suite check format bench docs pages parity coverage soak autogluon pycaret clean

help:  ## List these commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(READY)  ## Create .venv with everything the project needs, the Triton server included

# A newer pip than Python 3.11 brings, which takes half the time to choose versions. torch first and alone, so that no
# other package pulls another build of it; nvidia-pytriton without its dependencies, because only the Triton server
# inside the wheel is used, and NGBoost with lifelines and pyGAM, because they exclude releases that they work with. Not
# compiled: Python compiles what is imported, and of 14,000 modules the tests import a quarter.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt torch==2.13.0 triton==3.7.1
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt --no-deps nvidia-pytriton ngboost lifelines pygam
	@touch $@

demo: setup  ## Train, export, serve, query, verify and compare batching configurations, on real data
	$(BIN)/python -m triton_regressors.demo

test: setup  ## Run everything that needs no GPU, the real Triton server included
	@$(MAKE) --no-print-directory -j 2 check suite

# Three processes keep two processors busy: an eighth of the time tests wait, most for Triton servers to end. Threads of
# NumPy's BLAS and of OpenMP that have nothing to do would take the processors from the other tests.
suite: export OMP_WAIT_POLICY = passive
suite: export OPENBLAS_THREAD_TIMEOUT = 4
suite: setup
	$(BIN)/python -m pytest -n 3 --dist loadfile

check: setup  ## Lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## Measure against peers on this machine and write benchmarks/results
	$(BIN)/python -m benchmarks.run

docs: setup  ## Build the site of README.md and docs/ into build/site, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

pages: setup  ## Make the generated pages, and what the examples of the others print, anew
	$(BIN)/python -m docs.estimators
	$(BIN)/python -m benchmarks.figures.tables
	$(BIN)/python -m gallery.pictures
	$(BIN)/python -m docs.contribution_pictures
	$(BIN)/python -m gallery.page
	$(BIN)/python -m gallery.notebooks
	$(BIN)/python -m docs.examples

parity: setup  ## Serve every case of the test catalogue, its contributions too, and print the errors
	$(BIN)/python -m tests.server.parity
	$(BIN)/python -m tests.server.explained

coverage: setup  ## Measure every case of the catalogue and make docs/coverage.md anew
	$(BIN)/python -m docs.coverage measure
	$(BIN)/python -m docs.coverage float32
	$(BIN)/python -m docs.coverage contributions
	$(BIN)/python -m docs.coverage write

soak: setup  ## Send 300 concurrent clients to a real Triton server for a minute, one request in ten bad
	$(BIN)/python -m tests.server.soak

# AutoGluon wants an older pandas than constraints.txt has. fastai without its dependencies, as it reads no text here.
autogluon: .venv-autogluon/.ready  ## Export and serve AutoGluon's predictors, in an environment of their own
	.venv-autogluon/bin/python -m pytest tests/exporter/estimators/test_autogluon.py tests/server/test_autogluon.py

.venv-autogluon/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-autogluon
	.venv-autogluon/bin/python -m pip install --quiet --no-compile -c constraints.txt torch==2.13.0 triton==3.7.1
	.venv-autogluon/bin/python -m pip install --quiet --no-compile -c constraints.txt --editable '.[export,parquet]' \
		autogluon.tabular==1.6.3 catboost lightgbm xgboost-cpu pytest pytest-timeout hypothesis \
		'skl2onnx<1.21' 'onnx<1.23' 'onnxruntime<1.24' threadpoolctl
	.venv-autogluon/bin/python -m pip install --quiet --no-compile -c constraints.txt --no-deps nvidia-pytriton
	.venv-autogluon/bin/python -m pip install --quiet --no-compile --no-deps fastai==2.8.7 fastcore==1.14.5 \
		fasttransform==0.0.4 fastprogress==1.0.5 fastdownload==0.0.8 plum-dispatch==2.10.1 beartype==0.23.1 cloudpickle
	@touch $@

# PyCaret states older releases of pandas, NumPy and scikit-learn than it works with: it is installed alone, beside the
# packages of .venv, with what it imports beyond these.
pycaret: .venv-pycaret/.ready  ## Export PyCaret's pipelines, in an environment of their own
	.venv-pycaret/bin/python -m pytest tests/exporter/estimators/test_pycaret.py

.venv-pycaret/.ready: $(READY)
	$(PYTHON) -m venv .venv-pycaret
	echo "import site; site.addsitedir('$$(echo $(CURDIR)/$(VENV)/lib/python*/site-packages)')" \
		> "$$(echo .venv-pycaret/lib/python*/site-packages)/beside.pth"
	.venv-pycaret/bin/python -m pip install --quiet --no-compile --no-deps pycaret-core==3.5.0 comm==0.2.3 \
		imbalanced-learn==0.14.2 ipython==9.18.1 ipywidgets==8.1.9 kaleido==1.5.0 mljar-scikit-plot==0.3.12 \
		outcome==1.3.0.post0 sniffio==1.3.1 \
		plotly-resampler==0.11.1 pmdarima==2.1.1 psutil==7.2.2 pyod==3.6.7 schemdraw==0.23 scikit-base==1.2.0 \
		sklearn-compat==0.1.6 sktime==1.2.0 tbats==1.2.0 traitlets==5.16.1 trio==0.35.0 xxhash==4.1.0 yellowbrick==1.5
	@touch $@

clean:  ## Remove what the commands above made
	rm -rf $(VENV) .venv-autogluon .venv-pycaret build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
