"""
Run searches by hand: `python -m tests.model fence --without net-row` prints the counterexample.

Without a name all searches run; --horizon, --faults, --changes, --moves widen their bounds,
--apart lets anything happen between any two steps.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from tests.model.checker import search
from tests.model.rules import RULES
from tests.model.searches import SEARCHES


def main() -> None:
    """Parse, search, tell."""
    rules = {rule.key: rule for rule in RULES}
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("searches", nargs="*", metavar="search", help=", ".join(SEARCHES))
    parser.add_argument("--without", choices=rules, metavar="RULE", help=", ".join(rules))
    for bound in ("horizon", "faults", "changes"):
        parser.add_argument(f"--{bound}", type=int)
    parser.add_argument("--moves", type=int, nargs="+")
    parser.add_argument("--apart", action="store_true")
    chosen = parser.parse_args()
    for name in chosen.searches or SEARCHES:
        c = SEARCHES[name]
        c = replace(
            c,
            horizon=chosen.horizon or c.horizon,
            faults=c.faults if chosen.faults is None else chosen.faults,
            changes=c.changes if chosen.changes is None else chosen.changes,
            moves=tuple(chosen.moves or c.moves),
            joined=frozenset() if chosen.apart else c.joined,
            without=rules[chosen.without] if chosen.without else None,
        )
        began_s = time.monotonic()
        found = search(c)
        took_s = time.monotonic() - began_s
        sys.stdout.write(f"{name}: {found.states:,} states, {took_s:.1f} s\n")
        if found.violation is not None:
            sys.stdout.write(f"{found.story()}\n")


if __name__ == "__main__":
    main()
