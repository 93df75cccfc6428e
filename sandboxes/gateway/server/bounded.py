"""uvicorn's fast HTTP protocol with a bound on a head that never ends; httptools itself has none."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

OPEN_HEAD_BYTES = 64 << 10
ANSWER = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedHead(HttpToolsProtocol):
    """One connection."""

    _open_head: int | None = None  # bytes that came since a head began, beyond the first piece

    def on_message_begin(self) -> None:
        self._open_head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._open_head = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        open_before = self._open_head is not None
        super().data_received(data)
        if open_before and self._open_head is not None:
            self._open_head += len(data)
            if self._open_head > OPEN_HEAD_BYTES:
                self._open_head = None
                self.transport.write(ANSWER)
                self.transport.close()
