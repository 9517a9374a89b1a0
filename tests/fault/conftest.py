"""The fixture of real processes, for the tests of this directory."""

from tests.fault.harness import cluster

__all__ = ["cluster"]
