"""A schedule made and changed by a form, which tells the next ten times while a cron is typed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, get_args

import msgspec
from starlette.responses import Response

from broker.api.schedules import biz_of, make_so, now_of, patch, read
from broker.api.scheduleview import schedule_item, schedule_out
from broker.api.scheduling import decode_schedule, is_name, patched
from broker.console.form import OVERTAKEN, by_field, version_of, without_nones
from broker.console.page import Page
from broker.console.pages.schedules import COMING, HERE, Time, found_of, path_of, time_of
from broker.console.scheduleform import DEFAULTS, FIELDS, patch_of, texts_of
from broker.console.visit import Confirmation, Visit
from wheel_timer.callback import Method
from wheel_timer.cron import Cron, check_cron
from wheel_timer.errors import FieldError, InvalidTask, NotFound, StaleVersion, WheelTimerError
from wheel_timer.schedule import Misfire, Overlap, Schedule

NEW: Final = "/console/new-schedule"
CRON: Final = "/console/cron"
VALUE_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """What a cron brings next, or what is wrong with it; neither: none was given."""

    times: Sequence[Time]
    wrong: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form. name: None where it is to be made; version: what is changed."""

    name: str | None
    biz_type: str
    version: int
    texts: Mapping[str, str]
    has_binary: bool
    methods: Sequence[str]
    misfires: Sequence[str]
    overlaps: Sequence[str]
    coming: Coming
    wrong: Mapping[str, str]
    others: Sequence[FieldError]
    back: str


async def show_cron(visit: Visit) -> Response:
    """The next ten times of a cron, for the form to show while one types."""
    return visit.render("cron.html", await _coming(visit, visit.query))


async def show_new(visit: Visit) -> Response:
    """An empty form."""
    given = {"biz_type": visit.query.get("biz_type", "")}
    return await _form(visit, None, {**DEFAULTS, **given}, [])


async def review_new(visit: Visit) -> Response:
    """Whether it is to be made so; or only what comes of it."""
    if "show" in visit.form:
        return await _form(visit, None, visit.form, [])
    name = visit.form.get("name", "").strip()
    try:
        schedule = await _made(visit, None)
    except (InvalidTask, NotFound) as error:
        return await _form(visit, None, visit.form, _errors(error, "#/biz_type"))
    return visit.confirm(
        Confirmation(
            title=f"Make the schedule {name}?",
            sentences=["It comes due from now on." if schedule.enabled else "It is not enabled."],
            facts=[("Of", schedule.biz_type), *await _facts(visit, schedule)],
            fields=visit.form,
            button="Make it",
            back=HERE,
        )
    )


async def make(visit: Visit) -> Response:
    """Make it, where there is still none."""
    name = visit.form.get("name", "").strip()
    try:
        wanted = await _made(visit, None)

        def new(before: Schedule | None) -> Schedule:
            if before is not None:
                raise InvalidTask([FieldError("there is one of this name already", "#/name")])
            return wanted

        await make_so(
            visit.context,
            wanted.biz_type,
            name,
            new,
            actor=visit.actor.name,
            action="schedule.put",
        )
    except (InvalidTask, NotFound) as error:
        return await _form(visit, None, visit.form, _errors(error, "#/biz_type"))
    return visit.done(path_of(wanted.biz_type, name), f"The schedule {name} is made.")


async def show(visit: Visit) -> Response:
    """The form, as it is set now."""
    schedule = await found_of(visit)
    texts = texts_of(schedule_out(schedule, now_of(visit.context)))
    return await _form(visit, schedule, texts, [])


async def review(visit: Visit) -> Response:
    """What would change; or only what comes of it."""
    schedule = await found_of(visit)
    if "show" in visit.form:
        return await _form(visit, schedule, visit.form, [])
    try:
        body = _patch_body(visit, schedule)
        biz = await biz_of(visit.context, schedule.biz_type)
        given = patched(schedule, body)
        after = read(visit.context, given, biz, schedule.name, schedule)
    except (InvalidTask, StaleVersion) as error:
        return await _form(visit, schedule, visit.form, _errors(error, "#"))
    now_ms = now_of(visit.context)
    old, new = (msgspec.to_builtins(schedule_item(one, now_ms)) for one in (schedule, after))
    told = ("version", "next_time", "create_time", "update_time", "schedule_id")
    facts = [
        (key, f"{_written(old[key])} → {_written(new[key])}")
        for key in new
        if key not in told and old.get(key) != new[key]
    ]
    if schedule.biz_data != after.biz_data:
        facts.append(("biz_data", "another payload" if after.biz_data is not None else "none"))
    back = path_of(schedule.biz_type, schedule.name)
    if not facts:
        return visit.done(back, "Nothing differs: it stays as it is.")
    return visit.confirm(
        Confirmation(
            title=f"Change the schedule {schedule.name}?",
            sentences=["What it was to bring next is replaced by what it brings then, at once."],
            facts=[*facts, *await _facts(visit, after)],
            fields=visit.form,
            button="Change it",
            back=f"{back}/edit",
        )
    )


async def change(visit: Visit) -> Response:
    """Change it, where it is still what was seen."""
    schedule = await found_of(visit)
    try:
        body = _patch_body(visit, schedule)
        await patch(visit.context, schedule, body, visit.actor)
    except (InvalidTask, StaleVersion) as error:
        return await _form(visit, schedule, visit.form, _errors(error, "#"))
    return visit.done(path_of(schedule.biz_type, schedule.name), "It is changed.")


def _patch_body(visit: Visit, schedule: Schedule) -> bytes:
    """The PATCH of the form, for the version that it was filled in for. Raises InvalidTask."""
    version = version_of(visit.form)
    asked = patch_of(visit.form, has_binary=_has_binary(visit, schedule))
    return msgspec.json.encode(asked | {"version": version})


async def _made(visit: Visit, before: Schedule | None) -> Schedule:
    """The schedule of a form that makes one. Raises InvalidTask, NotFound."""
    name, biz_type = (visit.form.get(key, "").strip() for key in ("name", "biz_type"))
    visit.actor.check_sees(biz_type)
    biz = await biz_of(visit.context, biz_type)
    if not is_name(name):
        detail = "a letter or a digit, then letters, digits, . _ -, at most 128"
        raise InvalidTask([FieldError(detail, "#/name")])
    asked = without_nones(patch_of(visit.form, has_binary=False))
    given = decode_schedule(msgspec.json.encode(asked))
    return read(visit.context, given, biz, name, before)


async def _coming(visit: Visit, asked: Mapping[str, str]) -> Coming:
    cron, timezone = asked.get("cron", "").strip(), asked.get("timezone", "").strip() or "UTC"
    if not cron:
        return Coming(times=[], wrong="")
    if errors := check_cron(cron, timezone):
        return Coming(times=[], wrong="; ".join(error.detail for error in errors))
    now_ms = now_of(visit.context)

    def count() -> list[int]:
        return list(islice(Cron(cron, timezone).after(now_ms), COMING))

    # Rare ones take some milliseconds: beside what else there is to do.
    found = await asyncio.to_thread(count)
    return Coming(times=[time_of(at_ms, timezone) for at_ms in found], wrong="")


async def _facts(visit: Visit, schedule: Schedule) -> list[tuple[str, str]]:
    asked = {"cron": schedule.cron, "timezone": schedule.timezone}
    coming = await _coming(visit, asked)
    times = [time.wall for time in coming.times[:3]]
    return [(f"Then comes ({schedule.timezone})", ", ".join(times) or "never")]


async def _form(
    visit: Visit, schedule: Schedule | None, texts: Mapping[str, str], errors: list[FieldError]
) -> Response:
    wrong, others = by_field(errors, FIELDS)
    if "callback" in wrong:
        # The rule is about all of it; the URL is where it begins.
        wrong["callback.url"] = wrong.pop("callback")
    is_new = schedule is None
    data = Form(
        name=None if schedule is None else schedule.name,
        biz_type=texts.get("biz_type", "") if schedule is None else schedule.biz_type,
        version=0 if schedule is None else schedule.version,
        texts=texts,
        has_binary=schedule is not None and _has_binary(visit, schedule),
        methods=("", *get_args(Method)),
        misfires=get_args(Misfire),
        overlaps=get_args(Overlap),
        coming=await _coming(visit, texts),
        wrong=wrong,
        others=others,
        back=HERE if is_new or schedule is None else path_of(schedule.biz_type, schedule.name),
    )
    return visit.render("schedule-form.html", data, 422 if errors else 200)


def _has_binary(visit: Visit, schedule: Schedule) -> bool:
    """Whether there is a payload that is no JSON."""
    shown = schedule_out(schedule, now_of(visit.context))
    return shown.biz_data_base64 is not msgspec.UNSET


def _errors(error: WheelTimerError, pointer: str) -> list[FieldError]:
    if isinstance(error, InvalidTask):
        return error.errors
    if isinstance(error, StaleVersion):
        return [FieldError(OVERTAKEN, pointer)]
    return [FieldError(str(error), pointer)]


def _written(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "…"


PAGES: Final = (
    Page(path=CRON, scope="read", show=show_cron),
    Page(path=NEW, scope="configure", show=show_new, review=review_new, act=make),
    Page(
        path=f"{HERE}/{{biz_type}}/{{name}}/edit",
        scope="configure",
        show=show,
        review=review,
        act=change,
    ),
)
