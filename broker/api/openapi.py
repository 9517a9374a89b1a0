"""
The OpenAPI 3.1 document, made from the operations and from the very types that validate. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from broker.api.operation import Answer, Described
from broker.api.problems import KINDS, MEDIA_TYPE
from wheel_timer.biz import BIZ_TYPE_PATTERN
from wheel_timer.version import __version__

_REFERENCE: Final = "#/components/schemas/{name}"
# Problems that every operation of /v1 can be answered with.
_EVERYWHERE: Final = ("invalid-request", "unauthorized", "forbidden")
_PARAMETERS: Final = {
    "task_id": ({"type": "string", "format": "uuid"}, "as a submit has returned it"),
    "biz_type": (
        {"type": "string", "pattern": f"^{BIZ_TYPE_PATTERN}$"},
        "the name of a line of business",
    ),
    "biz_id": (
        {"type": "string", "minLength": 1, "maxLength": 256},
        "the business's own id, percent-encoded as one segment",
    ),
    "key_id": ({"type": "string"}, "the part of a key between the underscores"),
    "operation_id": ({"type": "string", "format": "uuid"}, "as its start has returned it"),
    "name": ({"type": "string"}, "the last part of a problem's type"),
}


class FieldProblem(Struct):
    """One thing wrong. pointer: a JSON pointer into the body, such as #/tasks/3/start_time."""

    detail: str
    pointer: str


class Problem(Struct):
    """
    RFC 9457. type: /problems/NAME, where it is explained. Some carry more members:
    committed_lines (NDJSON), task_id and task_status (key-exists), task (task-delivering,
    task-settled).
    """

    type: str
    title: str
    status: int
    detail: str
    request_id: str | UnsetType = UNSET
    errors: list[FieldProblem] | UnsetType = UNSET


def document(operations: Sequence[Described]) -> dict[str, Any]:
    """The whole document."""
    types = _types(operations)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            operation, by_type
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "wheel-timer",
            "version": __version__,
            "summary": "Set a timer, get an HTTP callback when it is due.",
            "description": "Every error is a problem document (RFC 9457) whose type is explained "
            "at /problems. Times go in as epoch seconds or RFC 3339 with an offset and come out "
            "as RFC 3339 UTC with milliseconds. Unknown fields and query names are refused.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "needed where the server has an ADMIN_KEY",
                }
            },
        },
    }


def _types(operations: Sequence[Described]) -> list[Any]:
    types: list[Any] = [Problem]
    for operation in operations:
        for body in (*operation.takes.values(), *(a.body for a in operation.answers.values())):
            types += [one for one in _alternatives(body) if one not in types]
    return types


def _alternatives(body: Any) -> Sequence[Any]:
    """The types of a body: none, one, or several."""
    if body is None:
        return ()
    return body if isinstance(body, tuple) else (body,)


def _operation(operation: Described, by_type: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "security": _security(operation),
        "responses": _responses(operation, by_type),
    }
    if operation.text:
        described["description"] = operation.text
    parameters = [*_path_parameters(operation.path)]
    parameters += [
        {"name": name, "in": "query", "description": text, "schema": schema}
        for name, (schema, text) in operation.query.items()
    ]
    parameters += [
        {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}
        for name, text in operation.headers.items()
    ]
    if parameters:
        described["parameters"] = parameters
    if operation.takes:
        described["requestBody"] = {
            "required": operation.needs_body,
            "content": {
                media_type: {"schema": by_type[body]}
                for media_type, body in operation.takes.items()
            },
        }
    return described


def _security(operation: Described) -> list[dict[str, list[str]]]:
    """Nothing where the server has no keys, else a key with one of the scopes."""
    any_of: list[dict[str, list[str]]] = [{"key": [scope]} for scope in operation.scopes]
    return [{}, *any_of] if any_of else []


def _path_parameters(path: str) -> Iterable[dict[str, Any]]:
    for segment in path.split("/"):
        if segment.startswith("{"):
            name = segment.strip("{}")
            schema, text = _PARAMETERS[name]
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "description": text,
                "schema": schema,
            }


def _responses(operation: Described, by_type: dict[Any, Any]) -> dict[str, Any]:
    responses = {
        str(status): _good(answer, by_type) for status, answer in operation.answers.items()
    }
    names = list(operation.problems)
    if operation.path.startswith("/v1/"):
        names += [name for name in _EVERYWHERE if name not in names]
    by_status: dict[int, list[str]] = {}
    for name in names:
        by_status.setdefault(KINDS[name].status, []).append(name)
    if operation.takes:
        by_status.setdefault(400, []).append("invalid-request")
        by_status.setdefault(415, []).append("invalid-request")
    for status, kinds in sorted(by_status.items()):
        responses[str(status)] = _bad(status, kinds)
    return responses


def _good(answer: Answer, by_type: dict[Any, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": answer.text}
    schemas = [by_type[one] for one in _alternatives(answer.body)]
    if schemas:
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        good["content"] = {answer.media_type: {"schema": schema}}
    if answer.headers:
        good["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in answer.headers.items()
        }
    return good


def _bad(status: int, kinds: Sequence[str]) -> dict[str, Any]:
    if status in (400, 415):
        text = "not JSON" if status == 400 else "a media type or coding that is not taken"
    else:
        text = "; ".join(f"{kind}: {KINDS[kind].title}" for kind in kinds)
    bad: dict[str, Any] = {
        "description": text,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    headers = {401: "WWW-Authenticate", 503: "Retry-After"}
    if status in headers:
        bad["headers"] = {headers[status]: {"schema": {"type": "string"}}}
    return bad
