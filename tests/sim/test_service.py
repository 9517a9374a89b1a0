"""The real service, whatever is asked of it and done to it, in any order."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.sim.service import SETTINGS, serving


@pytest.mark.timing
def test_the_service_does_what_its_model_says() -> None:
    with serving() as service:
        run_state_machine_as_test(service, settings=SETTINGS)
