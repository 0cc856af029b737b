# Two commands are enough: `make demo` to see it work, `make test` to see that it does.
#
# TORCH is what pip is asked for. The default is right wherever pip finds a CPU build of that version. Elsewhere a plain
# request brings gigabytes of CUDA packages; name PyTorch's CPU index instead:
#     make demo TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch==2.13.0
PYTHON ?= python3
VENV ?= .venv
DEMO ?= demo

# Without this, where it is set, every process compiles torch again, in six seconds.
export PYTHONDONTWRITEBYTECODE :=

BIN := $(VENV)/bin
# Python compiles a module when it is first imported: most modules of torch and transformers never are.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile

.PHONY: demo test test-slow corpus museum pictures mutation simulate matrix check format bench docs dist clean

# Where other programs use the cores, PyTorch's threads would spend most of their time waiting actively for one another.
demo: $(VENV)/.demo
	OMP_WAIT_POLICY=passive $(BIN)/subtext demo --out $(DEMO)

# A process a core, each with one thread: two that share their threads only stand in each other's way. Shapes and types
# are checked at every call of the package, which doubles the time. So the contracts of all parts run with these checks
# in `make test`, and everything else runs with them in `make test-slow` alone.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

test: $(VENV)/.dev
	$(PYTEST) -m "contract and not slow and not gpu" tests
	CHECK_SHAPES=0 $(PYTEST) -m "not contract and not slow and not gpu" tests

test-slow: $(VENV)/.dev
	$(PYTEST) -m "not gpu and (slow or not contract)" tests

# Some 400 files and tables of every kind that archives bring, with what each must become, in build/corpus.
corpus: $(VENV)/.dev
	rm -rf build/corpus
	mkdir -p build/corpus
	$(BIN)/python tests/helpers/corpus.py build/corpus

# The first hour of a museum, in build/museum: 300 photographs, an export of its database, and what the commands say.
museum: $(VENV)/.dev
	rm -rf build/museum
	$(BIN)/python tests/helpers/museum.py build/museum

# Screenshots of the search page and of curate's pages at 1,366 and 390 pixels, light and dark, in build/pictures; real
# photographs where SUBTEXT_DATA names a folder with flickr8k.
pictures: $(VENV)/.dev
	$(BIN)/python tests/helpers/screenshots.py build/pictures

# Plants faults in the modules where they would be worst, and lists those that no test finds; MOST=60 samples a module.
mutation: $(VENV)/.dev
	$(INSTALL) --constraint constraints.txt --editable ".[mutation]"
	CHECK_SHAPES=0 OMP_NUM_THREADS=1 $(BIN)/python tests/mutation.py $(if $(MOST),--most $(MOST))

# Lives of archives in three stores: files and indexes change, processes are killed, disks lose what was not flushed. After
# each step the index has to be what a plain model says. A C compiler is needed for the disk. FAULTS=1 plants faults, each
# of which has to be found.
simulate: $(VENV)/.dev
	cd tests && OMP_NUM_THREADS=1 $(abspath $(BIN))/python -m simulator$(if $(FAULTS),.faults, --steps $(or $(STEPS),2000))

# Single dependencies in their oldest and newest allowed versions; ROWS="transformers lance postgres" names some.
matrix: $(VENV)/.dev
	VENV=$(VENV) .ci/matrix $(ROWS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.evaluation --json
	$(BIN)/python -m benchmarks.angular --json
	$(BIN)/python -m benchmarks.neighbour_graph --json
	$(BIN)/python -m benchmarks.train_step --json
	$(BIN)/python -m benchmarks.scan --json
	$(BIN)/python -m benchmarks.saf --json
	$(BIN)/python -m benchmarks.sgr --json
	$(BIN)/python -m benchmarks.chan --json
	$(BIN)/python -m benchmarks.ascl --json
	$(BIN)/python -m benchmarks.pcme --json
	$(BIN)/python -m benchmarks.rerank --json
	$(BIN)/python -m benchmarks.cider --json
	$(BIN)/python -m benchmarks.tfidf --json
	$(BIN)/python -m benchmarks.asp --json
	$(BIN)/python -m benchmarks.coco5k --json
	$(BIN)/python -m benchmarks.neighbour_weights --json
	$(BIN)/python -m benchmarks.daa --json
	$(BIN)/python -m benchmarks.search_engine --json
	$(BIN)/python -m benchmarks.stores --json
	$(BIN)/python -m benchmarks.server --json
	$(BIN)/python -m benchmarks.embed --json

# The site, in build/docs. Nothing is fetched while it is built.
docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs

# The source archive and the wheel, in dist. The wheel is installed in an environment of its own and tried there.
dist: $(VENV)/.dev
	rm -rf dist build/wheel build/smoke build/lib
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip --disable-pip-version-check install --quiet $(TORCH)
	build/wheel/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt dist/*.whl
	build/wheel/bin/python tests/smoke.py build/smoke

clean:
	rm -rf $(VENV) $(DEMO) build dist docs/generated .pytest_cache .mypy_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: $(BIN)/python
	$(INSTALL) $(TORCH)
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml constraints.txt
	$(INSTALL) --constraint constraints.txt --editable ".[demo]"
	touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml constraints.txt
	$(INSTALL) --constraint constraints.txt --editable ".[dev]"
	touch $@
