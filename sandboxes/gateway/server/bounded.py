"""uvicorn's fast HTTP protocol with bounds that httptools and uvicorn lack: on a head that never ends, and on clients that
neither finish their request nor read their answer. Such a client would hold a connection, and its session's place, for ever.
"""

from asyncio import Transport

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

OPEN_HEAD_BYTES = 64 << 10
TOO_LARGE = "431 Request Header Fields Too Large"
TOO_SLOW = "408 Request Timeout"


class Bounded(HttpToolsProtocol):
    """One connection. Where the client exceeds a bound, it is closed and the application sees a disconnect."""

    REQUEST_S = 60.0  # for head and body, from the first byte; for the first byte, from the connection
    STALLED_S = 60.0  # since the client read so little of its answer that what we keep for it is full

    _open_head: int | None = None  # bytes that came since a head began, beyond the first piece
    _request = None  # timers
    _answer = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle_request()
        self._settle_answer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._open_head = 0
        self._expect_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._open_head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._settle_request()
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        open_before = self._open_head is not None
        super().data_received(data)
        if open_before and self._open_head is not None:
            self._open_head += len(data)
            if self._open_head > OPEN_HEAD_BYTES:
                self._open_head = None
                self._refuse(TOO_LARGE)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._settle_answer()
        self._answer = self.loop.call_later(self.STALLED_S, self._abort)

    def resume_writing(self) -> None:
        self._settle_answer()
        super().resume_writing()

    def _expect_request(self) -> None:
        self._settle_request()
        self._request = self.loop.call_later(self.REQUEST_S, self._refuse, TOO_SLOW)

    def _settle_request(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None

    def _settle_answer(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None

    def _refuse(self, status: str) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
        self.transport.close()

    def _abort(self) -> None:
        self.transport.abort()  # `close` would wait for the client to read what is kept
