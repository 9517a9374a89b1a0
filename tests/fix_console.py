"""The console as a person without JavaScript uses it: pages are read, forms are sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx


@dataclass
class Form:
    """A form of a page: where it goes, and what it holds before anybody has typed."""

    method: str
    action: str
    fields: dict[str, str] = field(default_factory=dict)


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._select = ""
        self._area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(given.get("method", "get"), given.get("action", "")))
        elif tag == "select":
            self._select = given.get("name", "")
        elif tag == "textarea":
            self._area = given["name"]
            self.forms[-1].fields[self._area] = ""
        elif tag == "option" and "selected" in given:
            self.forms[-1].fields[self._select] = given["value"]
        elif tag == "input" and "name" in given:
            is_box = given.get("type") in ("checkbox", "radio")
            if not is_box or "checked" in given:
                self.forms[-1].fields[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # A browser takes the line break behind the tag for no part of it.
            text = self.forms[-1].fields[self._area]
            self.forms[-1].fields[self._area] = text.removeprefix("\n")
            self._area = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.forms[-1].fields[self._area] += data


def forms_of(page: str) -> list[Form]:
    """All forms of a page, in their order."""
    parser = _Forms()
    parser.feed(page)
    return parser.forms


def form_to(page: str, action: str) -> Form:
    """The one form of a page that posts there."""
    (found,) = (form for form in forms_of(page) if form.action == action and form.method == "post")
    return found


async def sign_in(http: httpx.AsyncClient, key: str) -> httpx.Response:
    """Sign in; the client has the cookie then. Returns the answer to the key."""
    page = await http.get("/console/sign-in")
    assert page.status_code == 200, page.text
    form = form_to(page.text, "/console/sign-in")
    return await http.post(form.action, data=form.fields | {"key": key})


async def confirm(http: httpx.AsyncClient, path: str) -> httpx.Response:
    """Ask for something, and confirm it on the page that comes. Returns the page after it."""
    asked = await http.get(path)
    assert asked.status_code == 200, asked.text
    form = form_to(asked.text, path.partition("?")[0])
    assert form.fields["step"] == "act", "this page asks for no confirmation"
    done = await http.post(form.action, data=form.fields)
    assert done.status_code == 303, done.text
    return await http.get(done.headers["location"])


def hidden(page: str) -> Iterator[str]:
    """The values of all hidden fields, to be sure of what a page gives away."""
    for form in forms_of(page):
        yield from form.fields.values()
