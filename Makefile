# The two commands of the README: `make bench` and `make test`. Both make .venv first if need be.

PYTHON ?= python3
INSTALL ?= ask
TEST_PROCESSES ?= 3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
UV_INSTALL := $(BIN)/uv pip install --python $(BIN)/python
# Nothing is installed whose SHA-256 is not in constraints.txt. A torch from another index (of another CUDA, say) has other
# hashes: `make bench HASHES=--no-verify-hashes`.
HASHES := --require-hashes

# The versions of GPU nodes, which are older than the pinned ones. Both must work.
NODES_PYTHON ?= python3.12
NODES_STACK ?= torch==2.11.0 torchvision==0.26.0 numba==0.68.0
NODES_VENV := .venv-nodes

.PHONY: help bench test test-all test-nodes docs handbook fuzz lint tools pins licences audit sbom dist image clean
help:
	@echo "make bench     measure the quick profile on this machine and publish html/"
	@echo "make test      lint, types and every test but the slow ones; INSTALL=no installs no system-wide package"
	@echo "make test-all  the slow ones too"
	@echo "make test-nodes  make test with the Python and torch of GPU nodes, in an environment of its own"
	@echo "make docs      the numbers that README.md and docs/ quote from results/, anew"
	@echo "make handbook  the documentation as a site, build/docs"
	@echo "make fuzz      hostile inputs of every kind for SECONDS=60 in all; SEED=N repeats a run"
	@echo "make pins      the newest versions of all packages, with their hashes, into constraints.txt"
	@echo "make licences  the licence of each pinned package"
	@echo "make audit     known vulnerabilities of the pinned packages"
	@echo "make sbom      a software bill of materials of .venv, build/sbom.cdx.json (CycloneDX)"
	@echo "make dist      the wheel and the source distribution of HEAD, checked, into dist/"
	@echo "make image     the container image of containers/, built and tried with podman, buildah or docker"
	@echo "make clean     remove .venv, env, html and caches (never results/)"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make: Python 3.11 or newer is needed; name one with PYTHON=/path/to/python3"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "make: no virtual environment could be made; on Debian: apt-get install python3-venv"; exit 2; }
	@sed -n '/^uv==/,/[^\\]$$/p' constraints.txt >$(VENV)/uv.txt
	@echo "Installing packages into $(VENV), gigabytes with torch and CUDA: minutes, or seconds where uv has them in its cache."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(VENV)/uv.txt
	@$(UV_INSTALL) --quiet $(HASHES) --build-constraints constraints.txt -r constraints.txt
	@$(UV_INSTALL) --quiet --no-deps --no-build-isolation -e .
	@touch $(STAMP)

# A failed point must not keep the others from the page: publish first, fail afterwards.
bench: $(STAMP)
	@HPML_PROFILE=$${HPML_PROFILE:-quick} $(BIN)/asv run; status=$$?; \
		echo; $(BIN)/asv publish && exit $$status

lint: $(STAMP)
	$(BIN)/ruff check --output-format concise .
	$(BIN)/ruff format --check .
	$(BIN)/codespell --dictionary=- --dictionary=tests/wording.txt
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Images of containers often set PYTHONDONTWRITEBYTECODE; each of the thousand processes that tests start would then compile
# anew what it imports, which is half of the CPU time of most.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest

# Three at a time: on two cores two leave a fifth of the CPUs' time unused. The tests of one file are in one process, since
# they share what was measured and published for them; files are in the order of their names, since what a test starts in
# its process (threads of OpenMP) is there for the next.
test: lint tools
	$(PYTEST) -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m 'not slow'

test-all: lint tools
	$(PYTEST)

# All other packages are the newest that fit, so this also tells what the next pins would bring. The licences that were
# looked at are those of the pinned versions.
test-nodes: $(STAMP) tools
	$(BIN)/uv venv --quiet --clear --python $(NODES_PYTHON) $(NODES_VENV)
	$(BIN)/uv pip install --quiet --python $(NODES_VENV)/bin/python $(NODES_STACK) uv --all-extras -e . -r pyproject.toml
	env -u PYTHONDONTWRITEBYTECODE PATH="$(CURDIR)/$(NODES_VENV)/bin:$$PATH" $(NODES_VENV)/bin/python -m pytest \
		-n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m 'not slow' \
		--deselect tests/test_supply.py::test_every_pinned_package_states_a_licence_that_was_looked_at

docs: $(STAMP)
	$(BIN)/python tests/fill_docs.py

# The documentation as a site of its own; `asv publish` writes the same into docs/ of the site.
handbook: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict -f benchmarks/handbook/mkdocs.yml
	@echo "build/docs/index.html"

SECONDS := 60
fuzz: $(STAMP)
	$(BIN)/python tests/fuzzing --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Programs that tests need and Python packages do not provide, as system-wide Debian packages. INSTALL: ask, yes or no.
tools: $(STAMP)
	@sh tests/get-tools.sh $(BIN)/python $(INSTALL)

# The next `make test` installs them and says what they break.
pins: $(STAMP)
	sh tests/pins.sh $(BIN)/uv $(BIN)/python constraints.txt --upgrade
	@git --no-pager diff --stat -- constraints.txt

licences: $(STAMP)
	@$(BIN)/python tests/licences.py

# --strict: a package of which the database says nothing fails, or silence would be taken for clean.
audit: $(STAMP)
	$(BIN)/uv tool run --quiet pip-audit --strict --disable-pip --no-deps --progress-spinner off -r constraints.txt

sbom: $(STAMP)
	@mkdir -p build
	$(BIN)/uv tool run --quiet --from cyclonedx-bom cyclonedx-py environment --pyproject pyproject.toml \
		--output-reproducible --of JSON -o build/sbom.cdx.json $(BIN)/python
	@echo "build/sbom.cdx.json"

# What is committed, the same bytes wherever it is built.
dist: $(STAMP)
	@$(BIN)/python .ci/dist.py
	$(BIN)/uv tool run --quiet twine check --strict dist/*
	$(BIN)/uv tool run --quiet check-wheel-contents dist/*.whl

image:
	@sh containers/image.sh

clean:
	rm -rf $(VENV) $(NODES_VENV) env html .asv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
