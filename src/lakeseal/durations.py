"""How long, as people write it: `30s`, `90m`, `12h`, `2d`. The one way to read that, wherever it is asked for."""

from __future__ import annotations

import re

SUCH_AS = "seconds, minutes, hours or days, such as 30s, 15m, 12h or 2d"

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|s|m|min|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str) -> float | None:
    """None if it is none."""
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _SECONDS[found[2]]
