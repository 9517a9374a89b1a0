"""The pages. A module's name here is all that a page needs to be served."""

from __future__ import annotations

from typing import Final

from broker.console.page import Page
from broker.console.pages import (
    audits,
    biz,
    bizcall,
    bizedit,
    bizend,
    changes,
    changing,
    dead,
    forecast,
    keys,
    ledger,
    many,
    operations,
    scheduleedit,
    schedules,
    task,
    tasks,
    wheel,
)

# In the order of the menu. A path without parameters stands before one that would match it, too.
PAGES: Final[tuple[Page, ...]] = (
    *wheel.PAGES,
    *tasks.PAGES,
    *many.PAGES,
    *task.PAGES,
    *changing.PAGES,
    *dead.PAGES,
    *forecast.PAGES,
    *biz.PAGES,
    *bizedit.PAGES,
    *bizcall.PAGES,
    *bizend.PAGES,
    *schedules.PAGES,
    *scheduleedit.PAGES,
    *operations.PAGES,
    *ledger.PAGES,
    *audits.PAGES,
    *changes.PAGES,
    *keys.PAGES,
)
