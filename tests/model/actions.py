"""All actions of the model; each names the sentence of DESIGN that it models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.model import delivery, due, faults, leader, sweep, writers
from tests.model.state import Config, World
from tests.model.writers import NOTHING, Step

Action = Callable[[World, Config], Sequence[Step]]


def leader_ticks(w: World, c: Config) -> Sequence[Step]:
    """The leader's due hand."""
    return due.tick(w, c, w.leader)


def leader_persists(w: World, c: Config) -> Sequence[Step]:
    """The pointer row follows the leader's memory."""
    return leader.persist(w, c, w.leader)


def leader_sweeps(w: World, c: Config) -> Sequence[Step]:
    """The leader's sweep hand, which turns beside its due hand."""
    return sweep.sweep(w, c, w.leader)


def zombie_acts(w: World, c: Config) -> Sequence[Step]:
    """A former leader goes on with whatever it was at, as if it still led."""
    zombie = w.zombie
    if zombie is None:
        return NOTHING
    return [
        *due.tick(w, c, zombie),
        *leader.persist(w, c, zombie),
        *sweep.sweep(w, c, zombie),
    ]


def actions_of(c: Config) -> list[Action]:
    """What may happen in this search, faults apart."""
    actions: list[Action] = [
        writers.begin,
        writers.go_on,
        leader_ticks,
        leader_persists,
        leader_sweeps,
        faults.pass_time,
    ]
    if c.delivery:
        actions += [delivery.claim, delivery.succeed, writers.change_data, writers.cancel]
    if "freeze_leader" in c.kinds:
        actions += [zombie_acts, faults.terminate]
    return actions
