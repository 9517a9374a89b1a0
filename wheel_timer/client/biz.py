"""The calls on biz_types: configuration, pause, what stands in them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from wheel_timer.biz import BizTypeOut
from wheel_timer.callback import Mark
from wheel_timer.client.call import Call, query_of, reader, segment
from wheel_timer.client.operations import OPERATION, Operation
from wheel_timer.client.results import Page

# One signed call to the endpoint, however long the biz_type lets it take.
TEST_TIMEOUT_S: Final = 620.0


class BizVersion(msgspec.Struct, frozen=True):
    """A version of a biz_type, and whose doing it was. biz_type: None where it was deleted."""

    version: int
    time: datetime
    actor: str
    action: str
    biz_type: BizTypeOut | None = None


class RotatedSecret(msgspec.Struct, frozen=True):
    """secret: in clear where the server made it, and never again. previous_until: of the old."""

    biz_type: str
    version: int
    secret: str | Mark
    previous_until: datetime | None = None

    def __repr__(self) -> str:
        return f"RotatedSecret({self.biz_type!r}, version={self.version})"


_BIZ: Final = reader(BizTypeOut)
_PAGE: Final = reader(Page[BizTypeOut])
_OBJECT: Final = reader(dict[str, Any])
_VERSIONS: Final = reader(Page[BizVersion])
_ROTATED: Final = reader(RotatedSecret)


def get(name: str) -> Call[BizTypeOut]:
    """GET of a biz_type."""
    return Call(method="GET", path=_path(name), read=_BIZ)


def put(name: str, settings: Mapping[str, Any], version: int | None) -> Call[BizTypeOut]:
    """PUT: the whole configuration; what is left out has its default."""
    return _write("PUT", name, settings, version)


def patch(name: str, settings: Mapping[str, Any], version: int | None) -> Call[BizTypeOut]:
    """PATCH: what is given is changed, None goes back to the default."""
    return _write("PATCH", name, settings, version)


def _begun(body: bytes) -> Operation | None:
    return OPERATION(body) if body else None


def delete(name: str, *, purge: bool, version: int | None) -> Call[Operation | None]:
    """DELETE of a biz_type; with purge its tasks go with it, by an operation."""
    return Call(
        method="DELETE",
        path=_path(name),
        query=query_of({"purge": purge or None}),
        headers=_if_match(version),
        read=_begun,
        is_repeatable=False,
    )


def page(limit: int | None, cursor: str | None) -> Call[Page[BizTypeOut]]:
    """GET of one page of biz_types."""
    query = query_of({"limit": limit, "cursor": cursor})
    return Call(method="GET", path="/v1/biz", query=query, read=_PAGE)


def history(name: str, limit: int | None, cursor: str | None) -> Call[Page[BizVersion]]:
    """GET of one page of a biz_type's versions, newest first."""
    query = query_of({"limit": limit, "cursor": cursor})
    return Call(method="GET", path=f"{_path(name)}/history", query=query, read=_VERSIONS)


def pause(name: str) -> Call[BizTypeOut]:
    """POST .../pause: nothing of it is called, submits go on."""
    return Call(method="POST", path=f"{_path(name)}/pause", read=_BIZ)


def resume(name: str) -> Call[BizTypeOut]:
    """POST .../resume."""
    return Call(method="POST", path=f"{_path(name)}/resume", read=_BIZ)


def purge(name: str) -> Call[Operation]:
    """POST .../purge: deletes every task, by an operation."""
    return Call(method="POST", path=f"{_path(name)}/purge", read=OPERATION, is_repeatable=False)


def test(name: str) -> Call[dict[str, Any]]:
    """POST .../test: one signed call now; the request, the address, the answer, the timings."""
    return Call(
        method="POST",
        path=f"{_path(name)}/test",
        read=_OBJECT,
        is_repeatable=False,
        timeout_s=TEST_TIMEOUT_S,
    )


def rotate_secret(name: str, secret: str | None, grace: float | None) -> Call[RotatedSecret]:
    """POST .../rotate-secret: signed by both for grace seconds."""
    body = {"secret": secret, "grace": grace}
    return Call(
        method="POST",
        path=f"{_path(name)}/rotate-secret",
        body=msgspec.json.encode({k: v for k, v in body.items() if v is not None}),
        read=_ROTATED,
        is_repeatable=secret is not None,
    )


def stats(name: str) -> Call[dict[str, Any]]:
    """GET .../stats."""
    return Call(method="GET", path=f"{_path(name)}/stats", read=_OBJECT)


def _write(
    method: str, name: str, settings: Mapping[str, Any], version: int | None
) -> Call[BizTypeOut]:
    return Call(
        method=method,
        path=_path(name),
        body=msgspec.json.encode(dict(settings)),
        headers=_if_match(version),
        read=_BIZ,
        # With a version the second of two would find the first one's.
        is_repeatable=version is None,
    )


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"if-match": f'"{version}"'}


def _path(name: str) -> str:
    return f"/v1/biz/{segment(name)}"
