PYTHON ?= python3
RUN := .venv/bin/pubsub-graph

.PHONY: setup demo test test-slow check wheel clean

setup:            ## .venv with the package, GraphFrames' classes and a fitting Java
	@$(PYTHON) conf/bootstrap.py

# Closest ignores latency and balance, so its plan may be infeasible: status 3 is an answer there, not a failure.
demo: setup       ## plan 100,000 subscribers on 100 brokers in three ways and compare
	rm -rf demo
	$(RUN) generate --workload set1-hl --subscribers 100000 --brokers 100 --out demo/input --seed 1
	$(RUN) assign --input demo/input --out demo/gr-star --algorithm gr-star --seed 1
	$(RUN) assign --input demo/input --out demo/slp --algorithm slp --seed 1 --effort 6
	$(RUN) assign --input demo/input --out demo/closest --algorithm closest --seed 1 || [ $$? -eq 3 ]
	$(RUN) verify --input demo/input --plan demo/gr-star
	$(RUN) verify --input demo/input --plan demo/slp
	$(RUN) verify --input demo/input --plan demo/closest || [ $$? -eq 3 ]
	$(RUN) compare --plan demo/slp --plan demo/gr-star --plan demo/closest

test: setup       ## everything but the slow tests
	.venv/bin/python -m pytest -q

test-slow: setup  ## the slow tests only
	.venv/bin/python -m pytest -q -m slow

check: setup      ## lint and types
	.venv/bin/python -m ruff check .
	.venv/bin/python -m mypy

wheel: setup      ## dist/pubsub_graph-*.whl
	.venv/bin/python -m pip wheel -q --no-deps --no-build-isolation -w dist .

clean:            ## what was built and measured; .venv stays
	rm -rf build dist demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
