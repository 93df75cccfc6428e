"""The document says what the routes take, and the page shows it without anything from elsewhere."""

import re

from sandboxes.gateway.errors import ErrorBody
from sandboxes.gateway.http.endpoints import Endpoint


async def test_every_route_is_in_the_document_with_its_body_key_and_errors(start):
    async with start() as stack:
        document = (await stack.http.get("/openapi.json")).json()
        routes = stack.gateway.app().routes
    assert document["openapi"].startswith("3.1")
    assert all(isinstance(route, Endpoint) for route in routes)
    told = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
    assert told == {(route.method, re.sub(r":\w+}", "}", route.path)) for route in routes}
    chat = document["paths"]["/v1/chat/completions"]["post"]
    assert chat["security"] == [{"modelKey": []}]
    assert chat["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/ChatRequest")
    assert "text/event-stream" in chat["responses"]["200"]["content"]
    for operations in document["paths"].values():
        for operation in operations.values():
            assert {"200", "400", "500"} <= set(operation["responses"])


async def test_the_shape_a_dialect_documents_is_the_shape_it_validates_with(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        for endpoint in stack.gateway.endpoints():
            if endpoint.body is None:
                continue
            key = {"operator": stack.gateway.operator_key, "reward": session.reward_key}.get(endpoint.key)
            answer = await stack.post(endpoint.path, key or session.api_key, {"no such field": 1})
            assert answer.status_code == 400, endpoint.path
            known = [name for name in endpoint.body.model_fields if name not in answer.text]
            assert not known, f"{endpoint.path} does not name {known}"


async def test_the_page_shows_every_route_and_fetches_nothing(start):
    async with start() as stack:
        document = (await stack.http.get("/openapi.json")).json()
        answer = await stack.http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "<script" not in answer.text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", answer.text)
    assert all(path in answer.text for path in document["paths"])


async def test_what_no_route_takes_is_an_error_in_the_documented_form(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        answers = {
            404: await stack.http.get("/nowhere"),
            405: await stack.http.get("/v1/chat/completions"),
            400: await stack.post("/v1/chat/completions?top=1", session.api_key, {}),
            431: await stack.http.get("/health", headers={"x-long": "x" * 40_000}),
        }
        many = await stack.http.get("/health", headers=[(f"x-{n}", "1") for n in range(120)])
        whole = await stack.post("/v1/chat/completions/", session.api_key, {})
    for status, answer in answers.items():
        assert answer.status_code == status
        ErrorBody.model_validate(answer.json())
    assert answers[405].headers["allow"] == "POST"
    assert "'top'" in answers[400].json()["error"]["message"]
    assert (many.status_code, whole.status_code) == (431, 404)
