"""Real processes under open-loop load, faults, and an account of every task: `make chaos`."""
