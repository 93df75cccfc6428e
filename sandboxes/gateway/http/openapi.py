"""The OpenAPI 3.1 document and a page that shows it, made from the routes and the models that validate the bodies.

Starlette with pydantic's `models_json_schema`, not FastAPI: the bodies are read here as bytes (their digest tells a retry,
their size is bounded while they arrive, errors have the dialect's own form), which FastAPI would have to be talked out of.
"""

import re
from collections.abc import Sequence
from html import escape
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from sandboxes.gateway.errors import ErrorBody
from sandboxes.gateway.http.endpoints import Endpoint, Key

KEYS: dict[Key, str] = {
    "none": "no key",
    "operator": "the operator key",
    "metrics": "the metrics key or the operator key",
    "model": "the session's model key",
    "reward": "the session's reward key",
    "session": "the session's model key or reward key",
    "any": "the operator key or one of a session's keys",
}
SCHEMES: dict[Key, tuple[str, ...]] = {
    "none": (),
    "operator": ("operatorKey",),
    "metrics": ("metricsKey", "operatorKey"),
    "model": ("modelKey",),
    "reward": ("rewardKey",),
    "session": ("modelKey", "rewardKey"),
    "any": ("operatorKey", "modelKey", "rewardKey"),
}
HOW = {
    "operatorKey": "Starts and exports sessions. In `<home>/keys/operator`.",
    "metricsKey": "Reads /metrics and nothing else. In `<home>/keys/metrics`.",
    "modelKey": "Calls the model within one session; `api_key` of the answer of /rl/start_session. May go into a box.",
    "rewardKey": "Rewards and ends one session; `reward_key` of the answer. Never goes into a box.",
}
ALWAYS = (400, 431, 500)
BEFORE_ANY_ROUTE = (431, 500)
WITH_KEY = (401, 404, 409, 410, 429, 503)
WITH_BODY = (413,)
ABOUT = """An agent is pointed at this gateway by `base_url` and `api_key`; each call is recorded token by token.

Keys go into `Authorization: Bearer KEY` or `x-api-key`. Unknown fields and query parameters are refused by name. What may
work later carries `x-should-retry: true` and `Retry-After`."""


def document(endpoints: Sequence[Endpoint], version: str, model: str) -> dict[str, Any]:
    """The whole document. `model`: the served model's name, the only one that bodies may ask for."""
    models: list[type[BaseModel]] = [ErrorBody]
    for endpoint in endpoints:
        models += [shape for shape in (endpoint.body, endpoint.errors) if shape is not None and shape not in models]
    refs, definitions = models_json_schema(
        [(shape, "validation") for shape in models], ref_template="#/components/schemas/{model}"
    )
    schema = {shape: refs[shape, "validation"] for shape in models}
    for schemas in definitions.get("$defs", {}).values():
        if schemas.get("properties", {}).get("model", {}).get("type") == "string":
            schemas["properties"]["model"] = {"const": model}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operations = paths.setdefault(re.sub(r":\w+}", "}", endpoint.path), {})
        operations[endpoint.method.lower()] = _operation(endpoint, schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lakeloop gateway", "version": version, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": text} for name, text in HOW.items()
            },
        },
    }


def _operation(endpoint: Endpoint, schema: dict[type[BaseModel], Any]) -> dict[str, Any]:
    ok: dict[str, Any] = {endpoint.media: {"schema": {"type": "string"} if "text" in endpoint.media else {}}}
    if endpoint.streams:
        ok["text/event-stream"] = {"schema": {}}  # of one event
    statuses = [*ALWAYS, *(WITH_KEY if endpoint.key != "none" else ()), *(WITH_BODY if endpoint.body else ())]
    wrong = {code: {"application/json": {"schema": schema[endpoint.errors]}} for code in statuses}
    wrong |= {code: {"application/json": {"schema": schema[ErrorBody]}} for code in BEFORE_ANY_ROUTE}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "description": f"Needs {KEYS[endpoint.key]}.",
        "operationId": f"{endpoint.method} {endpoint.path}".lower(),
        "security": [{scheme: []} for scheme in SCHEMES[endpoint.key]],
        "responses": {
            "200": {"description": "OK", "content": ok},
            **{
                str(code): {"description": HTTPStatus(code).phrase, "content": wrong[code]} for code in sorted(statuses)
            },
        },
    }
    named = [(name, "path", True) for name in endpoint.param_convertors]
    named += [(name, "query", False) for name in sorted(endpoint.query)]
    if named:
        operation["parameters"] = [
            {"name": name, "in": where, "required": required, "schema": {"type": "string"}}
            for name, where, required in named
        ]
    if endpoint.body is not None:
        content = {"application/json": {"schema": schema[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
code,summary{font-family:ui-monospace,monospace}details{border:1px solid #ddd;border-radius:6px;margin:.4rem 0;padding:.4rem .8rem}
table{border-collapse:collapse}td,th{text-align:left;vertical-align:top;padding:.15rem .8rem .15rem 0}b{display:inline-block;
width:3.2rem}pre{white-space:pre-wrap}.dim{color:#777}"""


def page(document: dict[str, Any]) -> str:
    """The document as one HTML page: no script, nothing fetched."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(document['info']['title'])}</title>"
        f"<style>{STYLE}</style><h1>{escape(document['info']['title'])}</h1>"
        f"<pre>{escape(document['info']['description'])}</pre>"
        "<p>As a document for programs: <a href=openapi.json>openapi.json</a></p><h2>Routes</h2>"
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(_shown(path, method, operation))
    parts.append("<h2>Bodies and errors</h2>")
    for name, schema in document["components"]["schemas"].items():
        parts.append(_model(name, schema))
    return "".join(parts)


def _shown(path: str, method: str, operation: dict[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    errors = [code for code in operation["responses"] if code != "200"]
    wrong = operation["responses"]["400"]["content"]["application/json"]["schema"]
    return (
        f"<details><summary><b>{method.upper()}</b> {escape(path)} <span class=dim>{escape(operation['summary'])}</span>"
        f"</summary><p>{escape(operation['description'])}</p>"
        + (f"<p>Body: {_type(body)}</p>" if body else "")
        + f"<p>Answers: {escape(', '.join(operation['responses']['200']['content']))}. "
        f"Errors: {', '.join(errors)} as {_type(wrong)}</p></details>"
    )


def _model(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", []))
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code>{' *' if field in required else ''}<td>{_type(shape)}"
        for field, shape in schema.get("properties", {}).items()
    )
    about = f"<p>{escape(schema['description'])}</p>" if "description" in schema else ""
    shape = f"<table>{rows}</table>" if rows else _type(schema)
    return f"<details id={escape(name)}><summary>{escape(name)}</summary>{about}{shape}</details>"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href=#{name}>{name}</a>"
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(_type(one) for one in schema[union])
    if "enum" in schema or "const" in schema:
        return escape(" | ".join(repr(one) for one in schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "anything")))
