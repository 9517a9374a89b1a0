"""
Debit an account 24 hours after the notice, exactly once.

A callback may come twice. Here the receiver's store is a table in the database of the accounts: the
id of the callback and the debit are committed in one transaction, or neither is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.applications import Starlette
from starlette.routing import Route

from examples.serving import serve
from wheel_timer import Client
from wheel_timer.receiver import Receiver, Timer
from wheel_timer.testing import Clock, Server

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TABLES = """
CREATE TABLE account (name text PRIMARY KEY, cents integer NOT NULL);
CREATE TABLE handled (webhook_id text PRIMARY KEY);
"""


class Accounts:
    """Accounts in a database of their own."""

    def __init__(self, timers: Client, path: Path) -> None:
        self.timers = timers
        self.path = path
        with self.transaction() as database:
            database.executescript(TABLES)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Committed at the end, rolled back for an error."""
        database = sqlite3.connect(self.path)
        try:
            with database:
                yield database
        finally:
            database.close()

    @contextmanager
    def once(self, webhook_id: str) -> Iterator[sqlite3.Connection | None]:
        """The receiver's store: a transaction in which the id is new, or None."""
        with self.transaction() as database:
            marked = database.execute(
                "INSERT INTO handled VALUES (?) ON CONFLICT DO NOTHING", [webhook_id]
            )
            yield database if marked.rowcount else None

    def send_notice(self, name: str, cents: int) -> None:
        """Tell them, and debit a day later. A second notice before that does not debit twice."""
        self.timers.submit(
            "debits",
            biz_id=f"{name}:{cents}",
            delay=timedelta(hours=24),
            biz_data={"account": name, "cents": cents},
        )

    def debit(self, timer: Timer) -> None:
        """The callback, inside the transaction of `once`."""
        wanted = timer.json()
        timer.transaction.execute(
            "UPDATE account SET cents = cents - ? WHERE name = ?",
            [wanted["cents"], wanted["account"]],
        )

    def cents(self, name: str) -> int:
        """What is left."""
        with self.transaction() as database:
            row = database.execute("SELECT cents FROM account WHERE name = ?", [name]).fetchone()
        return int(row[0])


def story(server: Server, advance: Clock) -> None:
    """Two notices, one debit; and not another one when the same call is made again."""
    with TemporaryDirectory() as directory:
        accounts = Accounts(server.client, Path(directory) / "accounts")
        with accounts.transaction() as database:
            database.execute("INSERT INTO account VALUES ('ada', 10000)")
        endpoint = Receiver(SECRET, store=accounts.once).asgi(accounts.debit)
        with serve(Starlette(routes=[Route("/timers", endpoint, methods=["POST"])])) as url:
            server.biz("debits", callback_url=f"{url}/timers", secret=SECRET)
            accounts.send_notice("ada", 2_500)
            accounts.send_notice("ada", 2_500)
            advance(hours=23)
            assert accounts.cents("ada") == 10_000
            advance(hours=1)
            assert accounts.cents("ada") == 7_500
            with accounts.transaction() as database:
                (webhook_id,) = database.execute("SELECT webhook_id FROM handled").fetchone()
            with accounts.once(webhook_id) as transaction:
                assert transaction is None, "a second copy is known"
    print("debit after notice: two notices, one debit of 25.00 a day later")
