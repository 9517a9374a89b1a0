"""The fixtures of real processes, for the tests of this directory."""

from tests.fault.harness import cluster, new_cluster

__all__ = ["cluster", "new_cluster"]
