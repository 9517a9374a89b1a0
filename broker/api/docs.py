"""
/docs: the OpenAPI document as one page of HTML, made here; no script, no outside host. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

_CODE: Final = re.compile(r"`([^`]+)`")
_STYLE: Final = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--dim:light-dark(#555,#aaa);
--accent:light-dark(#0550ae,#79b8ff)}
*{box-sizing:border-box}
body{margin:0 auto;max-width:62rem;padding:1.5rem;font:16px/1.55 system-ui,sans-serif}
h1{margin:.2rem 0}h2{margin:2.5rem 0 .5rem;padding-top:.5rem;border-top:1px solid var(--line)}
h3{margin:1.2rem 0 .3rem;font-size:1rem}a{color:var(--accent)}
code,pre,.path{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.9em}
code{background:var(--soft);padding:.1em .3em;border-radius:4px}
pre{background:var(--soft);padding:.8rem;border-radius:6px;overflow-x:auto}
pre code{background:none;padding:0}
table{border-collapse:collapse;width:100%}
th{text-align:left;color:var(--dim);font-weight:600;font-size:.85rem}
td,th{border-bottom:1px solid var(--line);padding:.35rem .6rem .35rem 0;vertical-align:top}
td:first-child{white-space:nowrap}.scroll{overflow-x:auto}
.method{display:inline-block;min-width:3.6rem;text-align:center;border-radius:4px;
padding:0 .4rem;margin-right:.5rem;font:700 .8rem ui-monospace,monospace;color:#fff;
background:#57606a}
.get{background:#0969da}.post{background:#1a7f37}.put{background:#9a6700}
.dim{color:var(--dim)}.needed{color:light-dark(#b3261e,#ff8b82);font-size:.8rem}
nav ul{list-style:none;padding:0}nav li{margin:.3rem 0}nav a{text-decoration:none}
"""
_EXAMPLE: Final = """curl -i http://127.0.0.1:8080/v1/tasks \\
  -H 'content-type: application/json' \\
  -d '{"biz_type": "default", "biz_id": "order-42", "delay": 1800,
       "biz_data": {"order": 42}}'"""


def rendered(document: Mapping[str, Any]) -> bytes:
    """The page of an OpenAPI document."""
    info = document["info"]
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = document["components"]["schemas"]
    parts = [
        f'<p>{with_code(info["summary"])} <span class="dim">Version {escape(info["version"])}, '
        'the same as <a href="/openapi.json">openapi.json</a>.</span></p>',
        f"<p>{with_code(info['description'])} See <a href='/problems'>/problems</a>.</p>",
        f"<pre><code>{escape(_EXAMPLE)}</code></pre>",
        "<nav><h2>Calls</h2><ul>",
        *(
            f'<li><a href="#{operation["operationId"]}">{_badge(method)}'
            f'<span class="path">{escape(path)}</span></a> '
            f'<span class="dim">{with_code(operation["summary"])}</span></li>'
            for method, path, operation in operations
        ),
        "</ul></nav>",
        *(_operation(method, path, operation) for method, path, operation in operations),
        "<h2>Types</h2>",
        *(_schema(name, schema) for name, schema in sorted(schemas.items())),
    ]
    return page("wheel-timer API", "\n".join(parts))


def page(title: str, body: str) -> bytes:
    """A whole HTML page. body: HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    ).encode()


def with_code(text: str) -> str:
    """Plain text as HTML, what stands in backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def _badge(method: str) -> str:
    return f'<span class="method {method}">{method.upper()}</span>'


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [
        f'<section id="{operation["operationId"]}"><h2>{_badge(method)}'
        f'<span class="path">{escape(path)}</span></h2>',
        f"<p><b>{with_code(operation['summary'])}.</b> "
        f"{with_code(operation.get('description', ''))}</p>",
    ]
    if parameters := operation.get("parameters"):
        rows = [
            (
                f"<code>{escape(one['name'])}</code>",
                f"{one['in']}, {_type(one['schema'])}",
                with_code(one["description"]),
            )
            for one in parameters
        ]
        parts += ["<h3>Parameters</h3>", _table(("name", "where", ""), rows)]
    if body := operation.get("requestBody"):
        bodies = [
            (f"<code>{escape(media)}</code>", _type(content["schema"]))
            for media, content in body["content"].items()
        ]
        parts += ["<h3>Body</h3>", _table(("media type", "type"), bodies)]
    rows = [
        (f"<code>{status}</code>", with_code(answer["description"]), _contents(answer))
        for status, answer in operation["responses"].items()
    ]
    parts += ["<h3>Answers</h3>", _table(("status", "meaning", "body"), rows), "</section>"]
    return "\n".join(parts)


def _contents(answer: Mapping[str, Any]) -> str:
    contents = [_type(content["schema"]) for content in answer.get("content", {}).values()]
    if headers := answer.get("headers"):
        contents.append(f'<span class="dim">headers: {escape(", ".join(headers))}</span>')
    return "<br>".join(contents)


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", [])
    rows = [
        (
            f"<code>{escape(field)}</code>"
            + (' <span class="needed">needed</span>' if field in needed else ""),
            _type(one),
            _notes(one),
        )
        for field, one in schema.get("properties", {}).items()
    ]
    return (
        f'<section id="type-{name}"><h3><code>{escape(name)}</code></h3>'
        f"<p>{with_code(schema.get('description', ''))}</p>"
        f"{_table(('field', 'type', ''), rows)}</section>"
    )


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words of HTML."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#type-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(json.dumps(one))}</code>" for one in schema["enum"])
    kind = schema.get("type", "any JSON")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties'])}"
    return escape(str(schema.get("format", kind)))


def _notes(schema: Mapping[str, Any]) -> str:
    """Description, limits and default of a field."""
    alternatives = [schema, *schema.get("anyOf", [])]
    notes = [with_code(one["description"]) for one in alternatives if "description" in one]
    notes += [limit for one in alternatives for limit in _limits(one)]
    if "default" in schema and schema["default"] is not None:
        notes.append(f"default <code>{escape(json.dumps(schema['default']))}</code>")
    return "; ".join(notes)


def _limits(schema: Mapping[str, Any]) -> Iterable[str]:
    signs = {
        "minimum": "at least",
        "maximum": "at most",
        "exclusiveMinimum": "more than",
        "minLength": "characters, at least",
        "maxLength": "characters, at most",
        "minItems": "items, at least",
        "maxItems": "items, at most",
        "pattern": "matches",
    }
    for key, words in signs.items():
        if key in schema:
            yield f"{words} <code>{escape(str(schema[key]))}</code>"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Cells are HTML."""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
