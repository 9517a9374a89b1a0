"""
One run of `demo`: start, submit, watch the callbacks arrive, judge.

The endpoint that the callbacks come to runs in this process, so an arrival is counted by the same
machine's clock that the timers were set by.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import IO, Any, Final

import httpx
import msgspec
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from wheel_timer.biz import BizTypeIn
from wheel_timer.cli.auditing import Audited, from_database
from wheel_timer.cli.endpoint import Endpoint
from wheel_timer.cli.exits import DONE, NO, UNREACHABLE, Failure
from wheel_timer.cli.machine import Machine, Plan
from wheel_timer.cli.moments import in_words
from wheel_timer.cli.output import err, out, print_json
from wheel_timer.cli.tally import Tally, percentile
from wheel_timer.cli.up import cores
from wheel_timer.cli.verdict import as_object, as_view, holds
from wheel_timer.echo import Arrival
from wheel_timer.settings import load

BATCH_ROWS: Final = 1_000
LEAD_S: Final = 1.5  # from the last batch to the first timer, so that nothing is due before
SUBMITS_PER_S: Final = 20_000  # what a slow machine takes in at least
PATIENCE_S: Final = 20.0  # without any arrival, after the last was due: what is missing is missing
SETTLE_S: Final = 5.0  # what the brokers get to write down what came of the last calls
WATCH_S: Final = 0.1
FRAMES_PER_S: Final = 4  # drawing takes some ms in which no arrival is noticed
BIZ_TYPE: Final = "demo"


class Showing:
    """`run` says the exit code; `stop` and `kill` end whatever was started."""

    def __init__(
        self, tasks: int, seconds: float, directory: Path, output: IO[str], *, as_json: bool
    ) -> None:
        self._tasks = tasks
        self._seconds = seconds
        self._directory = directory
        self._output = output
        self._as_json = as_json
        self._tally = Tally()
        self._endpoint = Endpoint(self._arrived)
        self._machine: Machine | None = None
        self._last_arrival = 0.0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=err,
            refresh_per_second=FRAMES_PER_S,
            disable=as_json or not err.is_terminal,
        )

    async def run(self) -> int:
        """Everything, from nothing to the verdict."""
        with self._progress:
            machine = await self._start()
            await self._submit(machine.url)
            await self._watch()
            audits = await self._settled_audits(machine)
        if self._as_json:
            print_json(as_object(self._tally, audits))
        else:
            out.print(as_view(self._tally, audits))
        return DONE if holds(self._tally, audits) else NO

    async def stop(self) -> None:
        self._endpoint.close()
        if self._machine is not None:
            await self._machine.stop()

    def hurry(self) -> None:
        """The same, without waiting for calls under way."""
        if self._machine is not None:
            self._machine.hurry()

    def kill(self) -> None:
        if self._machine is not None:
            self._machine.kill()

    def _arrived(self, arrival: Arrival) -> tuple[int, float]:
        self._last_arrival = time.monotonic()
        self._tally.count(arrival)
        return 200, 0.0

    async def _start(self) -> Machine:
        bar = self._progress.add_task("starting everything", total=1, note="")
        port = await self._endpoint.start("127.0.0.1", 0)
        plan = Plan(
            host="127.0.0.1",
            port=0,
            data_dir=self._directory,
            brokers=cores(),
            daemons=1,
            biz_types={
                BIZ_TYPE: BizTypeIn(callback_url=f"http://127.0.0.1:{port}/", max_concurrency=256)
            },
            demo_echo=False,
            output=self._output,
        )
        # Not the user's settings: a demo must not end up in a database that matters.
        self._machine = Machine(load({}, None, {}).settings, plan)
        await self._machine.start(lambda step: self._progress.update(bar, note=step))
        self._progress.update(bar, completed=1, note="")
        return self._machine

    async def _submit(self, url: str) -> None:
        bar = self._progress.add_task("submitting timers", total=self._tasks, note="")
        first_s = time.time() + LEAD_S + self._tasks / SUBMITS_PER_S
        async with httpx.AsyncClient(timeout=30.0) as http:
            for begin in range(0, self._tasks, BATCH_ROWS):
                rows = min(BATCH_ROWS, self._tasks - begin)
                body = {"tasks": [self._task(first_s, begin + n) for n in range(rows)]}
                answer = await http.post(
                    f"{url}/v1/tasks/batch",
                    content=msgspec.json.encode(body),
                    headers={"content-type": "application/json"},
                )
                self._expect(answer)
                self._progress.advance(bar, rows)

    def _task(self, first_s: float, number: int) -> dict[str, Any]:
        start_s = first_s + random.random() * self._seconds
        return {
            "biz_type": BIZ_TYPE,
            "start_time": round(start_s, 3),
            "biz_data": {"number": number},
        }

    def _expect(self, answer: httpx.Response) -> None:
        if answer.status_code != 200:
            raise Failure(f"the server answered {answer.status_code}: {answer.text}", UNREACHABLE)
        for result in msgspec.json.decode(answer.content)["results"]:
            if "task_id" not in result:
                raise Failure(f"a timer was refused: {result['error']}", UNREACHABLE)
            self._tally.expect(result["task_id"])

    async def _watch(self) -> None:
        """Until all are there, or nothing came for so long that nothing will."""
        bar = self._progress.add_task("callbacks arriving", total=self._tasks, note="")
        patient_until = time.monotonic() + LEAD_S + self._seconds + PATIENCE_S
        while self._tally.missing and time.monotonic() < patient_until:
            await asyncio.sleep(WATCH_S)
            self._progress.update(bar, completed=self._tally.arrived, note=self._so_far())
            patient_until = max(patient_until, self._last_arrival + PATIENCE_S)
        self._progress.update(bar, completed=self._tally.arrived, note="")

    def _so_far(self) -> str:
        if not self._tally.lateness_ms:
            return "the first comes in a moment"
        ordered = sorted(self._tally.lateness_ms[-2_000:])
        p50, p99 = (in_words(percentile(ordered, percent)) for percent in (50, 99))
        return f"late: p50 {p50}, p99 {p99}"

    async def _settled_audits(self, machine: Machine) -> list[Audited]:
        """The audits, as soon as they hold: what arrived is still being written down."""
        patient_until = time.monotonic() + SETTLE_S
        while True:
            audits = await from_database(machine.settings)
            if all(audit.holds for audit in audits) or time.monotonic() > patient_until:
                return audits
            await asyncio.sleep(WATCH_S)
