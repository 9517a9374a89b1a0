"""
The server as a client command sees it: one request, and a JSON answer or a Failure.

No retries: a submit whose answer was lost may be in, and only the caller knows its biz_id.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx
import msgspec

from wheel_timer.cli.exits import NO, REFUSED, UNREACHABLE, USAGE, Failure

NO_CONTENT: Final = 204
CONNECT_S: Final = 2.0
TOTAL_S: Final = 10.0
_KEY_HINT: Final = "give a key by --key-file FILE, or WHEEL_TIMER_KEY_FILE"


class Server:
    """One server by its URL; `with Server(url, key) as server`."""

    def __init__(self, url: str, key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise Failure(f"{url!r} is no http:// or https:// URL", USAGE)
        self.url = url.rstrip("/")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(headers=headers)

    def get(self, path: str, total_s: float = TOTAL_S, /, **query: str | int) -> Any:
        """GET the path below the URL, waiting up to total_s; 404 is a Failure of exit code 1."""
        return self._ask("GET", path, params=query or None, total_s=total_s)

    def text(self, path: str) -> str:
        """GET the path below the URL; the answer's text, whatever it holds."""
        answer = self._request("GET", path)
        if not answer.is_success:
            _decoded(answer)
        return answer.text

    def post(self, path: str, body: object, *, total_s: float = TOTAL_S) -> Any:
        """POST body as JSON, and wait up to total_s."""
        return self._ask("POST", path, content=msgspec.json.encode(body), total_s=total_s)

    def put(self, path: str, body: object) -> Any:
        """PUT with body as JSON."""
        return self._ask("PUT", path, content=msgspec.json.encode(body))

    def patch(self, path: str, body: object) -> Any:
        """PATCH with body as JSON."""
        return self._ask("PATCH", path, content=msgspec.json.encode(body))

    def delete(self, path: str, **query: str | int) -> Any:
        """DELETE the path below the URL."""
        return self._ask("DELETE", path, params=query or None)

    def lines(self, path: str, **query: str) -> Iterator[str]:
        """GET an answer of any length, line by line; each part is waited for TOTAL_S."""
        timeout = httpx.Timeout(TOTAL_S, connect=CONNECT_S)
        try:
            with self._http.stream("GET", self.url + path, params=query, timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    _decoded(answer)
                yield from answer.iter_lines()
        except httpx.RemoteProtocolError as error:
            raise Failure(
                f"{self.url}: the answer broke off, and is not whole ({_cause(error)})", UNREACHABLE
            ) from None
        except httpx.HTTPError as error:
            raise self._unreachable("GET", error) from None

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str | int] | None = None,
        content: bytes | None = None,
        total_s: float = TOTAL_S,
    ) -> Any:
        return _decoded(self._request(method, path, params, content, total_s))

    def _request(
        self,
        method: str,
        path: str,
        params: dict[str, str | int] | None = None,
        content: bytes | None = None,
        total_s: float = TOTAL_S,
    ) -> httpx.Response:
        headers = {"content-type": "application/json"} if content is not None else {}
        try:
            return self._http.request(
                method,
                self.url + path,
                params=params,
                content=content,
                headers=headers,
                timeout=httpx.Timeout(total_s, connect=CONNECT_S),
            )
        except httpx.HTTPError as error:
            raise self._unreachable(method, error) from None

    def _unreachable(self, method: str, error: httpx.HTTPError) -> Failure:
        if isinstance(error, httpx.ConnectError):
            return Failure(
                f"nothing answers at {self.url} ({_cause(error)})",
                UNREACHABLE,
                hint="start one with `wheel-timer up`, or name it by --url",
            )
        sent = " (whether the request took effect is unknown)" if method != "GET" else ""
        return Failure(f"{self.url}: {_cause(error)}{sent}", UNREACHABLE)


def _decoded(answer: httpx.Response) -> Any:
    try:
        body = msgspec.json.decode(answer.content) if answer.content else None
    except msgspec.DecodeError:
        body = None
    if answer.is_success:
        if body is None and answer.status_code != NO_CONTENT:
            raise Failure(f"{answer.url} is not a wheel-timer server: no JSON", UNREACHABLE)
        return body
    problem = body if isinstance(body, dict) and "title" in body else None
    raise Failure(
        _told(answer.status_code, problem),
        _exit_code(answer.status_code),
        hint=_KEY_HINT if answer.status_code == 401 else None,
        problem=problem,
    )


def _told(status: int, problem: dict[str, Any] | None) -> str:
    """`422 Invalid request: start_time is before the year 2000 (#/start_time)`."""
    if problem is None:
        return f"the server answered {status}"
    errors = [
        f"{error.get('detail')} ({error.get('pointer')})" for error in problem.get("errors") or ()
    ]
    detail = "; ".join(errors) or problem.get("detail")
    return f"{status} {problem['title']}" + (f": {detail}" if detail else "")


def _exit_code(status: int) -> int:
    if status >= 500:
        return UNREACHABLE
    return NO if status == 404 else REFUSED


def _cause(error: Exception) -> str:
    """`Connection refused`, without the errno in front of it."""
    text = str(error) or type(error).__name__
    return text.split("] ", 1)[-1]
