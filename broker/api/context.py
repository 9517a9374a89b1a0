"""What the API stands on, built by broker/app.py and handed to every handler."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.admission import Admission
from broker.api.body import Bodies
from broker.auditor import Auditor
from broker.changer import Changer
from broker.forecast import Forecaster
from broker.guard import Guard
from broker.keys import Keys
from broker.probe import Prober
from broker.pull import Pull
from broker.registry import Registry
from broker.reports import Reports
from broker.submitter import Submitter
from broker.testclock import TestClock
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.eventcenter import EventCenter
from wheel_timer.ops import Health
from wheel_timer.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of a broker that its API uses. test_clock: only under --test-clock."""

    settings: Settings
    db: Database
    clock: Clock
    event_center: EventCenter
    registry: Registry
    keys: Keys
    submitter: Submitter
    changer: Changer
    pull: Pull
    reports: Reports
    health: Health
    test_clock: TestClock | None = None
    bodies: Bodies = field(init=False)
    prober: Prober = field(init=False)
    guard: Guard = field(init=False)
    admission: Admission = field(init=False)
    auditor: Auditor = field(init=False)
    forecaster: Forecaster = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bodies", Bodies(self.settings.max_request))
        object.__setattr__(self, "prober", Prober(self.settings, self.clock))
        object.__setattr__(self, "guard", Guard.of(self.settings))
        object.__setattr__(self, "admission", Admission(self.event_center))
        object.__setattr__(self, "auditor", Auditor(self.db))
        object.__setattr__(self, "forecaster", Forecaster(self.db))
