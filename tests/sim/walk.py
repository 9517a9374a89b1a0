"""
Random walks over the model: as long, and with as many faults, as no search could cover.

tests/model visits every state of small worlds; a walk goes through one world of all faults at once,
every step apart, for hundreds of steps. The same properties are looked at on the way, and at the
end: whatever has happened, fair execution settles the task. A seed is a walk.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from tests.model.actions import Action, actions_of
from tests.model.checker import Found, Trace, bare, broken, fair, settles, went_back
from tests.model.faults import FAULTS
from tests.model.leader import elect
from tests.model.rules import Rule
from tests.model.state import Config, World, first
from tests.model.writers import Step

STEPS: Final = 120
HORIZON: Final = 12
# So that eight faults are spread over most of a walk.
FAULT_SHARE: Final = 0.1
# lose_sequence stands alone: after it the order of the hands is only mended by the next close.
KINDS: Final = frozenset(FAULTS) - {"lose_sequence"}
WORLDS: Final = tuple(
    Config(
        name=f"walk-{'mind' if mind else 'moves'}",
        horizon=HORIZON,
        starts=(1, 2, 4, 7),
        moves=(2, 3, 5, 8),
        faults=8,
        changes=6,
        kinds=KINDS,
        asks=(0, 1),
        delivery=True,
        mind=mind,
        failures_max=4,
        overflow=True,
        cut_pages=True,
    )
    for mind in (False, True)
)


def walk(seed: int, without: Rule | None = None) -> Found:
    """One walk, with one rule taken out perhaps; its violation, or None, and its trace."""
    draw = random.Random(seed)
    c = replace(WORLDS[seed % len(WORLDS)], without=without)
    actions, faults = actions_of(c), [FAULTS[name] for name in sorted(c.kinds)]
    w, trace = first(c), Trace()
    for _ in range(STEPS):
        step = _step(w, c, actions, faults, draw)
        if step is None:
            break
        label, after = step
        trace.append((label, after))
        why = broken(after) or went_back(w, after, label)
        w = after
        if why:
            return Found(states=len(trace), depth=len(trace), violation=why, trace=trace)
    why = _stuck(w, c)
    return Found(
        states=len(trace), depth=len(trace), violation=why, trace=trace if why is not None else []
    )


def _step(
    w: World, c: Config, actions: list[Action], faults: list[Action], draw: random.Random
) -> Step | None:
    """
    What happens next: one of the things that the first can do who can do something at all, in turn
    from one drawn at random. None where nobody can. To ask all of them takes four times as long.
    """
    if w.faults and draw.random() < FAULT_SHARE:
        happened = faults[int(draw.random() * len(faults))](w, c)
        if happened:
            label, after = happened[int(draw.random() * len(happened))]
            return label, after._replace(faults=w.faults - 1)
    begin = int(draw.random() * len(actions))
    for number in range(len(actions)):
        steps = actions[begin + number - len(actions)](w, c)
        if steps:
            return steps[int(draw.random() * len(steps))]
    return None


def _stuck(w: World, c: Config) -> str | None:
    """With the leader going on, and with a new one, the task is settled."""
    left = bare(w)
    rules = replace(fair(c), mind=False)
    if settles(left, rules, set()) and settles(elect(left), rules, set()):
        return None
    return "stuck: fair execution does not settle the task"
