"""PostgreSQL's `pgoutput`, protocol version 1: bytes of a replication slot to changes. Pure, and bounded by what it is
given: a message that is cut off, or longer than it says, is `SourceChanged` with its kind.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from lakeseal.errors import SourceChanged
from lakeseal.ingest.row_changes import TRUNCATE

UNCHANGED = object()
"""A large value that an update left as it was, and that the server does not send."""
Values = dict[str, object]
"""By column: text, None, or `UNCHANGED`."""

_EPOCH_MICROS = 946_684_800_000_000  # 2000-01-01, from which PostgreSQL counts


class Relation(Struct, frozen=True):
    oid: int
    columns: tuple[str, ...]


class RowChange(Struct, frozen=True, kw_only=True):
    kind: str
    """As in `_change_type`."""
    relation: Relation
    values: Values
    lsn: int
    """Of the transaction's commit."""
    micros: int
    xid: int
    """Of the transaction; its last 32 bits."""
    together: frozenset[int] = frozenset()
    """Of a truncate: all tables that it emptied."""


class SeenTransactions(Struct, frozen=True):
    """Which transactions a reader has seen."""

    first_open: int
    """All before it are over."""
    end: int
    """From here on none had begun."""
    still_open: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> SeenTransactions:
        """As the server writes it: `10:20:10,14`."""
        first, end, still = text.split(":")
        return cls(int(first), int(end), frozenset(int(one) for one in still.split(",") if one))

    def has(self, xid: int) -> bool:
        """Of a transaction that was committed since: whether it was by then. The server counts by 64 bits, and a change
        has the last 32: the number is the one that is nearest to the snapshot's end."""
        near = self.end - (self.end - xid + 2**31) % 2**32 + 2**31
        return near < self.end and near not in self.still_open


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) < count or count < 0:
            raise SourceChanged(f"A message of the kind {self._data[:1]!r} ends too early")
        self._at += count
        return found

    def number(self, form: str) -> int:
        return int(struct.unpack(f">{form}", self.take(struct.calcsize(form)))[0])

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        found = self.take(end - self._at)
        self._at += 1
        return found.decode()

    def row(self, columns: tuple[str, ...]) -> Values:
        count = self.number("H")
        if count != len(columns):
            raise SourceChanged(f"A row has {count} values, and its table {len(columns)} columns")
        return {name: self._value() for name in columns}

    def _value(self) -> object:
        match self.take(1):
            case b"n":
                return None
            case b"u":
                return UNCHANGED
            case b"t":
                return self.take(self.number("I")).decode()
            case other:
                raise SourceChanged(f"A value of the kind {other!r} is not known")


class Decoder:
    """Messages of one slot, in order."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}
        self._lsn = self._micros = self._xid = 0

    def changes(self, messages: Iterable[bytes]) -> Iterator[RowChange]:
        for message in messages:
            yield from self._decoded(_Reader(message))

    def _decoded(self, data: _Reader) -> Iterator[RowChange]:
        match data.take(1):
            case b"B":
                self._lsn = data.number("Q")
                self._micros = data.number("q") + _EPOCH_MICROS
                self._xid = data.number("I")
            case b"R":
                number = data.number("I")
                self._relations[number] = _relation(number, data)
            case b"I":
                relation = self._relation(data)
                data.take(1)
                yield self._change("insert", relation, data.row(relation.columns))
            case b"U":
                relation = self._relation(data)
                kind, before = data.take(1), Values()
                if kind in (b"K", b"O"):
                    before = data.row(relation.columns)
                    data.take(1)
                after = data.row(relation.columns)
                if before:
                    yield self._change("update_preimage", relation, before)
                # The old row has its key, or all of it, also what did not change; null is what it does not have.
                known = {name: one for name, one in before.items() if one is not None}
                after = {name: known.get(name, one) if one is UNCHANGED else one for name, one in after.items()}
                yield self._change("update_postimage", relation, after)
            case b"D":
                relation = self._relation(data)
                data.take(1)
                yield self._change("delete", relation, data.row(relation.columns))
            case b"T":
                count = data.number("I")
                data.take(1)
                relations = [self._relation(data) for _ in range(count)]
                together = frozenset(relation.oid for relation in relations)
                for relation in relations:
                    emptied = self._change(TRUNCATE, relation, dict.fromkeys(relation.columns))
                    yield replace(emptied, together=together)
            case b"C" | b"O" | b"Y" | b"M":
                return
            case other:
                raise SourceChanged(f"A message of the kind {other!r} is not known")

    def _relation(self, data: _Reader) -> Relation:
        number = data.number("I")
        if number not in self._relations:
            raise SourceChanged(f"A change is of the table {number}, which was not described")
        return self._relations[number]

    def _change(self, kind: str, relation: Relation, values: Values) -> RowChange:
        return RowChange(kind=kind, relation=relation, values=values, lsn=self._lsn, micros=self._micros, xid=self._xid)


def _relation(oid: int, data: _Reader) -> Relation:
    data.text(), data.text()  # its schema and its name, which may have changed since
    data.take(1)
    columns = []
    for _ in range(data.number("H")):
        data.take(1)
        columns.append(data.text())
        data.take(8)
    return Relation(oid, tuple(columns))
