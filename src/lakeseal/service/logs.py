"""Logs of a service: one JSON object per line on standard error, and never a secret in it.

Nothing that came from outside is logged but what was checked: no headers, no bodies, no query strings, no paths that
are not ours. Should a secret slip into a message all the same (an error's text, a traceback), it is masked by its form.
"""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

_SECRETS = (
    (re.compile(r"(lks_[0-9a-f]{12}_)[A-Za-z0-9_-]+"), r"\1***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/_.=-]{8,}"), r"\1 ***"),
    (re.compile(r"://[^/\s\"]*@"), r"://***@"),
    (
        re.compile(
            r"(?i)((?:password|passwd|pwd|secret|token|signature|sig|(?:access|account|api)[_-]?key)"
            r"(?:=\\?[\"']?|\\?[\"']\s?[:=]\s?\\?[\"']))[^&\s\"'\\]+"
        ),
        r"\1***",
    ),
)
_MOST = 10_000
_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def masked(text: str) -> str:
    """In time that grows with the text and no faster: no expression looks at a part of it again and again."""
    for secret, instead in _SECRETS:
        text = secret.sub(instead, text)
    return text


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        said |= {name: _cut(value) for name, value in vars(record).items() if name not in _OWN and value is not None}
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return masked(msgspec.json.encode(said, enc_hook=str).decode("utf-8", "replace"))


def _cut(value: Any) -> Any:
    return f"{value[:_MOST]}…" if isinstance(value, str) and len(value) > _MOST else value


def configure(level: str) -> None:
    """For the whole process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It tells of every request that is made, with its URL.
    logging.getLogger("httpx").setLevel(logging.WARNING)
