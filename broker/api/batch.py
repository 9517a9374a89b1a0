"""POST /v1/tasks/batch: many tasks in one request, each stored or refused for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from broker import tracing
from broker.api import ndjson
from broker.api.context import Context
from broker.api.decoding import decode
from broker.api.intake import TaskIn
from broker.api.operation import JSON, NDJSON, Answer, Operation, json_answer
from broker.api.outcomes import Kept, counted, error_of, kept, media_type, stored, unsupported
from broker.api.problems import Refused, invalid
from broker.api.reading import Read, TaskReader
from broker.api.view import StatusName
from broker.submission import Accepted, Duplicate, Outcome, Replaced, Submission
from wheel_timer.errors import Overloaded, Unavailable, WheelTimerError

BATCH_TASKS_MAX: Final = 10_000


class BatchIn(Struct, forbid_unknown_fields=True):
    """Tasks that travel together; each is stored or refused for itself."""

    tasks: Annotated[
        list[Raw],
        Meta(
            max_length=BATCH_TASKS_MAX,
            extra_json_schema={"items": {"$ref": "#/components/schemas/TaskIn"}},
        ),
    ]


class BatchItem(Struct, omit_defaults=True):
    """What became of one task of a batch: its id and status, or the error."""

    task_id: UUID | UnsetType = UNSET
    status: StatusName | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    differs: list[str] | UnsetType = UNSET
    error: Annotated[
        dict[str, Any] | UnsetType,
        Meta(extra_json_schema={"$ref": "#/components/schemas/Problem"}),
    ] = UNSET


class BatchOut(Struct):
    """results: one for each task, in the order they came."""

    accepted: int
    duplicates: int
    rejected: int
    results: list[BatchItem]


_BATCH: Final = msgspec.json.Decoder(BatchIn)


@tracing.submitting
async def submit_batch(context: Context, request: Request) -> Response:
    """Many tasks: a JSON document, or NDJSON of any length."""
    if "idempotency-key" in request.headers:
        raise invalid("Idempotency-Key is for a single task; give each task of a batch its biz_id")
    sent = media_type(request)
    if sent == NDJSON:
        return await ndjson.submit_lines(context, request)
    if sent not in ("", JSON):
        raise unsupported(f"{JSON}, {NDJSON}")
    raws = decode(_BATCH, await context.bodies.read(request)).tasks
    reads = await TaskReader(context, request).read(raws)
    submissions = [read for read in reads if isinstance(read, Submission)]
    tracing.note(tasks=len(submissions))
    outcomes = await stored(context, submissions)
    if outcomes and all(isinstance(o, Unavailable | Overloaded) for o in outcomes):
        assert isinstance(outcomes[0], WheelTimerError)
        raise counted(outcomes[0], len(outcomes))
    return json_answer(_batch_out(context, reads, outcomes))


def _batch_out(context: Context, reads: Sequence[Read], outcomes: Sequence[Outcome]) -> BatchOut:
    now_ms = context.clock.now_ms()
    answers = iter(outcomes)
    out = BatchOut(0, 0, 0, [])
    for position, read in enumerate(reads):
        found: Outcome | Kept | Refused = next(answers) if isinstance(read, Submission) else read
        if isinstance(found, Duplicate):
            assert isinstance(read, Submission)
            found = kept(read, found, now_ms)
        if isinstance(found, Accepted):
            out.accepted += 1
            out.results.append(BatchItem(found.task_id, "pending", False))
        elif isinstance(found, Kept):
            out.duplicates += 1
            out.results.append(BatchItem(found.task_id, found.status, True, found.differs))
        elif isinstance(found, Replaced):
            out.accepted += found.is_revived
            out.duplicates += not found.is_revived
            out.results.append(BatchItem(found.task_id, "pending", not found.is_revived))
        else:
            out.rejected += 1
            out.results.append(BatchItem(error=error_of(found, f"#/tasks/{position}")))
    return out


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/tasks/batch",
        handler=submit_batch,
        name="submitTasks",
        scope="submit",
        summary="Submit many tasks",
        text=f"As JSON up to {BATCH_TASKS_MAX} tasks; as NDJSON any number of lines, one task a "
        "line, committed in parts as they arrive and answered once after the last. Not atomic: "
        "each task is stored or refused for itself.",
        takes={JSON: BatchIn, NDJSON: TaskIn},
        headers={
            "traceparent": "W3C trace context; passed on to the callbacks",
            "Content-Encoding": "gzip",
        },
        answers={
            200: Answer(
                text="The outcome of each task; for NDJSON only counts and the first errors",
                body=(BatchOut, ndjson.LinesOut),
            )
        },
        problems=("invalid-request", "too-large", "rate-limited", "quota", "overloaded"),
    ),
)
