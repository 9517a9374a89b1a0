"""The console in a real browser: every action of its pages by clicking, and what a phone shows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.fix_up import Up
from tests.fix_chromium import Browser

ADMIN_KEY = "correct horse battery staple"
DESK, PHONE = (1280, 800), (360, 740)
BUTTON = "section.confirm form button"


@pytest.fixture
def api(up: Up) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=up.url) as http:
        yield http


@pytest.fixture
def shop(api: httpx.Client) -> str:
    """A biz_type whose calls are refused, and nothing is tried again."""
    body = {"callback_url": "http://127.0.0.1:9/", "retry": {"max_attempts": 1, "ladder": [1]}}
    assert api.put("/v1/biz/console.shop", json=body).is_success
    return "console.shop"


def submit(api: httpx.Client, biz_type: str, biz_id: str, delay: float = 3600) -> str:
    body = {"biz_type": biz_type, "biz_id": biz_id, "delay": delay, "on_duplicate": "replace"}
    answer = api.post("/v1/tasks", json=body)
    assert answer.is_success, answer.text
    task_id: str = answer.json()["task_id"]
    return task_id


def wait_for(so: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 20
    while not so():
        assert time.monotonic() < deadline, f"{what} is not so"
        time.sleep(0.05)


def status_of(api: httpx.Client, task_id: str) -> str:
    task: dict[str, str] = api.get(f"/v1/tasks/{task_id}").json()
    return task["status"]


def test_a_task_is_found_and_cancelled_with_and_without_scripts(
    up: Up, api: httpx.Client, shop: str, browser: Browser
) -> None:
    for is_without in (False, True):
        task_id = submit(api, shop, f"browser-{is_without}")
        browser.shape(*DESK)
        browser.without_scripts(is_without)
        browser.open(f"{up.url}/console")
        browser.click("nav a[href='/console/tasks']")
        browser.fill("#f-search", f"browser-{is_without}")
        browser.click("form[role=search] button")
        assert browser.url == f"{up.url}/console/tasks/{task_id}"
        browser.click("a[href$='/cancel']")
        assert "Cancel this task?" in browser.text()
        assert status_of(api, task_id) == "pending"
        browser.click(BUTTON)
        assert "The task is cancelled" in browser.text(".notice")
        assert status_of(api, task_id) == "cancelled"
    assert browser.errors == []


@pytest.mark.slow
def test_every_action_on_tasks_is_done_by_clicking(
    up: Up, api: httpx.Client, shop: str, browser: Browser
) -> None:
    browser.shape(*PHONE)
    task_id = submit(api, shop, "clicked")
    page = f"{up.url}/console/tasks/{task_id}"
    browser.open(page)
    browser.click("a[href$='/reschedule']")
    browser.fill("#f-delay", "2h30m")
    browser.click(BUTTON)
    assert "2 h 30 min after you confirm" in browser.text()
    browser.click(BUTTON)
    assert "The task is due at" in browser.text(".notice")
    browser.click("a[href$='/cancel']")
    browser.click("section.confirm a.button")
    assert browser.url == page
    assert status_of(api, task_id) == "pending"
    browser.click("a[href$='/run']")
    browser.click(BUTTON)
    # The page keeps itself fresh: it gets to its end without anybody loading it.
    browser.wait_for("document.querySelector('#story').innerText.includes('It failed for good')")
    browser.open(f"{up.url}/console/dead?biz_type={shop}")
    browser.click(f"a[href='/console/tasks/{task_id}']")
    browser.click("a[href$='/replay']")
    browser.click(BUTTON)
    wait_for(lambda: status_of(api, task_id) == "failed", "failed once more")
    browser.open(page)
    browser.click("a[href$='/discard']")
    browser.click(BUTTON)
    assert status_of(api, task_id) == "cancelled"
    assert browser.errors == []


@pytest.mark.slow
def test_many_tasks_are_changed_by_clicking(
    up: Up, api: httpx.Client, shop: str, browser: Browser
) -> None:
    browser.shape(*DESK)
    tasks = [submit(api, shop, f"many-{n}") for n in range(12)]
    for action, status in (("shift", "pending"), ("cancel", "cancelled"), ("purge", None)):
        browser.open(f"{up.url}/console/tasks?biz_type={shop}&search=many-*")
        browser.click("a[href^='/console/tasks/many']")
        browser.choose("#f-action", action)
        if action == "shift":
            browser.fill("#f-shift", "30m")
        browser.fill("#f-rate", "100")
        browser.click(BUTTON)
        assert "12 tasks" in browser.text("h1"), browser.text()
        browser.click(BUTTON)
        assert re.search(r"/console/operations/[0-9a-f-]{36}$", browser.url)
        wait_for(lambda: state_of(api, browser.url) == "done", f"{action} is done")
        if status is not None:
            assert {status_of(api, task_id) for task_id in tasks} == {status}
    assert api.get(f"/v1/tasks/{tasks[0]}").status_code == 404
    assert browser.errors == []


def state_of(api: httpx.Client, url: str) -> str:
    found: str = api.get(f"/v1/operations/{url.rpartition('/')[2]}").json()["state"]
    return found


@pytest.mark.slow
def test_the_brake_is_pulled_by_clicking(up: Up, api: httpx.Client, browser: Browser) -> None:
    browser.shape(*DESK)
    browser.open(f"{up.url}/console/wheel")
    browser.click("a[href='/console/wheel/pause']")
    browser.fill("#f-reason", "a trial <b>")
    browser.click(BUTTON)
    assert api.get("/v1/wheel").json()["brake"] is None
    browser.click(BUTTON)
    try:
        assert api.get("/v1/wheel").json()["brake"]["reason"] == "a trial <b>"
        wait_for(lambda: "a trial <b>" in reloaded(browser), "the brake is shown")
        browser.click("a[href='/console/wheel/resume']")
        browser.click(BUTTON)
    finally:
        brake = api.get("/v1/wheel").json()["brake"]
        api.post("/v1/wheel/resume")
    assert brake is None
    assert browser.errors == []


def reloaded(browser: Browser) -> str:
    browser.open(browser.url)
    return browser.text()


@pytest.mark.slow
def test_pages_fit_a_phone_and_break_no_rule_of_theirs(
    up: Up, api: httpx.Client, shop: str, browser: Browser
) -> None:
    """Nothing runs over the edge, nothing is asked of others, and no script or style is refused."""
    submit(api, shop, "x" * 200)
    browser.shape(*PHONE)
    browser.open(f"{up.url}/console")
    paths: list[str] = browser.evaluate("[...document.querySelectorAll('nav a')].map(a => a.href)")
    assert len(paths) >= 9
    for is_dark in (False, True):
        browser.shape(*PHONE, is_dark=is_dark)
        for path in (*paths, f"{up.url}/console/tasks?search={'x' * 200}&biz_type={shop}"):
            browser.open(path)
            over = browser.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert over <= 0, path
            assert browser.evaluate("document.querySelectorAll('h1').length") == 1, path
            unnamed = browser.evaluate(
                "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
                ".filter(one => !one.labels.length && !one.ariaLabel).length"
            )
            assert unnamed == 0, path
    assert browser.errors == []


@pytest.mark.slow
def test_the_wheel_is_kept_fresh_and_reached_by_keyboard(up: Up, browser: Browser) -> None:
    browser.shape(*DESK)
    browser.open(f"{up.url}/console/wheel")
    shown = browser.text("#now .lead")
    browser.evaluate("window.stays = true")
    browser.wait_for(f"document.querySelector('#now .lead').innerText !== {shown!r}")
    assert browser.evaluate("window.stays")
    for key in ("Tab", "Enter"):
        code = {"Tab": 9, "Enter": 13}[key]
        for kind in ("rawKeyDown", "char", "keyUp") if key == "Enter" else ("rawKeyDown", "keyUp"):
            browser.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text="\r" if key == "Enter" else "",
            )
        if key == "Tab":
            assert browser.evaluate("document.activeElement.className") == "skip"
    browser.wait_for("location.hash === '#main'")
    assert browser.evaluate("document.activeElement.id") == "main"


@pytest.mark.slow
def test_one_signs_in_and_out(tmp_path: Path, browser: Browser) -> None:
    with Up(tmp_path / "data", environ={"WHEEL_TIMER_ADMIN_KEY": ADMIN_KEY}) as keyed:
        browser.shape(*DESK)
        browser.open(f"{keyed.url}/console/tasks?status=failed")
        assert "/console/sign-in?next=" in browser.url
        browser.fill("#f-key", "wrong")
        browser.click("main form button")
        assert "not one of this server" in browser.text()
        browser.fill("#f-key", ADMIN_KEY)
        browser.click("main form button")
        assert browser.url == f"{keyed.url}/console/tasks?status=failed"
        assert "signed in as admin" in browser.text(".who")
        assert browser.evaluate("document.cookie") == ""
        # The page that keeps itself fresh goes to the sign-in page when the session is over.
        browser.open(f"{keyed.url}/console/wheel")
        browser.send("Network.clearBrowserCookies")
        browser.wait_for("location.pathname === '/console/sign-in'")
        browser.fill("#f-key", ADMIN_KEY)
        browser.click("main form button")
        browser.click(".who button")
        assert browser.url == f"{keyed.url}/console/sign-in"
        browser.open(f"{keyed.url}/console/wheel")
        assert "/console/sign-in?next=" in browser.url
