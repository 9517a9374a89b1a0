"""What the acceptance tests share: one `up`, for those that leave it as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.fix_up import Up


@pytest.fixture(scope="package")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A running `wheel-timer up` with two broker workers."""
    with Up(tmp_path_factory.mktemp("up"), "--brokers", "2") as running:
        yield running
