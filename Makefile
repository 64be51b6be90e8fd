# Two commands on a fresh machine: `make demo` and `make test`. PYTHON picks the interpreter (3.11 or newer).
PYTHON ?= python3
export PYTHON

.PHONY: demo test coverage check bench docs gallery format wheel clean

demo: .venv/installed-plot
	.venv/bin/attent demo

test: .venv/installed-dev
	scripts/test

coverage: .venv/installed-dev
	scripts/test coverage

check: .venv/installed-dev
	scripts/check

bench: .venv/installed-dev
	scripts/bench

# Into build/docs; what it warns of is an error.
docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

# docs/gallery.md and its pictures, and the picture of the first page; PLATES names some of them, and ATTENT_DATA the folder of corpora.
gallery: .venv/installed-dev
	PYTHONPATH=scripts:benchmarks:examples .venv/bin/python -m gallery $(PLATES)
	PYTHONPATH=scripts .venv/bin/python -m gallery.black_dog

format: .venv/installed-dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

wheel: .venv/installed-dev
	.venv/bin/python -m build --wheel

# The environment in .venv stays: it is slow to make, and `rm -r .venv` says what it does.
clean:
	rm -rf build dist src/*.egg-info htmlcov .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/installed-%: pyproject.toml constraints.txt
	scripts/install $*
