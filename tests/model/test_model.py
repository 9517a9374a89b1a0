"""The protocol holds in every state of the model, and in none of them by luck."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model.checker import Found, bare, fair, search, settles
from tests.model.leader import elect
from tests.model.rules import HARMLESS, LOSS, RULES, Rule
from tests.model.searches import SEARCHES
from tests.model.state import Config

DOCUMENT = Path(__file__).parents[2] / "docs" / "model.md"

Explored = Callable[[str, Found], None]


@pytest.mark.parametrize("c", SEARCHES.values(), ids=SEARCHES)
def test_every_state_holds(c: Config, explored: Explored) -> None:
    """The invariant, the order of the hands, no alarm, and fair execution settles the task."""
    found = search(c)
    explored("with every rule", found)
    assert found.violation is None, found.story()
    assert f"| {c.name} | {found.states:,} |" in DOCUMENT.read_text()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.key)
def test_without_the_rule_it_breaks(rule: Rule, explored: Explored) -> None:
    """The search finds what the rule is there for; a harmless one's space holds without it."""
    c = SEARCHES[rule.search]
    found = search(replace(c, without=rule))
    explored("with one rule taken out", found)
    sys.stdout.write(f"without '{rule.says}' (DESIGN {rule.section}): {found.story()}\n")
    if rule.finds == HARMLESS:
        assert found.violation is None, found.story()
        return
    assert found.violation is not None, "the rule is not needed in this search"
    assert found.violation.startswith(rule.finds), found.story()
    if rule.finds == LOSS:
        # What the invariant calls lost is lost: with every rule back in place, and no further
        # fault, the task is never settled, with the leader there or with a new one.
        last = bare(found.trace[-1][1])
        assert not (settles(last, fair(c), set()) and settles(elect(last), fair(c), set()))


def test_every_search_and_rule_is_in_the_document() -> None:
    """docs/model.md has a row for each rule, as rules.py has it, and no other."""
    row = re.compile(r"^\| ([a-z-]+) \| (\d) \| .* \| ([a-z ]+) \|$", re.MULTILINE)
    rows = row.findall(DOCUMENT.read_text())
    assert [(rule.key, rule.section, rule.finds) for rule in RULES] == rows
    assert len({rule.key for rule in RULES}) == len(RULES)
