"""
Prints requirements.lock: exact versions of all that both distributions and the tools need.

Run by `make lock`. One file for Python 3.11 to 3.14, Linux and macOS. It names no index: where
packages come from is the business of the machine that installs them. Arguments go to
`uv pip compile`, for example `--upgrade-package httpx`.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


def requirements() -> list[str]:
    """Every requirement of the client, the server, its extras and the tools, as written."""
    client = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    server = tomllib.loads((CHECKOUT / "packaging" / "server" / "pyproject.toml").read_text())
    extras = server["project"]["optional-dependencies"]
    return [
        *client["project"]["dependencies"],
        *client["dependency-groups"]["dev"],
        *server["tool"]["wheel-timer"]["dependencies"],
        *extras["embedded"],
        *extras["otel"],
    ]


def main() -> int:
    command = [
        *("uv", "pip", "compile", "-", "--universal", "--python-version", "3.11"),
        *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet"),
        *("--output-file", str(CHECKOUT / "requirements.lock")),
        *sys.argv[1:],
    ]
    done = subprocess.run(command, input="\n".join(requirements()), text=True, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
