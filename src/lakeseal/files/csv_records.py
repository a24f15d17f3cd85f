r"""CSV as records of texts: fields between delimiters, some of them in quotes.

A record ends at a line's end (`\n`, `\r\n` or `\r`) outside of quotes; an empty line is none. A field that begins with
a quote ends with one. Inside, the escape makes a quote plain: with the quote itself as escape, `""` is one, as RFC 4180
has it; with a backslash, `\"` and `\\`, as Spark has it by itself. A field without quotes is what it says, backslashes
and quotes in its midst included. A field of nothing, and the text that stands for null, are null; in quotes they are
not.

What is none of this is no record: something behind a closing quote, a quote that is never closed, another number of
fields than expected, bytes that are not UTF-8, and NUL, which Spark drops in quotes. Where a quote was not closed,
or some lines later than it was meant to be, nobody can tell where the record was to end: all of the rest is one then.

Fields are found by a regular expression. Where quotes and escapes are as they should be, which a second one tells,
Arrow reads thousands of records at once, and gives the same.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from msgspec import Struct

from lakeseal.errors import InvalidArgument, SchemaMismatch
from lakeseal.files import cells
from lakeseal.files.records import Misfit, Parsed
from lakeseal.log.decoded_size import too_large
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import STRING, StructField, StructType
from lakeseal.trust import Trust

_BLOCK = 4 * 2**20
# A run of plain records that is shorter is read faster without Arrow.
_WORTHWHILE = 4096
_BOM = b"\xef\xbb\xbf"


class CsvDialect(Struct, frozen=True, kw_only=True):
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str = ""
    takes_nul: bool = False
    """Whether a text may have NUL in it, which Spark writes but drops when it reads."""

    def __post_init__(self) -> None:
        for what, sign in (("delimiter", self.delimiter), ("quote", self.quote), ("escape", self.escape)):
            if len(sign) != 1 or not sign.isascii() or sign in "\r\n":
                raise InvalidArgument(f"The {what} of CSV is one sign of ASCII, not {sign!r}")
        if self.delimiter in (self.quote, self.escape):
            raise InvalidArgument("The delimiter of CSV is another sign than quote and escape")


SPARK = CsvDialect(escape="\\", takes_nul=True)


class Torn(Struct, frozen=True, kw_only=True):
    """Text that is no record."""

    row: int
    """Records are counted from 1, the header not among them."""
    reason: str
    text: bytes


class CsvBlock(Struct, frozen=True, kw_only=True):
    """Some records in a row: the texts of each column, and what was no record."""

    rows: Sequence[int]
    """The number of each."""
    columns: list[pa.Array]
    torn: tuple[Torn, ...]
    size: int


class _Patterns(Struct, frozen=True):
    plain: re.Pattern[bytes]
    """Records that Arrow reads as they are meant."""
    quoted: re.Pattern[bytes]
    bare: re.Pattern[bytes]
    end: re.Pattern[bytes]
    escaped: re.Pattern[bytes]


@lru_cache(maxsize=32)
def _patterns(dialect: CsvDialect) -> _Patterns:
    delimiter, quote, escape = (re.escape(sign.encode()) for sign in (dialect.delimiter, dialect.quote, dialect.escape))
    end = rb"(?:\r\n?|\n)"
    if dialect.escape == dialect.quote:
        body = rb"(?:[^%b]++|%b%b)*+" % (quote, quote, quote)
        bare = rb"[^%b%b\r\n]*+" % (quote, delimiter)
        loose = body
    else:
        body = rb"(?:[^%b%b]++|%b[%b%b])*+" % (quote, escape, escape, quote, escape)
        bare = rb"[^%b%b%b\r\n]*+" % (quote, escape, delimiter)
        # An escape before anything else is itself.
        loose = rb"(?:[^%b%b]++|%b[%b%b]|%b)*+" % (quote, escape, escape, quote, escape, escape)
    field = rb"(?:%b%b%b|%b)" % (quote, body, quote, bare)
    return _Patterns(
        plain=re.compile(rb"(?:%b(?:%b%b)*+%b)*+" % (field, delimiter, field, end)),
        quoted=re.compile(quote + loose + quote),
        bare=re.compile(rb"[^%b\r\n]*+" % delimiter),
        end=re.compile(end),
        escaped=re.compile(rb"%b([%b%b])" % (escape, quote, escape)),
    )


class CsvRecords:
    """The records of one file, by the names of its header or those given."""

    def __init__(self, source: Any, dialect: CsvDialect, names: Sequence[str] | None = None) -> None:
        """`names` if there is no header."""
        self._source = source
        self._dialect = dialect
        self._signs = _patterns(dialect)
        self._buffer = b""
        self._is_whole = False
        self._limit = Trust().max_decoded_bytes
        self._row = 0
        self._more()
        self._buffer = self._buffer.removeprefix(_BOM)
        self.names = list(names) if names is not None else self._header()

    def blocks(self) -> Iterator[CsvBlock]:
        while self._buffer or not self._is_whole:
            pieces, torn, end = self._records()
            if end:
                yield self._block(pieces, torn, end)
                self._buffer = self._buffer[end:]
            if not self._more() and not end:
                return

    def _block(self, pieces: list[_Piece], torn: list[Torn], size: int) -> CsvBlock:
        rows = [number for piece in pieces for number in piece.rows]
        columns = [
            pa.concat_arrays([piece.columns[n] for piece in pieces]) if pieces else pa.array([], pa.string())
            for n in range(len(self.names))
        ]
        return CsvBlock(rows=rows, columns=columns, torn=tuple(torn), size=size)

    def _more(self) -> bool:
        """Reads on; what is held already counts, so that a long record is not looked at again for every block."""
        if self._is_whole:
            return False
        if len(self._buffer) > self._limit:
            raise too_large(f"A record has more than {self._limit:,} bytes, or a quote in it is never closed")
        wanted = min(max(_BLOCK, len(self._buffer)), self._limit - len(self._buffer) + 1)
        parts = []
        while wanted > 0 and (part := self._source.read(wanted)):
            parts.append(part)
            wanted -= len(part)
        self._is_whole = wanted > 0
        self._buffer = b"".join((self._buffer, *parts))
        return True

    def _header(self) -> list[str]:
        while self._buffer or not self._is_whole:
            found = self._record(0)
            if found is None:
                self._more()
                continue
            fields, end, reason = found
            self._buffer = self._buffer[end:]
            if reason is not None:
                raise SchemaMismatch(f"The header of a CSV file cannot be read: {reason}", hint="Mend the file")
            if fields:
                return [text or "" for text in fields]
        return []

    def _records(self) -> tuple[list[_Piece], list[Torn], int]:
        """The whole records of the buffer, and where they end."""
        pieces: list[_Piece] = []
        torn: list[Torn] = []
        loose = _Loose(len(self.names))
        at = looked_to = 0
        while at < len(self._buffer):
            if at >= looked_to:
                looked_to = _match(self._signs.plain, self._buffer, at).end()
                if looked_to == len(self._buffer) and not self._is_whole and self._buffer[-1:] == b"\r":
                    looked_to = at  # what follows may be the other half of the line's end
                if looked_to - at > _WORTHWHILE and self._is_text(self._buffer[at:looked_to]):
                    loose.flush(pieces)
                    self._by_arrow(self._buffer[at:looked_to], pieces, torn)
                    at = looked_to
                    continue
            found = self._record(at)
            if found is None:
                break
            fields, end, reason = found
            if fields or reason is not None:
                self._row += 1
                if reason is None and len(fields) != len(self.names):
                    reason = _counted(len(fields), len(self.names))
                if reason is None:
                    loose.add(self._row, fields)
                else:
                    torn.append(Torn(row=self._row, reason=reason, text=self._buffer[at:end].rstrip(b"\r\n")))
            at = end
        loose.flush(pieces)
        return pieces, torn, at

    def _record(self, at: int) -> tuple[list[str | None], int, str | None] | None:
        """The fields of one record, where it ends, and why it is none; None if more of the file is needed. An empty
        line has no fields."""
        buffer, signs, size = self._buffer, self._signs, len(self._buffer)
        quote, delimiter = self._dialect.quote.encode(), self._dialect.delimiter.encode()
        fields: list[str | None] = []
        reason: str | None = None
        start = at
        while True:
            is_quoted = buffer[at : at + 1] == quote
            if is_quoted:
                found = signs.quoted.match(buffer, at)
                if found is None or (found.end() == size and not self._is_whole):
                    if not self._is_whole:
                        return None
                    return fields, size, "A quote is never closed"
                text, at = found[0][1:-1], found.end()
                if buffer[at : at + 1] not in (delimiter, b"\r", b"\n", b""):
                    behind = _match(signs.bare, buffer, at)
                    if b"\n" in text or b"\r" in text or self._has_escape(behind[0]):
                        return (fields, size, "A quote is not closed where it should be") if self._is_whole else None
                    reason = reason or "There is something behind a closing quote"
                    at = behind.end()
            else:
                found = _match(signs.bare, buffer, at)
                text, at = found[0], found.end()
            try:
                fields.append(self._value(text, is_quoted))
            except UnicodeDecodeError as error:
                reason = reason or f"It is not UTF-8: {error.reason}"
            if b"\0" in text and not self._dialect.takes_nul:
                reason = reason or "It has a NUL"
            if buffer[at : at + 1] == delimiter:
                at += 1
                continue
            if at == size:
                if not self._is_whole:
                    return None
            elif buffer[at : at + 2] == b"\r" and not self._is_whole:
                return None
            else:
                ended = _match(signs.end, buffer, at)
                if at == start:
                    return [], ended.end(), None
                at = ended.end()
            return fields, at, reason

    def _has_escape(self, text: bytes) -> bool:
        return self._dialect.escape != self._dialect.quote and self._dialect.escape.encode() in text

    def _is_text(self, data: bytes) -> bool:
        if b"\0" in data and not self._dialect.takes_nul:
            return False
        try:
            return data.isascii() or bool(data.decode())
        except UnicodeDecodeError:
            return False

    def _value(self, text: bytes, is_quoted: bool) -> str | None:
        if not is_quoted:
            found = text.decode()
            return None if not found or found == self._dialect.null else found
        return self._signs.escaped.sub(rb"\1", text).decode()

    def _by_arrow(self, run: bytes, pieces: list[_Piece], torn: list[Torn]) -> None:
        """Plain records."""
        strange: list[tuple[int, Any]] = []

        def refuse(row: Any) -> str:
            strange.append((row.number, row))
            return "skip"

        dialect = self._dialect
        names = [str(n) for n in range(len(self.names))]
        table = pa_csv.read_csv(
            io.BytesIO(run),
            read_options=pa_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(run) + 1),
            parse_options=pa_csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote,
                double_quote=dialect.escape == dialect.quote,
                escape_char=False if dialect.escape == dialect.quote else dialect.escape,
                newlines_in_values=True,
                invalid_row_handler=refuse,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=["", dialect.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        count = table.num_rows + len(strange)
        refused = {number - 1 for number, _ in strange}
        first = self._row + 1
        rows = [first + n for n in range(count) if n not in refused]
        torn += (
            Torn(
                row=first + number - 1,
                reason=_counted(row.actual_columns, row.expected_columns),
                text=row.text.encode(),
            )
            for number, row in strange
        )
        self._row += count
        if table.num_rows:
            pieces.append(_Piece(rows, [column.combine_chunks() for column in table.columns]))


class _Piece:
    def __init__(self, rows: Sequence[int], columns: list[pa.Array]) -> None:
        self.rows, self.columns = rows, columns


class _Loose:
    """Records that are gathered one by one."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: list[int] = []
        self._fields: list[list[str | None]] = []

    def add(self, row: int, fields: list[str | None]) -> None:
        self._rows.append(row)
        self._fields.append(fields)

    def flush(self, pieces: list[_Piece]) -> None:
        if self._rows:
            columns = [pa.array([fields[n] for fields in self._fields], pa.string()) for n in range(self._columns)]
            pieces.append(_Piece(self._rows, columns))
        self._rows, self._fields = [], []


class CsvRows:
    """The rows of one file by the columns that are wanted of it, found by their names."""

    def __init__(
        self, source: Any, fields: Sequence[StructField], dialect: CsvDialect, *, header: bool, zone: str = "UTC"
    ) -> None:
        """`zone` is that of moments without one."""
        self._fields = fields
        self._zone = zone
        self._schema = to_arrow(StructType(tuple(fields)))
        self._records = CsvRecords(source, dialect, None if header else [field.name for field in fields])
        self._places = [self._place(field.name) for field in fields] if self._records.names else []

    def read(self) -> Iterator[tuple[CsvBlock, Parsed]]:
        """Blocks of records, and which of them are rows; a misfit's number is its place in the block."""
        if self._records.names:
            for block in self._records.blocks():
                yield block, self._parsed(block)

    def _place(self, name: str) -> int:
        names = self._records.names
        same = [n for n, one in enumerate(names) if one == name]
        found = same or [n for n, one in enumerate(names) if one.lower() == name.lower()]
        if len(found) != 1:
            raise SchemaMismatch(
                f"A CSV file {'has several columns' if found else 'lacks the column'} {name!r}",
                column=name,
                hint=f"It has {', '.join(names)}",
            )
        return found[0]

    def _parsed(self, block: CsvBlock) -> Parsed:
        columns: list[pa.Array] = []
        wrong: dict[int, str] = {}
        for place, field in zip(self._places, self._fields, strict=True):
            texts = block.columns[place] if field.type == STRING else _without_empty(block.columns[place])
            values = cells.parse(texts, field.type, zone=self._zone)
            columns.append(values)
            if values.null_count > texts.null_count:
                for n, (text, valid) in enumerate(zip(texts.to_pylist(), values.is_valid().to_pylist(), strict=True)):
                    if text is not None and not valid:
                        wrong.setdefault(n, f"{field.name}: {cells.unfit(text, field.type)}")
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if not wrong:
            return Parsed(rows=batch)
        numbers = [n for n in range(batch.num_rows) if n not in wrong]
        misfits = tuple(Misfit(at=n, reason=reason) for n, reason in sorted(wrong.items()))
        return Parsed(rows=batch.take(pa.array(numbers, pa.int64())), misfits=misfits, record_numbers=numbers)


def line(block: CsvBlock, at: int, delimiter: str) -> str:
    """A record as people would see it."""
    return delimiter.join(column[at].as_py() or "" for column in block.columns)


def _without_empty(texts: pa.Array) -> pa.Array:
    """Nothing in quotes is null to every type but string, as it is to Spark."""
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _match(pattern: re.Pattern[bytes], buffer: bytes, at: int) -> re.Match[bytes]:
    found = pattern.match(buffer, at)
    assert found is not None
    return found


def _counted(found: int, expected: int) -> str:
    return f"It has {found} columns instead of {expected}"
