"""
The command line, `wheel-timer`. `main` is its entry point.

What a client command needs is light: typer, rich, httpx. What `up`, `migrate` or `audit` need of
the server is imported inside the function that needs it; where the server is not installed, that is
one line that says what to install (`app.py`).

    app.py          the commands, and how each ends
    tasks.py        submit, get, explain         story.py, taskview.py   a task for people
    top.py          the wheel at a glance        watch.py, readings.py, topview.py,
                                                 screen.py, keyboard.py
    up.py, demo.py  everything on this machine   machine.py, supervisor.py, child.py, leash.py
    roles.py        migrate, broker, daemon      listen.py, endpoint.py  where callbacks arrive
    audit.py, config.py
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        # Not at the top: every child of `up` imports this package for its leash, and no more of it.
        from wheel_timer.cli.app import main as run

        run()
    except KeyboardInterrupt:  # before the command could take care of it
        sys.exit(130)
