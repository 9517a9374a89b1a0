"""tests/schema.sql is what the migrations add up to."""

from __future__ import annotations

from tests import schema
from wheel_timer.embedded import EmbeddedPostgres


def test_the_dump_is_what_the_migrations_make(
    postgres_server: EmbeddedPostgres, database_url: str
) -> None:
    assert schema.dump(postgres_server, database_url) == schema.FILE.read_text(), (
        "make schema writes it anew"
    )
