"""The console's pages of configuration and records, clicked through in a browser."""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

import pytest

from tests.acceptance.fix_up import Up
from tests.fix_chromium import Browser


def confirm(browser: Browser) -> None:
    """Say yes on the page that asks."""
    browser.click(".confirm form[method=post] button:not(.plain)")


@pytest.mark.parametrize("has_scripts", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_biz_type_from_its_making_to_its_end(up: Up, browser: Browser, has_scripts: bool) -> None:
    browser.without_scripts(not has_scripts)
    name = f"clicks.{'with' if has_scripts else 'without'}"
    here = f"{up.url}/console/biz/{name}"
    browser.open(f"{up.url}/console/biz")
    browser.click('a[href="/console/new-biz-type"]')
    browser.fill("#f-biz_type", name)
    browser.fill("#f-callback_url", "ftp://nowhere")
    browser.click("main form button.primary")
    assert "http" in browser.text('[id="w-callback_url"]')
    browser.fill("#f-callback_url", f"{up.url}/demo/echo")
    browser.click("main form button.primary")
    assert f"Make the biz_type {name}?" in browser.text("h1")
    confirm(browser)
    assert browser.url == here
    assert "is made" in browser.text(".notice")

    browser.click(f'a[href="/console/biz/{name}/edit"]')
    browser.fill("#f-timeout", "3")
    browser.click("main form button.primary")
    assert "10.0 → 3" in browser.text(".facts")
    confirm(browser)
    assert "is changed" in browser.text(".notice")

    browser.click(f'a[href="/console/biz/{name}/pause"]')
    confirm(browser)
    assert "paused" in browser.text(".head")
    browser.click(f'a[href="/console/biz/{name}/resume"]')
    confirm(browser)

    browser.click(f'a[href="/console/biz/{name}/test"]')
    browser.fill("#f-body", '{"order": 1017}')
    confirm(browser)
    assert "finished" in browser.text("#told")
    browser.click(".crumbs a:last-child")

    browser.click(f'a[href="/console/biz/{name}/rotate-secret"]')
    confirm(browser)
    assert browser.text("pre.secret").startswith("whsec_")
    browser.click(".confirm a.button")

    browser.click(f'a[href="/console/biz/{name}/purge"]')
    browser.fill("#f-typed", name)
    confirm(browser)
    assert "/console/operations/" in browser.url
    assert "purge" in browser.text("h1")

    browser.open(here)
    browser.click(f'a[href="/console/biz/{name}/delete"]')
    browser.fill("#f-typed", "another")
    confirm(browser)
    assert f"type {name}" in browser.text("#wrong")
    browser.fill("#f-typed", name)
    confirm(browser)
    assert browser.url == f"{up.url}/console/biz"
    # A browser notes down answers of 422.
    assert [error for error in browser.errors if "422" not in error] == []


def test_keys_operations_audits_and_changes(up: Up, browser: Browser) -> None:
    browser.open(f"{up.url}/console/keys")
    browser.click('a[href="/console/new-key"]')
    browser.fill("#f-name", "clicked")
    browser.poke('[id="f-scope.read"]')
    browser.click("main form button.primary")
    confirm(browser)
    key = browser.text("pre.secret")
    assert key.startswith("wtk_")
    browser.click(".confirm a.button")
    key_id = key.split("_")[1]
    browser.click(f'a[href="/console/keys/{key_id}/rotate"]')
    confirm(browser)
    assert browser.text("pre.secret") != key
    browser.click(".confirm a.button")
    browser.click(f'a[href="/console/keys/{key_id}/revoke"]')
    confirm(browser)
    assert "is revoked" in browser.text(".notice")

    browser.open(f"{up.url}/console/audits")
    browser.click('a[href="/console/audits/early"]')
    browser.click('a[href="/console/audits/early/run"]')
    confirm(browser)
    # The page keeps itself fresh, and tells when the run is over.
    browser.wait_for("document.querySelector('#audit').innerText.includes('holds')")

    body = {"action": "run", "filter": {"biz_type": "default"}, "rate": 0.01}
    request = Request(
        f"{up.url}/v1/operations",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urlopen(request) as answer:
        begun = json.load(answer)["operation_id"]
    browser.open(f"{up.url}/console/operations")
    browser.click(f'a[href="/console/operations/{begun}"]')
    assert "run" in browser.text("h1")
    browser.open(f"{up.url}/console/operations/{begun}/stop")
    confirm(browser)
    assert browser.text(".notice") in ("It is stopped.", "It had ended before.")

    browser.open(f"{up.url}/console/changes")
    browser.fill("#f-action", "key.revoke")
    browser.click("main form button")
    assert "key.revoke" in browser.text("table")
    browser.poke("table details summary")
    assert "revoke" in browser.text("table")

    browser.open(f"{up.url}/console/ledger")
    assert "Ledger" in browser.text("h1")
    assert browser.errors == []


def test_a_schedule_tells_its_times_while_one_types(up: Up, browser: Browser) -> None:
    browser.open(f"{up.url}/console/new-schedule?biz_type=default")
    browser.fill("#f-name", "clicked")
    browser.fill("#f-timezone", "Asia/Shanghai")
    browser.fill("#f-cron", "30 9 * *")
    browser.wait_for("!!document.querySelector('#coming .wrong')")
    browser.fill("#f-cron", "30 9 * * *")
    browser.wait_for("document.querySelectorAll('#coming li').length === 10")
    assert "09:30:00" in browser.text("#coming li")
    browser.fill('[id="f-callback.url"]', f"{up.url}/demo/echo")
    browser.click("main form button.primary")
    confirm(browser)
    here = f"{up.url}/console/schedules/default/clicked"
    assert browser.url == here
    for verb, told in (
        ("disable", "It is disabled."),
        ("enable", "It is enabled."),
        ("run", "It is called now."),
        ("delete", "The schedule clicked is deleted."),
    ):
        browser.open(here)
        browser.click(f'a[href$="/clicked/{verb}"]')
        confirm(browser)
        assert browser.text(".notice") == told
    assert browser.errors == []
