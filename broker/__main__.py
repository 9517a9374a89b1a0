"""`python -m broker`: one broker process; its settings come from the environment."""

from __future__ import annotations

import argparse
import socket

from broker import app
from wheel_timer import process


def main() -> None:
    """Parse, run, exit. --fd: a listening socket of the parent's, shared with other workers.
    --speak-for-all: /readyz is a no, too, where no daemon leads."""
    parser = argparse.ArgumentParser(prog="python -m broker")
    parser.add_argument("--fd", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--role", choices=("api", "notifier", "both"), default="both")
    parser.add_argument("--demo-echo", action="store_true")
    parser.add_argument("--test-clock", action="store_true")
    parser.add_argument("--speak-for-all", action="store_true")
    options = parser.parse_args()
    process.run(
        lambda settings, stop: app.main(
            settings,
            stop,
            sockets=None if options.fd is None else [socket.socket(fileno=options.fd)],
            host=options.host,
            port=options.port,
            role=options.role,
            demo_echo=options.demo_echo,
            test_clock=options.test_clock,
            speaks_for_all=options.speak_for_all,
        )
    )


if __name__ == "__main__":
    main()
