"""`python -m wheel_timer.cli`: the command line where its script is not on the path."""

from __future__ import annotations

from wheel_timer.cli import main

if __name__ == "__main__":
    main()
