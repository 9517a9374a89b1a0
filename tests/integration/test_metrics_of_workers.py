"""Metrics of several processes: one answer for all, which never goes down."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.multiprocess import mark_process_dead

WORKER = """
import sys
from wheel_timer import metrics
metrics.set_up(biz_types_max=100)
for line in sys.stdin:
    match line.split():
        case ["submit", count]: metrics.tasks_submitted("orders", int(count))
        case ["call", count]: metrics.lane_state("orders", (0, 0, False), (int(count), 0, False))
        case ["scrape"]: print(metrics.scrape().decode())
    print("done", flush=True)
"""


class Worker:
    """A process with metrics of its own, told what to do line by line."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(directory)},
        )

    def tell(self, line: str) -> dict[str, float]:
        """Do it; of a scrape, the samples by name with labels."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        samples = {}
        while (answer := self.process.stdout.readline().rstrip()) != "done":
            if answer and not answer.startswith("#"):
                name, value = answer.rsplit(" ", 1)
                samples[name] = float(value)
        return samples

    def kill(self) -> None:
        with self.process:
            self.process.kill()


@pytest.fixture
def new_worker(tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    workers: list[Worker] = []

    def start() -> Worker:
        workers.append(Worker(tmp_path))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.process.poll() is None:
            worker.kill()


SUBMITTED = 'wheel_timer_tasks_submitted_total{biz_type="orders"}'
IN_FLIGHT = 'wheel_timer_lane_inflight{biz_type="orders"}'


def test_any_worker_answers_for_all_and_a_dead_one_stays_counted(
    new_worker: Callable[[], Worker], tmp_path: Path
) -> None:
    first, second = new_worker(), new_worker()
    first.tell("submit 3")
    second.tell("submit 4")
    first.tell("call 2")
    second.tell("call 5")
    assert [worker.tell("scrape")[SUBMITTED] for worker in (first, second)] == [7, 7]
    assert second.tell("scrape")[IN_FLIGHT] == 7
    first.kill()
    mark_process_dead(first.process.pid, str(tmp_path))
    third = new_worker()
    third.tell("submit 1")
    samples = second.tell("scrape")
    assert samples[SUBMITTED] == 8
    assert samples[IN_FLIGHT] == 5


def test_a_hundred_scrapes_of_two_busy_workers_never_go_down(
    new_worker: Callable[[], Worker],
) -> None:
    workers = [new_worker(), new_worker()]
    last = 0.0
    for number in range(100):
        workers[number % 2].tell("submit 1")
        value = workers[(number + 1) % 2].tell("scrape")[SUBMITTED]
        assert value > last
        last = value
    assert last == 100


def test_a_process_on_its_own_leaves_no_directory_behind() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PROMETHEUS_MULTIPROC_DIR"}
    code = (
        "import os; from wheel_timer import metrics; print(os.environ[metrics.DIRECTORY_VARIABLE])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert not Path(done.stdout.strip()).exists()
