"""`to_number` and `try_to_number`: decimals of texts by a pattern such as `S$99,999.99`, one row at a time.

Of a pattern, groups of digits between commas are looked at from the point on: one that begins with 0 has as many digits
as it says, others at most so many. Patterns in angle brackets (`PR`) and with a sign or a `$` behind are left to Spark.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

from lakeseal.errors import EvaluationError, UnsupportedExpression
from lakeseal.protocol.schema import MAX_PRECISION, DecimalType

_PATTERN = re.compile(r"(?P<sign>S|MI)?(?P<dollar>\$)?(?P<whole>[09]+(?:[,G][09]+)*)(?:[.D](?P<rest>[09]+))?")
_NUMBER = re.compile(r"(?P<sign>[+-])?(?P<dollar>\$)?(?P<whole>[0-9,]*)(?P<point>\.)?(?P<rest>[0-9]*)", re.ASCII)


@lru_cache(maxsize=64)
def _parts(pattern: str) -> tuple[str, bool, tuple[str, ...], int]:
    found = _PATTERN.fullmatch(pattern)
    if found is None:
        raise UnsupportedExpression(f"The number pattern {pattern[:50]!r} is not supported")
    groups = tuple(re.split("[,G]", found["whole"]))
    return found["sign"] or "", found["dollar"] is not None, groups, len(found["rest"] or "")


def type_of(pattern: str) -> DecimalType:
    _, _, groups, places = _parts(pattern)
    digits = sum(map(len, groups)) + places
    if digits > MAX_PRECISION:
        raise UnsupportedExpression(f"A number pattern of {digits} digits is not supported")
    return DecimalType(digits, places)


def read(pattern: str, attempt: bool, text: str) -> Decimal | None:
    found = _matched(pattern, text)
    if found is None and not attempt:
        raise EvaluationError(f"{text[:50]!r} is not written as {pattern[:50]!r}", hint="Use try_to_number")
    return found


def _matched(pattern: str, text: str) -> Decimal | None:
    if not text.isascii() or any(char.isspace() for char in text):
        raise UnsupportedExpression(f"{text[:50]!r} as a number, with blanks or other digits, is not supported")
    sign, has_dollar, groups, places = _parts(pattern)
    found = _NUMBER.fullmatch(text)
    if found is None or (found["dollar"] is not None) != has_dollar or len(found["rest"]) > places:
        return None
    if (found["sign"] == "+" and sign != "S") or (found["sign"] == "-" and not sign):
        return None
    if found["point"] and not places:
        return None
    given = found["whole"].split(",")
    if len(given) > len(groups) or not (found["whole"].strip(",") or found["rest"]):
        return None
    sizes = [0] * (len(groups) - len(given)) + [len(part) for part in given]
    for group, size in zip(groups, sizes, strict=True):
        if size > len(group) or (group.startswith("0") and size != len(group)):
            return None
    value = Decimal(f"{found['whole'].replace(',', '') or '0'}.{found['rest'] or '0'}")
    return -value if found["sign"] == "-" else value
