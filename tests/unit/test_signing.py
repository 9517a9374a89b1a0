"""wheel_timer/signing.py: Standard Webhooks, against its own reference implementation."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from wheel_timer.signing import key_of, sign, verify

KEY = b"0123456789abcdef"
OTHER_KEY = b"fedcba9876543210"
NOW_S = 1_800_000_000


@given(st.text(), st.integers(min_value=0, max_value=2**33))
def test_a_signature_is_that_of_the_reference(body: str, timestamp_s: int) -> None:
    reference = Webhook(KEY).sign("id", datetime.fromtimestamp(timestamp_s, UTC), body)
    assert sign([KEY], "id", timestamp_s, body.encode()) == reference


def test_a_secret_is_base64_with_or_without_its_prefix() -> None:
    assert key_of("whsec_MDEyMzQ1Njc4OWFiY2RlZg==") == KEY
    assert key_of("MDEyMzQ1Njc4OWFiY2RlZg==") == KEY


@pytest.mark.parametrize("secret", ["", "whsec_", "not base64!", "whsec_MDEyMz"])
def test_what_is_no_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match=r"secret|base64|padding|character|alphabet"):
        key_of(secret)


def test_one_key_of_several_is_enough() -> None:
    signature = sign([KEY, OTHER_KEY], "id", NOW_S, b"body")
    assert verify([OTHER_KEY], "id", str(NOW_S), signature, b"body", NOW_S) is None
    assert verify([KEY], "id", str(NOW_S), signature, b"body", NOW_S) is None


@pytest.mark.parametrize(
    ("webhook_id", "body", "key"),
    [("other", b"body", KEY), ("id", b"bodY", KEY), ("id", b"body", OTHER_KEY)],
)
def test_a_signature_of_anything_else_does_not_match(
    webhook_id: str, body: bytes, key: bytes
) -> None:
    signature = sign([KEY], "id", NOW_S, b"body")
    wrong = verify([key], webhook_id, str(NOW_S), signature, body, NOW_S)
    assert wrong == "no signature matches"


@pytest.mark.parametrize("offset_s", [-301, 301])
def test_an_old_or_future_timestamp_is_refused(offset_s: int) -> None:
    timestamp_s = NOW_S + offset_s
    signature = sign([KEY], "id", timestamp_s, b"")
    wrong = verify([KEY], "id", str(timestamp_s), signature, b"", NOW_S)
    assert wrong == "webhook-timestamp is 301 s away from this clock"


@pytest.mark.parametrize("timestamp", ["", "soon", "1.5"])
def test_a_timestamp_must_be_a_number(timestamp: str) -> None:
    assert verify([KEY], "id", timestamp, "v1,x", b"", NOW_S) == (
        "webhook-timestamp is not a number"
    )


@pytest.mark.parametrize("signature", ["", "v1", "v1,", "v1,\u00e4", "v2,abc v1a,abc"])
def test_a_broken_signature_matches_nothing(signature: str) -> None:
    assert verify([KEY], "id", str(NOW_S), signature, b"", NOW_S) == "no signature matches"
