"""The OpenAPI document tried out by schemathesis: no 5xx, no answer that is not described."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.fix_up import Up, plain_environ

CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
# The audits read the whole database each time, and take nothing that could be wrong.
LEFT_OUT: Final = "/v1/audits"
ALL: Final = ("--exclude-path", LEFT_OUT)
# On a server of its own: years pass on it.
CLOCK: Final = ("--include-path", "/v1/clock")


@pytest.mark.parametrize(
    ("phases", "examples", "paths", "flags"),
    [
        ("examples,fuzzing", "3", ALL, ()),
        ("examples,fuzzing", "20", CLOCK, ("--test-clock",)),
        pytest.param("fuzzing,coverage,stateful", "20", ALL, (), marks=pytest.mark.slow),
    ],
)
def test_every_operation_answers_as_it_is_described(
    tmp_path: Path, phases: str, examples: str, paths: Sequence[str], flags: Sequence[str]
) -> None:
    hooks = Path(__file__).with_name("schemathesis_hooks.py")
    with Up(tmp_path / "data", "--brokers", "1", *flags) as up:
        tried = subprocess.run(
            [
                *(str(Path(sys.executable).parent / "schemathesis"), "run"),
                f"{up.url}/openapi.json",
                *("--phases", phases, "--checks", ",".join(CHECKS)),
                *(*paths, "--max-examples", examples, "--seed", "1"),
                *("--continue-on-failure", "--request-timeout", "30", "--no-color"),
            ],
            cwd=tmp_path,
            env=plain_environ({"SCHEMATHESIS_HOOKS": str(hooks)}),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert tried.returncode == 0, tried.stdout[-20_000:] + tried.stderr[-2_000:]
