"""
`python -m wheel_timer.cli.leash MODULE ARGS...`: run a module, and end with whoever started us.

Standard input is a pipe that only the parent holds. The parent never writes to it, so the one
thing that can happen is its end: the parent is gone, even by kill -9. Then this process ends at
once; what it held comes back by leases, as after any crash. PR_SET_PDEATHSIG would do it without
a thread, but only on Linux.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading

PARENT_GONE = 75  # EX_TEMPFAIL: nobody reads it; it shows in an audit log of the system


def end_with_parent() -> None:
    """Wait for the end of standard input, then for nothing."""
    while os.read(0, 1):
        pass
    os._exit(PARENT_GONE)


def main() -> None:
    """Hold the leash, then become the module."""
    module = sys.argv[1]
    del sys.argv[0]
    threading.Thread(target=end_with_parent, name="leash", daemon=True).start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
