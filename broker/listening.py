"""
How much of an answer is listened to.

Headers, their number and a body are bounded where they are read; what a receiver can send without
end beside them is not: interim answers (1xx), empty lines, the extensions of chunks. aiohttp works
through the first of these without ever giving way, so one such receiver would hold up every other
callback of its broker, past all deadlines. Hence a bound for all that comes before an answer ends.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp.client_exceptions import ClientPayloadError
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader

# A few are sent by servers that mean well: 100 Continue, 103 Early Hints, 102 while they work.
INTERIM_ANSWERS_MAX: Final = 16
# A quarter of a megabyte of them, read at once, would be ten thousand.
PIECE_BYTES: Final = 4_096
# As many headers as are taken, as long as they may be, and a body twice as long as is read.
ANSWER_BYTES_MAX: Final = 2 * 1024 * 1024


class Listener(ResponseHandler):
    """One connection to a receiver; it is dropped when the answer to a request has no end."""

    _interim = 0
    _received = 0
    _is_headed = False

    def set_response_params(self, **params: Any) -> None:
        """A request is about to go out: what comes now is counted for its answer."""
        self._interim = self._received = 0
        self._is_headed = False
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Bytes came. Before the head is there they are looked at in pieces: see PIECE_BYTES."""
        self._received += len(data)
        if self._received > ANSWER_BYTES_MAX:
            self._stop()
            return
        while len(data) > PIECE_BYTES and not self._is_headed and self.is_connected():
            super().data_received(data[:PIECE_BYTES])
            data = data[PIECE_BYTES:]
        if self.is_connected():
            super().data_received(data)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """The head of an answer came."""
        if data[0].code < 200:
            self._interim += 1
        else:
            self._is_headed = True
        if self._interim > INTERIM_ANSWERS_MAX:
            self._stop()
        else:
            super().feed_data(data, size)

    def _stop(self) -> None:
        if not self.is_connected():
            return
        assert self.transport is not None
        self.transport.abort()
        self.set_exception(HttpProcessingError(code=0, message="an answer without end"))
        if self._payload is not None:
            self._payload.set_exception(ClientPayloadError("an answer without end"))
