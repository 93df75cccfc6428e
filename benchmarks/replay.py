"""An engine that answers at once: `python -m benchmarks.replay PORT [TOKENS]`. What is left of a call's time is the proxy's.

It speaks the routes that the gateway and LiteLLM use, on a bare asyncio protocol so that its own cost stays far below
theirs. The prompt's ids are its bytes; every completion is the same.
"""

import asyncio
import sys
from typing import Any

import orjson

BASE = 16  # the first byte's id
END, OPEN = 2, 3  # of a turn
LOGPROB: dict[str, Any] = {"logprob": -0.5, "bytes": None, "top_logprobs": []}


class Replay(asyncio.Protocol):
    """One connection: requests in order, each answered when its body is complete."""

    def __init__(self, tokens: int) -> None:
        # One id per byte, so a conversation that is rendered again has the ids that were sampled, as with most turns of
        # a real tokenizer.
        self._text = ("answer " * tokens)[: tokens - 1]
        self._ids = [*(BASE + byte for byte in self._text.encode()), END]
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            size = int(headers.get("content-length", 0))
            if len(self._buffer) < end + 4 + size:
                return
            body = bytes(self._buffer[end + 4 : end + 4 + size])
            del self._buffer[: end + 4 + size]
            self._answer(head[0].split(" ")[1].partition("?")[0], orjson.loads(body) if body else {})

    def _answer(self, path: str, body: dict[str, Any]) -> None:
        if path.startswith(("/v1/chat", "/inference")) and not body:  # asked only whether the route is there
            self._send(b'{"error": "no body"}', b"application/json", b"400 Bad Request")
        elif body.get("stream") and "generate_chunk" not in body:
            events = self._chat_events(body) if path.endswith("completions") else self._generation_events(body)
            payload = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n"
            self._send(payload, b"text/event-stream")
        else:
            self._send(orjson.dumps(self._whole(path, body)), b"application/json")

    def _send(self, payload: bytes, kind: bytes, status: bytes = b"200 OK") -> None:
        assert self._transport is not None
        head = b"HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (status, kind, len(payload))
        self._transport.write(head + payload)

    def _whole(self, path: str, body: dict[str, Any]) -> Any:
        if path.endswith("/derender"):
            return self._derendered(body)
        if path.endswith("/render"):
            return {"token_ids": rendered(body), "sampling_params": {"temperature": 1.0, "max_tokens": len(self._ids)}}
        if path.endswith("/generate"):
            told = {"text": self._text} if body.get("output_mode") == "text" else {}
            return {"choices": [{**self._choice(self._ids, "stop"), **told}]}
        if path.endswith("/chat/completions"):
            message = {"role": "assistant", "content": self._text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            size = len(self._ids)
            usage = {"prompt_tokens": 1, "completion_tokens": size, "total_tokens": 1 + size}
            return {**_head("chat.completion"), "choices": [choice], "usage": usage}
        if path == "/detokenize":
            return {"prompt": decoded(body["tokens"])}
        return {
            "/version": {"version": "replay"},
            "/weight_info": {"weight_version": "1"},
            "/v1/models": {"object": "list", "data": [{"id": "replay", "object": "model", "max_model_len": 4096}]},
        }.get(path, {})

    def _derendered(self, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("stream"):
            delta = {"content": "answer " * (len(body["generate_chunk"]["choices"][0]["token_ids"]) // 4)}
            return {"chunk": {"choices": [{"index": 0, "delta": delta}]}, "stream_state": {}}
        said = decoded(body["generate_response"]["choices"][0]["token_ids"])
        return {"choices": [{"index": 0, "message": {"role": "assistant", "content": said}, "logprobs": None}]}

    def _choice(self, ids: list[int], finish: str | None) -> dict[str, Any]:
        content: list[dict[str, Any]] = [
            {"token": f"token_id:{one}", "logprob": -0.5, "bytes": None, "top_logprobs": []} for one in ids
        ]
        spans = [{"version": "1", "start": 0, "end": len(ids)}]
        return {"index": 0, "token_ids": ids, "logprobs": {"content": content}, "finish_reason": finish,
                "stop_reason": None, "weight_versions": spans}  # fmt: skip

    def _generation_events(self, body: dict[str, Any]) -> list[Any]:
        whole = [{"choices": [self._choice([one], None)]} for one in self._ids]
        for n, chunk in enumerate(whole):
            if body.get("output_mode") == "text":
                chunk["choices"][0]["text"] = self._text[n : n + 1]
            chunk["choices"][0]["weight_versions"] = [{"version": "1", "start": n, "end": n + 1}]
        whole[-1]["choices"][0]["finish_reason"] = "stop"
        return whole

    def _chat_events(self, body: dict[str, Any]) -> list[Any]:
        head = _head("chat.completion.chunk")
        deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
        deltas += [({"content": "answ"}, None) for _ in self._ids]
        deltas += [({}, "stop")]
        return [{**head, "choices": [{"index": 0, "delta": d, "finish_reason": f}]} for d, f in deltas]


def rendered(body: dict[str, Any]) -> list[int]:
    """Byte ids of the conversation, each turn between OPEN and END."""
    ids: list[int] = []
    for message in body["messages"]:
        ids += [OPEN, *(BASE + byte for byte in str(message.get("content") or "").encode()), END]
    if body.get("continue_final_message"):
        return ids[:-1]
    return ids if body.get("add_generation_prompt") is False else [*ids, OPEN]


def decoded(ids: list[int]) -> str:
    return "".join(chr(one - BASE) if one >= BASE else f"<{one}>" for one in ids)


def _head(kind: str) -> dict[str, Any]:
    return {"id": "replay", "object": kind, "created": 0, "model": "replay"}


async def main(port: int, tokens: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Replay(tokens), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 64))
