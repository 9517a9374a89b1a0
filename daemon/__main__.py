"""`python -m daemon [--ops-port 8081]`: one daemon; its settings come from the environment."""

from __future__ import annotations

import argparse

from daemon import app
from wheel_timer import process


def main() -> None:
    """Parse, run, exit."""
    parser = argparse.ArgumentParser(prog="python -m daemon")
    parser.add_argument("--ops-port", type=int, default=8081)
    options = parser.parse_args()
    process.run(lambda settings, stop: app.main(settings, stop, options.ops_port))


if __name__ == "__main__":
    main()
