"""Takes secrets out of what is shown: settings, log lines, errors."""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"
# scheme://user:PASSWORD@ and scheme://:PASSWORD@, also where the password holds an unescaped @.
_USERINFO: Final = re.compile(
    r"(?P<head>\b[a-z][a-z0-9+.-]*://[^\s/:@?#]*:)[^\s/?#]*@", re.IGNORECASE
)
# password=... of a query or of libpq's keyword form, quoted or not; our own keys.
_KEYWORD: Final = re.compile(
    r"(?P<head>\b(?:ssl)?password\s*=\s*)(?:'[^']*'|[^\s&']+)", re.IGNORECASE
)
_KEY: Final = re.compile(r"\bwtk_[A-Za-z0-9_-]+")


def mask_secrets(text: str) -> str:
    """The text without passwords of URLs, `password=` values and API keys."""
    if "://" in text:
        text = _USERINFO.sub(rf"\g<head>{MASK}@", text)
    if "assword" in text or "ASSWORD" in text:
        text = _KEYWORD.sub(rf"\g<head>{MASK}", text)
    if "wtk_" in text:
        text = _KEY.sub(f"wtk_{MASK}", text)
    return text
