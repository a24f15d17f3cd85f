"""Files that people would rather not receive: random schemas, and records of which some are as they should be.

A generator gives bytes, how many records they are, and how many of these are tame: plainly rows of the schema, which no
reader has a reason to set aside.
"""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import random
from dataclasses import dataclass
from typing import Any

LEAVES = (
    "long",
    "int",
    "short",
    "byte",
    "float",
    "double",
    "boolean",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(5,2)",
    "decimal(20,0)",
    "decimal(38,18)",
)


def _words(text: str) -> list[str]:
    return text.split()


_NUMBERS = _words("""0 -0 1 -1 007 -07 +5 1. .5 5e 1.0 1.5 -0.0 1e2 1E+2 1e-2 1e400 -1e400 1e-400 3.5e38 1e39 0x1F 0b1
    1_000 127 128 -128 -129 200 255 256 32767 32768 65536 2147483647 2147483648 -2147483649 9223372036854775807
    9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551616 1.239 1.235 123.45 1234.5 999.999
    12345 1.2300 100000000000000000000 99999999999999999999 0.1 0.30000000000000004 16777217 9007199254740993 1e-320
    1e22 1.17549435E-38 NaN nan Infinity -Infinity +Infinity Inf -Inf inf INF +INF -INF 1d 1f 1L 1,000 ١ 1e1000000000
    4.9e-324 2.2250738585072011e-308 0.000000000000000001 0.0000000000000000001""")
_MOMENTS = _words("""2024-02-29 2023-02-29 2024-1-1 2024-01-01T10:00:00 2024-01-01T10:00:00Z 2024-01-01T10:00:00+01:00
    2024-01 2024-01-01T10:00:00.123456789Z 2024-01-01T10:00:00.1Z 2024-01-01T10:00:00+0100 2024-01-01T10:00:00+01
    2024 0000-01-01 2024-01-01T24:00:00 2024-01-01T10:60:00 2024-13-01 9999-12-31 10000-01-01 +10000-01-01 -0001-01-01
    0001-01-01 2024-01-01T10 2024-01-01T10:00 2024-01-01T1:2:3 2024-01-01T10:00:00Europe/Berlin
    2024-03-31T02:30:00Europe/Berlin
    2024-10-27T02:30:00Europe/Berlin 2024-01-01T10:00:00UTC 2024-01-01T10:00:00GMT+1 2024-01-01T10:00:00+18:00
    2024-01-01T10:00:00+19:00 2024-01-01T10:00:00-00:30 10:00:00 1582-10-10 1500-02-29 294247-01-10T04:00:54.775807Z
    294247-01-10T04:00:54.775808Z -290308-12-21T19:59:05.224192Z 5881580-07-11 5881580-07-12 1704103200 2024-01-01T
    01/02/2024 20240101 epoch now today 2024-01-01T10:00:00PST
    2024-01-01T10:00:00+1:00 2024-01-01T10:00:00+01:0""")
_MOMENTS += [text.replace("T", " ") for text in _MOMENTS if "T" in text] + [
    " 2024-01-01",
    "2024-01-01 ",
    "2024-01-01T10:00:00 +01:00",
    "2024-01-01 10:00:00 UTC",
    "2024-01-01 junk",
    "2024-01-01 10:00:00.",
]
_TEXTS = ["", " ", "a", "true", "TRUE", "False", "yes", "t", "null", "NULL", "\\N", "ü€😀", "a b ", " a", "\u2028",
          "\x00", "it's", 'say "hi"', "back\\slash", "\\", "a,b", "a;b", "tab\there", "#x", "//", "\ufeff", "e\u0301",
          "\x7f", "aGk=", "aGk", "a===", "aG k=", "x" * 300]  # fmt: skip
TEXTS = (*_TEXTS, *_NUMBERS, *_MOMENTS)
_BYTES = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\x80", b"\x80")


@dataclass(frozen=True)
class Landed:
    name: str
    content: bytes
    records: int | None
    """None where nobody can tell how many there are."""
    tame: int

    @property
    def stored(self) -> bytes:
        return gzip.compress(self.content) if self.name.endswith(".gz") else self.content


def schema_of(chance: random.Random, *, nested: bool, leaves: tuple[str, ...] = LEAVES) -> list[tuple[str, Any]]:
    """Names and types; a type is a text, or a tuple of what it is made of. The first column tells records apart."""
    columns = [(f"c{n}", _type(chance, leaves, 2 if nested else 0)) for n in range(chance.randint(1, 5))]
    return [("id", "long"), *columns]


def ddl(schema: list[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {_ddl(kind)}" for name, kind in schema)


def _ddl(kind: Any) -> str:
    match kind:
        case ("array", element):
            return f"array<{_ddl(element)}>"
        case ("map", value):
            return f"map<string, {_ddl(value)}>"
        case ("struct", fields):
            return f"struct<{', '.join(f'{name}: {_ddl(one)}' for name, one in fields)}>"
        case _:
            return str(kind)


def _type(chance: random.Random, leaves: tuple[str, ...], depth: int) -> Any:
    if depth and chance.random() < 0.3:
        match chance.choice(("array", "map", "struct")):
            case "array":
                return ("array", _type(chance, leaves, depth - 1))
            case "map":
                return ("map", _type(chance, leaves, depth - 1))
            case _:
                fields = tuple((f"f{n}", _type(chance, leaves, depth - 1)) for n in range(chance.randint(1, 3)))
                return ("struct", fields)
    return chance.choice(leaves)


def tame_text(chance: random.Random, kind: str) -> str:
    """A value that is spelt as everybody spells it."""
    if kind.startswith("decimal"):
        precision, scale = map(int, kind[8:-1].split(","))
        whole = chance.randint(0, 10 ** (precision - scale) - 1)
        return f"{chance.choice(('', '-'))}{whole}" + (
            f".{chance.randint(0, 10**scale - 1):0{scale}d}" if scale else ""
        )
    match kind:
        case "long" | "int" | "short" | "byte":
            bits = {"long": 63, "int": 31, "short": 15, "byte": 7}[kind]
            return str(chance.choice((0, -1, -(2**bits), 2**bits - 1, chance.randint(-(2**bits), 2**bits - 1))))
        case "float":
            return chance.choice(("0.5", "-1.25", "3.4e38", "1e-40", repr(chance.uniform(-1e6, 1e6))))
        case "double":
            return chance.choice(("0.1", "-1.25", "1e308", "5e-324", repr(chance.uniform(-1e6, 1e6)), "12"))
        case "boolean":
            return chance.choice(("true", "false"))
        case "date":
            return str(dt.date(1600, 1, 1) + dt.timedelta(days=chance.randint(0, 300_000)))
        case "timestamp" | "timestamp_ntz":
            moment = dt.datetime(1600, 1, 1) + dt.timedelta(microseconds=chance.randint(0, 10**16))
            zone = chance.choice(("", "Z", "+05:30", "-08:00")) if kind == "timestamp" else ""
            return moment.isoformat(chance.choice(" T"), "microseconds") + zone
        case "binary":
            return base64.b64encode(chance.randbytes(chance.randint(1, 9))).decode()
        case _:
            return chance.choice([text for text in _TEXTS if text and text not in ("\ufeff", "\x00")])


def json_file(chance: random.Random, schema: list[tuple[str, Any]], name: str) -> Landed:
    lines, tame = [], 0
    count = chance.randint(1, 25)
    for n in range(count):
        is_tame = chance.random() < 0.6
        line = json_record(chance, schema, n, is_tame)
        tame += is_tame
        lines.append(line)
        if chance.random() < 0.05:
            lines.append(chance.choice((b"", b"  ", b"\t")))
    end = chance.choice((b"\n", b"\n", b"\r\n", b"\r"))
    content = end.join(lines) + (end if chance.random() < 0.7 else b"")
    if chance.random() < 0.1:
        content = b"\xef\xbb\xbf" + content
    return Landed(name, content, count, tame)


def json_record(chance: random.Random, schema: list[tuple[str, Any]], n: int, is_tame: bool) -> bytes:
    pairs = []
    for name, kind in schema:
        if name != "id" and chance.random() < 0.15:
            continue
        value = str(n) if name == "id" else _json_value(chance, kind, is_tame)
        pairs.append(f"{json.dumps(name)}:{chance.choice(('', ' '))}{value}")
    if chance.random() < 0.2:
        pairs.append('"extra": ' + _json_value(chance, _type(chance, LEAVES, 2), is_tame))
    chance.shuffle(pairs)
    if not is_tame and chance.random() < 0.1:
        pairs.append(chance.choice(pairs))
    text = ("{" + ", ".join(pairs) + "}").encode(errors="surrogatepass")
    return text if is_tame else _torn_json(chance, text)


def _torn_json(chance: random.Random, text: bytes) -> bytes:
    at = chance.randint(0, len(text))
    match chance.randint(0, 30):
        case 0:
            text = text[: max(at, 1)]
        case 1:
            text = text[:at] + chance.choice(_BYTES) + text[at:]
        case 2:
            text += chance.choice((b" x", b"{}", b",", b"}", b"]", b" // c", b" {"))
        case 3:
            text = b"[" + text + chance.choice((b"]", b"," + text + b"]", b""))
        case 4:
            text = text.replace(b'"', b"'")
        case 5:
            text = text[:-1] + b',"deep":' + b"[" * 1200 + b"]" * 1200 + b"}"
        case 6:
            text = chance.choice((b"null", b"1", b'"x"', b"[]", b"{}", b"true", b"{", b"\x00", b"\x0c" + text))
        case 7:
            text = text[:at] + chance.choice((b"\t", b"\x01", b"\x00", b" ", b"\x0b", b"\\", b'"')) + text[at:]
        case 8:
            text = text[:-1] + b',"long":' + b"9" * chance.choice((999, 1001, 3000)) + b"}"
        case 9:
            text = (
                text[:-1] + b',"odd":' + chance.choice((b"Inf", b"NaN", b"+1", b"01", b".5", b"1e400", b"0x1")) + b"}"
            )
        case _:
            pass
    return text.replace(b"\n", b" ").replace(b"\r", b" ")


def _json_value(chance: random.Random, kind: Any, is_tame: bool) -> str:
    if chance.random() < 0.08:
        return "null"
    if not is_tame and chance.random() < 0.3:
        return _hostile_json(chance)
    match kind:
        case ("array", element):
            inner = ",".join(_json_value(chance, element, is_tame) for _ in range(chance.randint(0, 3)))
            return f"[{inner}]"
        case ("map", value):
            keys = chance.sample(["a", "b", "ü", "", "k 1"], chance.randint(0, 3))
            if keys and not is_tame and chance.random() < 0.2:
                keys.append(keys[0])
            return "{" + ",".join(f"{json.dumps(key)}:{_json_value(chance, value, is_tame)}" for key in keys) + "}"
        case ("struct", fields):
            wanted = [one for one in fields if chance.random() < 0.85]
            if wanted and not is_tame and chance.random() < 0.15:
                wanted.append(wanted[0])
            return (
                "{" + ",".join(f"{json.dumps(name)}:{_json_value(chance, one, is_tame)}" for name, one in wanted) + "}"
            )
    text = tame_text(chance, kind)
    is_bare = kind in ("long", "int", "short", "byte", "float", "double", "boolean") or kind.startswith("decimal")
    return text if is_bare else json.dumps(text, ensure_ascii=chance.random() < 0.5)


def _hostile_json(chance: random.Random) -> str:
    match chance.randint(0, 4):
        case 0:
            return chance.choice(_NUMBERS)
        case 1:
            return chance.choice(
                ('"\\ud800"', '"\\udc00x"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\x"', '"\\u12"', "[]", "{}")
            )
        case 2:
            return chance.choice(
                ('{"a": [1, 2 ]}', "[1,[2]]", '{"f0": 1}', '[{"f0":"x"}]', "true", "false", '"true"', "1")
            )
        case _:
            return json.dumps(chance.choice(TEXTS), ensure_ascii=chance.random() < 0.5)


def csv_file(
    chance: random.Random,
    schema: list[tuple[str, Any]],
    name: str,
    *,
    escape: str,
    header: bool,
    multi_line: bool,
) -> Landed:
    """`multi_line`: with line breaks inside of quotes, and all lines of the file ending alike."""
    lines: list[bytes] = []
    tame, is_countable = 0, True
    if header:
        lines.append(",".join(column for column, _ in schema).encode())
    count = chance.randint(1, 25)
    end = chance.choice((b"\n", b"\n", b"\r\n"))
    for n in range(count):
        is_tame = chance.random() < 0.6
        cells = [str(n)]
        for _, kind in schema[1:]:
            cells.append(_csv_cell(chance, kind, is_tame, escape, multi_line))
        # Spark takes the first line's end that it sees, in quotes or not, for that of all lines.
        text = ",".join(cells).encode().replace(b"\n", end)
        if not is_tame:
            text, countable = _torn_csv(chance, text)
            is_countable = is_countable and countable
        tame += is_tame
        lines.append(text)
        if chance.random() < 0.04 and len(schema) > 1:
            lines.append(b"")
    content = end.join(lines) + (end if chance.random() < 0.7 else b"")
    if chance.random() < 0.1:
        content = b"\xef\xbb\xbf" + content
    return Landed(name, content, count if is_countable else None, tame if is_countable else 0)


def _csv_cell(chance: random.Random, kind: str, is_tame: bool, escape: str, multi_line: bool) -> str:
    if chance.random() < 0.1:
        return chance.choice(("", '""'))
    if not is_tame and chance.random() < 0.35:
        text = chance.choice(TEXTS)
        if multi_line and chance.random() < 0.3:
            text += chance.choice(("\n", "\nx", "\n\n"))
        is_quoted = "\n" in text or chance.random() < 0.5
        if not is_quoted:
            return text
        return f'"{_escaped(text, escape)}"' if chance.random() < 0.8 else f'"{text}"'
    text = tame_text(chance, kind)
    if multi_line and kind == "string" and chance.random() < 0.2:
        text += "\nline"
    if kind == "string" and (chance.random() < 0.5 or any(sign in text for sign in '"\\,\n') or text != text.strip()):
        return f'"{_escaped(text, escape)}"'
    return text if chance.random() < 0.8 else f'"{text}"'


def _escaped(text: str, escape: str) -> str:
    if escape == '"':
        return text.replace('"', '""')
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _torn_csv(chance: random.Random, text: bytes) -> tuple[bytes, bool]:
    """And whether it is still known how many records there are."""
    at = chance.randint(0, len(text))
    match chance.randint(0, 14):
        case 0:
            cut = text[:at] or b"x"
            return cut, cut.count(b'"') == 0
        case 1:
            return text[:at] + chance.choice(_BYTES) + text[at:], b'"' not in text
        case 2:
            return text + chance.choice((b",", b",x", b",,,")), b'"' not in text
        case 3:
            return text + chance.choice((b',"x"y', b',"x" ', b' "x"', b',x"y', b',x"y"')), b'"' not in text
        case 4:
            return text + chance.choice((b'"', b',"', b',"open')), False
        case 5:
            return text[:at] + chance.choice((b'"', b"\\", b'\\"', b"\x00", b"\t")) + text[at:], False
        case _:
            return text, b'"' not in text
