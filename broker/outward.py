"""How callbacks leave this machine: whom TLS trusts, who we say we are, and by which proxy."""

from __future__ import annotations

import ssl
from typing import Final, NamedTuple

from yarl import URL

from wheel_timer.errors import StartRefused
from wheel_timer.settings import Settings


class Outward(NamedTuple):
    """tls: None for the system's trust alone. proxy: with the user information it asks for."""

    tls: ssl.SSLContext | None = None
    proxy: URL | None = None

    def __repr__(self) -> str:
        return "Outward()"


DIRECT: Final = Outward()


def outward_of(settings: Settings) -> Outward:
    """
    What CALLBACK_CA_FILE, CALLBACK_CLIENT_CERT and CALLBACK_PROXY ask for.

    Raises StartRefused where a file cannot be used; the text shows nothing of what is in it.
    """
    return Outward(
        _tls(settings), URL(settings.callback_proxy) if settings.callback_proxy else None
    )


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.callback_ca_file and not settings.callback_client_cert:
        return None
    # What the system trusts is trusted still: the file adds a company's own authorities.
    context = ssl.create_default_context()
    if settings.callback_ca_file:
        try:
            context.load_verify_locations(settings.callback_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise StartRefused(
                f"CALLBACK_CA_FILE {settings.callback_ca_file} holds no certificates that can be "
                f"read ({error.strerror or type(error).__name__})"
            ) from None
    if settings.callback_client_cert:
        try:
            # An encrypted key would ask at a terminal that nobody watches.
            context.load_cert_chain(settings.callback_client_cert, password=lambda: b"")
        except (OSError, ssl.SSLError) as error:
            raise StartRefused(
                f"CALLBACK_CLIENT_CERT {settings.callback_client_cert} must be a PEM file with a "
                "certificate and its key, not encrypted "
                f"({error.strerror or type(error).__name__})"
            ) from None
    return context
