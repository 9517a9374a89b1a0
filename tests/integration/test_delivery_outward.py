"""TLS as receivers really have it, and callbacks by way of a proxy."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from broker.guard import Guard
from broker.outward import Outward, outward_of
from tests.fix_endpoint import Endpoint
from tests.integration.test_delivery_http import Caller
from wheel_timer.errors import StartRefused
from wheel_timer.settings import Settings


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


def outward(**settings: Any) -> Outward:
    return outward_of(Settings.load({k: str(v) for k, v in settings.items()}, None, {}))


@asynccontextmanager
async def serving(
    authority: trustme.CA, *names: str, client_ca: trustme.CA | None = None
) -> AsyncIterator[Endpoint]:
    """An https endpoint with a certificate for these names."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    endpoint = Endpoint()
    await endpoint.start(tls=context)
    yield endpoint
    await endpoint.stop()


@asynccontextmanager
async def calling(out: Outward, **guard: Any) -> AsyncIterator[Caller]:
    caller = Caller(Guard((), (), **{"is_keyless": True} | guard), out)
    yield caller
    await caller.transport.aclose()


async def test_a_companys_own_authority_is_trusted_where_it_is_named(
    authority: trustme.CA, ca_file: Path
) -> None:
    async with serving(authority, "127.0.0.1") as endpoint:
        async with calling(Outward()) as stranger:
            assert (await stranger(endpoint.url)).error_class == "tls"
        async with calling(outward(callback_ca_file=ca_file)) as caller:
            assert (await caller(endpoint.url)).status == 200
    assert len(endpoint.received) == 1


async def test_a_certificate_for_another_name_is_refused(
    authority: trustme.CA, ca_file: Path
) -> None:
    async with serving(authority, "other.example") as endpoint:
        async with calling(outward(callback_ca_file=ca_file)) as caller:
            answer = await caller(endpoint.url)
    assert (answer.status, answer.error_class) == (None, "tls")
    assert endpoint.received == []


async def test_a_receiver_that_asks_who_we_are_is_shown_our_certificate(
    authority: trustme.CA, ca_file: Path, tmp_path: Path
) -> None:
    clients = trustme.CA()
    own = clients.issue_cert("wheel-timer@example.com")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    async with serving(authority, "127.0.0.1", client_ca=clients) as endpoint:
        async with calling(outward(callback_ca_file=ca_file)) as nobody:
            assert (await nobody(endpoint.url)).status is None
        settings = {"callback_ca_file": ca_file, "callback_client_cert": tmp_path / "client.pem"}
        async with calling(outward(**settings)) as caller:
            assert (await caller(endpoint.url)).status == 200
    assert len(endpoint.received) == 1


async def test_a_handshake_that_never_ends_meets_the_deadline() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await _end(writer)
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with calling(Outward()) as caller:
        answer = await caller(f"https://127.0.0.1:{port}/", None, timeout=0.2)
    assert answer.error_class == "timeout"
    server.close()
    async with asyncio.timeout(5):
        await ended.wait()


@pytest.mark.parametrize("name", ["callback_ca_file", "callback_client_cert"])
def test_a_file_that_cannot_be_used_stops_the_start_and_is_not_shown(
    name: str, tmp_path: Path
) -> None:
    for content in (None, "", "-----BEGIN PRIVATE KEY-----\ns3cr3t\n"):
        path = tmp_path / "file.pem"
        if content is not None:
            path.write_text(content)
        with pytest.raises(StartRefused) as refused:
            outward(**{name: path})
        assert name.upper() in str(refused.value)
        assert "s3cr3t" not in str(refused.value)


class _Proxy:
    """An HTTP proxy that leads every request to one endpoint, and remembers what it was asked."""

    def __init__(self, port: int, status: int = 200) -> None:
        self.asked: list[bytes] = []
        self.serving: set[asyncio.Task[None]] = set()
        self._port = port
        self._status = status

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head)
        if self._status != 200:
            writer.write(b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % self._status)
            await _end(writer)
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        if head.startswith(b"CONNECT "):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            there_writer.write(head)
        await asyncio.gather(_pour(reader, there_writer), _pour(there_reader, writer))


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
    await _end(writer)


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def proxied(endpoint: Endpoint, status: int = 200) -> AsyncIterator[tuple[_Proxy, str]]:
    proxy = _Proxy(endpoint.port, status)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield proxy, f"http://user:s3cr3t@127.0.0.1:{port}"
    server.close()
    await server.wait_closed()
    await asyncio.gather(*proxy.serving)


async def test_callbacks_go_through_the_proxy_and_its_password_no_further(
    endpoint: Endpoint,
) -> None:
    async with (
        proxied(endpoint) as (proxy, url),
        calling(outward(callback_proxy=url), is_keyless=False, is_proxied=True) as caller,
    ):
        assert (await caller("http://receiver.example:8080/x?y=1")).status == 200
        for host in ("127.0.0.1", "10.0.0.1", "[::1]", "localhost", "2130706433"):
            refused = await caller(f"http://{host}:8080/")
            assert (refused.status, refused.error_class) == (None, "refused")
    assert len(proxy.asked) == 1
    assert proxy.asked[0].startswith(b"POST http://receiver.example:8080/x?y=1 HTTP/1.1\r\n")
    assert b"Basic " + b64encode(b"user:s3cr3t") in proxy.asked[0]


async def test_https_goes_through_the_proxy_unseen(authority: trustme.CA, ca_file: Path) -> None:
    async with serving(authority, "receiver.example") as endpoint, proxied(endpoint) as (_, url):
        settings = {"callback_proxy": url, "callback_ca_file": ca_file}
        async with calling(outward(**settings), is_keyless=False, is_proxied=True) as caller:
            assert (await caller("https://receiver.example/x")).status == 200
    assert "proxy-authorization" not in endpoint.received[0].headers


async def test_a_proxy_that_says_no_is_told_of_without_its_password(endpoint: Endpoint) -> None:
    async with (
        proxied(endpoint, 407) as (_, url),
        calling(outward(callback_proxy=url), is_proxied=True) as caller,
    ):
        answer = await caller("https://receiver.example/x")
    assert (answer.status, answer.error_class) == (None, "connect")
    assert answer.error == "CALLBACK_PROXY answered 407"
    # The proxy is gone by now.
    async with calling(outward(callback_proxy=url), is_proxied=True) as caller:
        answer = await caller("http://receiver.example/x")
    assert answer.status is None
    assert "CALLBACK_PROXY" in (answer.error or "")
    assert "s3cr3t" not in (answer.error or "")
