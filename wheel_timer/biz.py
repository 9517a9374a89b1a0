"""
What a biz_type is: one line of business, its callback and its policies. Pure.

Three shapes of the same thing: `BizTypeIn` is what a PUT may say, `BizType` is what the brokers
work by (secrets in clear, every default filled in, frozen), `BizTypeOut` is what a GET shows.
Seconds everywhere, as in the API; `*_ms` where a caller needs milliseconds.

Write-only values: `secret`, and callback headers whose name says that they are credentials. They
are shown as `{"set": true}`, kept where a PUT leaves them out or sends that mark back, and removed
by null or `{"set": false}` (TOML has no null).
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as BadBase64
from ipaddress import ip_network
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from wheel_timer.callback import (
    Mark,
    Method,
    TimeoutS,
    Url,
    check_headers,
    check_url,
    escaped,
    is_write_only,
    masked,
)
from wheel_timer.errors import FieldError, InvalidTask

BIZ_TYPE_PATTERN: Final = "[a-z0-9][a-z0-9._-]{0,63}"
# Ten years: longer policies are a slip of the unit, and the sums stay far inside a bigint.
POLICY_S_MAX: Final = 315_360_000
RETRY_DELAY_S_MAX: Final = 2_592_000  # 30 days, as a release's
ATTEMPTS_MAX: Final = 1000
LADDER_STEPS_MAX: Final = 100
CONCURRENCY_MAX: Final = 10_000
RATE_PER_S_MIN: Final = 0.01
RATE_PER_S_MAX: Final = 100_000
BURST_MAX: Final = 1_000_000
SPREAD_S_MAX: Final = 86_400
PENDING_MAX: Final = 10_000_000_000
NETWORKS_MAX: Final = 100

_BIZ_TYPE: Final = re.compile(BIZ_TYPE_PATTERN, re.ASCII)
BizTypeName = Annotated[str, Meta(pattern=f"^{BIZ_TYPE_PATTERN}$")]
RetentionS = Annotated[int, Meta(ge=0, le=POLICY_S_MAX, description="seconds")]
MaxAgeS = Annotated[
    float, Meta(gt=0, le=POLICY_S_MAX, description="seconds after start_time; no attempt after it")
]
RetryDelayS = Annotated[float, Meta(ge=0, le=RETRY_DELAY_S_MAX, description="seconds")]
Attempts = Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)]
Ladder = Annotated[tuple[RetryDelayS, ...], Meta(min_length=1, max_length=LADDER_STEPS_MAX)]
Status = Annotated[int, Meta(ge=300, le=599)]
RatePerS = Annotated[float, Meta(ge=RATE_PER_S_MIN, le=RATE_PER_S_MAX, description="a second")]
SpreadS = Annotated[
    float, Meta(ge=0, le=SPREAD_S_MAX, description="seconds over which starts are drawn at random")
]
Network = Annotated[str, Meta(max_length=50, description="CIDR")]


Delivery = Literal["callback", "pull"]


class Backoff(Struct, frozen=True, forbid_unknown_fields=True):
    """Delay n is initial x factor^(n-1), at most max; drawn from [d x (1 - jitter), d]."""

    initial: Annotated[float, Meta(ge=0.001, le=RETRY_DELAY_S_MAX, description="seconds")] = 5.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 3.0
    max: Annotated[float, Meta(ge=0.001, le=RETRY_DELAY_S_MAX, description="seconds")] = 21600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.5


class RetryIn(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A retry policy as it is said: what is left out stays as it was. backoff or ladder."""

    max_attempts: Attempts | UnsetType = UNSET
    backoff: Backoff | UnsetType = UNSET
    ladder: Ladder | UnsetType = UNSET


class Retry(Struct, frozen=True):
    """A retry policy, complete. A ladder, where there is one, stands in the backoff's place."""

    max_attempts: int = 16
    backoff: Backoff = Backoff()
    ladder: tuple[float, ...] | None = None

    def overridden(self, given: RetryIn) -> Retry:
        """This policy with what `given` says in place of it."""
        attempts = self.max_attempts if given.max_attempts is UNSET else given.max_attempts
        if given.ladder is not UNSET:
            return Retry(attempts, self.backoff, given.ladder)
        if given.backoff is not UNSET:
            return Retry(attempts, given.backoff, None)
        return Retry(attempts, self.backoff, self.ladder)

    def said(self) -> RetryIn:
        """The policy in the form of the API."""
        if self.ladder is not None:
            return RetryIn(max_attempts=self.max_attempts, ladder=self.ladder)
        return RetryIn(max_attempts=self.max_attempts, backoff=self.backoff)


class Retention(Struct, frozen=True, forbid_unknown_fields=True):
    """How long a settled task is kept, in seconds, by its outcome."""

    finished: RetentionS = 2_592_000
    failed: RetentionS = 7_776_000
    cancelled: RetentionS = 86_400


class Breaker(Struct, frozen=True, forbid_unknown_fields=True):
    """
    Opens after so many failures in a row, first for open_for seconds, then twice as long after each
    probe that failed, up to five minutes.
    """

    enabled: bool = True
    consecutive: Annotated[int, Meta(ge=1, le=1000)] = 10
    open_for: Annotated[float, Meta(ge=5, le=300, description="seconds")] = 5.0


class Policy(Struct, frozen=True, kw_only=True):
    """
    What all three shapes share. Defaults are those of the API.

    burst: callbacks that may start at once after a pause; None: those of one second of rate_limit.
    It means nothing without one, and stands there still when the limit is lifted for a while.
    priority: 9 is served first. on_failed: the biz_type that hears of a task that failed for good.
    delivery: pull: nothing is called, workers reserve what is due; max_concurrency is then how many
    may be reserved at once.
    """

    callback_url: Url | None = None
    callback_method: Method = "POST"
    timeout: TimeoutS = 10.0
    max_concurrency: Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX)] = 64
    max_age: MaxAgeS | None = None
    max_past: Annotated[float, Meta(ge=0, le=POLICY_S_MAX, description="seconds")] | None = None
    final_statuses: Annotated[tuple[Status, ...], Meta(max_length=300)] = ()
    allow_callback_override: bool = False
    callback_allow: Annotated[
        tuple[Network, ...],
        Meta(
            max_length=NETWORKS_MAX,
            description="where there are some, callbacks reach these networks and no other; it "
            "narrows what the server allows (CALLBACK_ALLOW), and never widens it",
        ),
    ] = ()
    rate_limit: RatePerS | None = None
    burst: Annotated[int, Meta(ge=1, le=BURST_MAX)] | None = None
    submit_rate_limit: RatePerS | None = None
    max_pending: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=PENDING_MAX,
                description="new tasks beyond so many pending ones are refused (429 quota); what "
                "is replayed or replaced counts, and is not refused",
            ),
        ]
        | None
    ) = None
    priority: Annotated[int, Meta(ge=0, le=9)] = 5
    spread: SpreadS | None = None
    breaker: Breaker = Breaker()
    on_failed: BizTypeName | None = None
    erase_data: bool = False
    delivery: Delivery = "callback"
    paused: bool = False


class SigningSecret(Struct, frozen=True):
    """
    A secret that callbacks are signed with. until_ms: the moment, by the database's clock, from
    which it no longer signs (a rotation's grace is over); None: none is set.
    """

    value: str
    until_ms: int | None = None

    def __repr__(self) -> str:
        return f"SigningSecret(until_ms={self.until_ms})"


class BizType(Policy, frozen=True, kw_only=True):
    """
    A biz_type as the brokers work by it. version grows with every change. secrets: newest first;
    while a rotation's grace runs, several.
    """

    biz_type: str
    version: int
    callback_headers: dict[str, str] = {}
    secrets: tuple[SigningSecret, ...] = ()
    retry: Retry = Retry()
    retention: Retention = Retention()

    def __repr__(self) -> str:
        # Neither secrets nor header values may reach a log by way of a traceback.
        return f"BizType({self.biz_type!r}, version={self.version})"

    @property
    def timeout_ms(self) -> int:
        """The callback's total deadline."""
        return round(self.timeout * 1000)

    @property
    def max_age_ms(self) -> int | None:
        """After start_time + this no attempt starts."""
        return None if self.max_age is None else round(self.max_age * 1000)

    def retention_ms(self, status: Literal["finished", "failed", "cancelled"]) -> int:
        """How long a task that ended so is kept."""
        kept_s: int = getattr(self.retention, status)
        return kept_s * 1000


class BizTypeIn(Policy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    What a PUT may say. biz_type and version are taken as checks, so that what a GET showed can be
    sent back: another name is refused, another version is 412.
    """

    biz_type: str | UnsetType = UNSET
    version: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    callback_headers: dict[str, str | Mark | None] = {}
    secret: str | Mark | UnsetType | None = UNSET
    retry: RetryIn = RetryIn()
    retention: RetentionS | Retention = Retention()

    def __repr__(self) -> str:
        return "BizTypeIn()"


class BizTypeOut(Policy, frozen=True, kw_only=True):
    """What a GET shows: every setting, write-only values as marks."""

    biz_type: str
    version: int
    callback_headers: dict[str, str | Mark]
    secret: Mark | None
    retry: RetryIn
    retention: Retention


def is_biz_type(name: str) -> bool:
    """Whether `name` can be a biz_type's name."""
    return _BIZ_TYPE.fullmatch(name) is not None


def shown(biz: BizType) -> BizTypeOut:
    """A biz_type as a GET shows it."""
    return BizTypeOut(
        **_policy(biz),
        biz_type=biz.biz_type,
        version=biz.version,
        callback_headers=masked(biz.callback_headers),
        secret=Mark() if biz.secrets else None,
        retry=biz.retry.said(),
        retention=biz.retention,
    )


def merged(name: str, given: BizTypeIn, before: BizType | None) -> BizType:
    """
    The biz_type that a PUT of `given` makes of `before` (None: it is new); version is before's.

    Raises InvalidTask with a pointer into the PUT's body for each rule broken.
    """
    errors: list[FieldError] = []
    if given.biz_type is not UNSET and given.biz_type != name:
        errors.append(FieldError(f"the path says {name!r}", "#/biz_type"))
    headers = _merged_headers(given, before, errors)
    errors += check_headers(headers, "#/callback_headers")
    if given.callback_url is not None:
        errors += check_url(given.callback_url, "#/callback_url")
    elif not given.allow_callback_override and given.delivery == "callback":
        detail = "needed, unless allow_callback_override lets each task bring its own"
        errors.append(FieldError(detail, "#/callback_url"))
    errors += check_retry(given.retry, "#/retry")
    errors += _check_networks(given.callback_allow)
    if given.on_failed == name:
        errors.append(FieldError("another biz_type than this one", "#/on_failed"))
    secrets = _merged_secrets(given, before, errors)
    if errors:
        raise InvalidTask(errors)
    kept = given.retention
    return BizType(
        **_policy(given),
        biz_type=name,
        version=0 if before is None else before.version,
        callback_headers=headers,
        secrets=secrets,
        retry=Retry().overridden(given.retry),
        retention=Retention(kept, kept, kept) if isinstance(kept, int) else kept,
    )


def check_retry(retry: RetryIn, pointer: str) -> list[FieldError]:
    """What is wrong with a retry policy beyond its numbers."""
    if retry.backoff is not UNSET and retry.ladder is not UNSET:
        return [FieldError("backoff or ladder, not both", pointer)]
    if retry.backoff is not UNSET and retry.backoff.max < retry.backoff.initial:
        return [FieldError("max is less than initial", f"{pointer}/backoff/max")]
    return []


def _check_networks(networks: tuple[str, ...]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, network in enumerate(networks):
        try:
            ip_network(network)
        except ValueError as error:
            errors.append(FieldError(f"not a network: {error}", f"#/callback_allow/{index}"))
    return errors


def check_secret(secret: str, pointer: str) -> list[FieldError]:
    """A signing secret is that of Standard Webhooks: whsec_ and 16 to 64 bytes in base64."""
    try:
        size = len(b64decode(secret.removeprefix("whsec_"), validate=True))
    except (BadBase64, ValueError):
        size = 0
    if 16 <= size <= 64:
        return []
    detail = "whsec_ followed by 16 to 64 random bytes in base64 (openssl rand -base64 32)"
    return [FieldError(detail, pointer)]


def _policy(source: Policy) -> dict[str, Any]:
    return {name: getattr(source, name) for name in Policy.__struct_fields__}


def _merged_headers(
    given: BizTypeIn, before: BizType | None, errors: list[FieldError]
) -> dict[str, str]:
    """Header names in lower case -> values; write-only ones that are not mentioned stay."""
    stored = {} if before is None else before.callback_headers
    headers: dict[str, str] = {}
    for name, value in given.callback_headers.items():
        lower = name.lower()
        where = f"#/callback_headers/{escaped(name)}"
        if lower in headers:
            errors.append(FieldError("given twice", where))
        elif isinstance(value, str):
            headers[lower] = value
        elif isinstance(value, Mark) and value.set and lower in stored and is_write_only(lower):
            headers[lower] = stored[lower]
        elif isinstance(value, Mark) and value.set:
            errors.append(FieldError("there is no stored value to keep", where))
    mentioned = {name.lower() for name in given.callback_headers}
    headers |= {
        name: value
        for name, value in stored.items()
        if is_write_only(name) and name not in mentioned
    }
    return headers


def _merged_secrets(
    given: BizTypeIn, before: BizType | None, errors: list[FieldError]
) -> tuple[SigningSecret, ...]:
    stored = () if before is None else before.secrets
    if given.secret is None or given.secret == Mark(set=False):
        return ()
    if isinstance(given.secret, str):
        errors += check_secret(given.secret, "#/secret")
        # Saying again what is current must not cut the grace of a rotation short.
        if stored and stored[0].value == given.secret:
            return stored
        return (SigningSecret(given.secret),)
    if isinstance(given.secret, Mark) and not stored:
        errors.append(FieldError("there is no stored secret to keep", "#/secret"))
    return stored
