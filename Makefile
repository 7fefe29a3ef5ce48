# Everything a developer types: environment, demo, checks, tests. Assumes Python 3.11 or newer and a C compiler, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
NONE := [ $$? -eq 5 ] # pytest's status when the arguments leave no test of a kind
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

TABLES ?= tests/tables

# Tests start hundreds of processes, each of which would compile the package's sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: tables demo docs install frameworks test test-slow test-long test-cuda check lint types imports clean

# The stamps hold what was installed: an environment is built again only when the project's dependencies change.
$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/.python
	$(INSTALL) -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/.python
	$(INSTALL) -e '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-cuda: pyproject.toml constraints.txt | $(VENV)/.python
	$(INSTALL) -e '.[dev,cuda]'
	touch $@ $(VENV)/.installed-dev $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(VENV)/.python
	$(INSTALL) -e '.[docs]'
	touch $@ $(VENV)/.installed

# All that tests and documentation need, but for compilers of CUDA, at one go.
install: pyproject.toml constraints.txt | $(VENV)/.python
	$(INSTALL) -e '.[dev,docs]'
	touch $(VENV)/.installed-docs $(VENV)/.installed-dev $(VENV)/.installed

# PyTorch and others that results are held against, and data sets. Tests that want one are skipped without it. From PyPI, PyTorch
# may bring gigabytes of CUDA; the index of its CPU build does not.
frameworks: $(VENV)/.installed-dev
	$(INSTALL) -e '.[dev,compare]'

# The documentation as pages in site/. A link or an anchor that leads nowhere is an error.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "$(BIN)/python -m http.server -d site shows it"

demo: $(VENV)/.installed
	$(BIN)/python examples/demo/demo.py

# Tests of one file run in one process: they share its fixtures.
test: check
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not slow and not long and not serial' $(PYTEST_ARGS) || $(NONE)
	$(BIN)/python -m pytest -q -m 'serial and not slow and not long' $(PYTEST_ARGS) || $(NONE)

# What takes about ten seconds or more in all its cases: jobs on a cluster of this machine, a browser, searches of whole tables, a
# GPU's compilers.
test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m 'slow and not long and not serial' $(PYTEST_ARGS) || $(NONE)
	$(BIN)/python -m pytest -q -m 'slow and serial and not long' $(PYTEST_ARGS) || $(NONE)

# What takes a minute or more a test: clusters, kills at every commit, a million trials, a thousand configs of each operator.
test-long: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m long $(PYTEST_ARGS)

# Without a GPU: kernels compiled for two architectures, run thread by thread on the CPU, and whole jobs on a double of the driver.
CUDA_TESTS := $(addprefix tests/integration/,test_cuda_jobs.py test_cuda_emulated.py test_cuda_tensor_cores.py test_cuda_warpgroup.py test_cuda_winograd.py test_cuda_bf16x3.py test_gpu_benchmark.py) tests/unit/lowering/test_cuda.py
# Left to test-long: hundreds of points that run serially on the CPU, of which test-slow has a few, and further points of each
# operator thread by thread.
TOO_MANY := points_compute_the_expression or more_kernels_of_every_operator
# What NVRTC compiles runs nowhere else, for only the extra `cuda` has NVRTC.
NVRTC_TESTS := tests/unit/lowering/test_cuda_nvrtc.py tests/unit/measure/test_foreign_cuda_compiler.py
test-cuda: $(VENV)/.installed-cuda
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m 'long or nvrtc' -k 'not ($(TOO_MANY))' $(PYTEST_ARGS) $(NVRTC_TESTS) $(CUDA_TESTS)

check:
	@$(MAKE) --no-print-directory --output-sync=target -j2 lint types imports

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet --exclude '*.md' .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

# Eight recorded tables of different kinds, 1,600 descriptions or more each, and parts of others that teach the model of these;
# about an hour of a machine that does nothing else.
RECORD := $(BIN)/python -m benchmarks.search.record
tables: $(VENV)/.installed
	$(RECORD) -o $(TABLES)/large matmul:M=256,N=256,K=256 matmul:M=16,N=1024,K=512 \
	  dense:M=64,N=512,K=256,bias=true,act=gelu batch_matmul:B=8,M=64,N=64,K=64,transpose_b=true \
	  conv2d:N=1,H=28,W=28,CI=32,CO=64,KH=3,KW=3,pad=1,act=relu conv2d:N=1,H=28,W=28,CI=64,CO=128,KH=1,KW=1,stride=2 \
	  depthwise_conv2d:N=1,H=56,W=56,C=64,KH=3,KW=3,pad=1 transpose:M=1024,N=1024
	$(RECORD) -o $(TABLES)/parts --part 250 matmul:M=192,N=384,K=320 matmul:M=24,N=512,K=768 matmul:M=128,N=512,K=192 \
	  dense:M=48,N=384,K=320,bias=true,act=gelu dense:M=96,N=256,K=512,bias=true,act=relu dense:M=32,N=768,K=192,bias=true,act=gelu \
	  batch_matmul:B=12,M=48,N=96,K=80,transpose_b=true batch_matmul:B=4,M=128,N=64,K=96,transpose_b=true \
	  batch_matmul:B=6,M=80,N=112,K=48 \
	  conv2d:N=1,H=14,W=14,CI=64,CO=64,KH=3,KW=3,pad=1 conv2d:N=1,H=28,W=28,CI=48,CO=96,KH=3,KW=3,pad=1,stride=2 \
	  conv2d:N=1,H=56,W=56,CI=32,CO=64,KH=1,KW=1,stride=2 \
	  depthwise_conv2d:N=1,H=28,W=28,C=96,KH=5,KW=5,pad=2 depthwise_conv2d:N=1,H=40,W=40,C=128,KH=3,KW=3,pad=1,stride=2 \
	  depthwise_conv2d:N=1,H=14,W=14,C=256,KH=3,KW=3,pad=1 \
	  transpose:M=768,N=1536 transpose:M=1500,N=1000 transpose:M=512,N=640

clean:
	rm -rf $(VENV) build dist site demo-output *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
