"""The benchmarks: `python -m tests.bench`, on the real product, by open-loop load."""
