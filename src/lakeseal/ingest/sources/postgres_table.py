"""What PostgreSQL's catalog says of a table whose changes are captured.

The server's log has changes of rows. What else may alter rows is seen here, by comparing the table with what it was:
columns that came with a value for the rows that were there, that got another type or name, and another table under the
same name. And changes are told as those of the table that has the row: a partition, or a table that inherits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lakeseal.errors import InvalidArgument, SourceNotFound
from lakeseal.protocol import schema as types
from lakeseal.protocol.schema import DataType, DecimalType, StructField, StructType

_TYPES: dict[str, DataType] = {
    "int2": types.SHORT,
    "int4": types.INTEGER,
    "int8": types.LONG,
    "float4": types.FLOAT,
    "float8": types.DOUBLE,
    "bool": types.BOOLEAN,
    "bytea": types.BINARY,
    "date": types.DATE,
    "timestamp": types.TIMESTAMP_NTZ,
    "timestamptz": types.TIMESTAMP,
}
# What the server computes is not among the changes.
_COLUMNS = """
    SELECT a.attnum::text, a.attname, t.typname, a.atttypmod,
           a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND coalesce(to_jsonb(a)->>'attgenerated', '') = ''
    ORDER BY a.attnum"""
_BELOW = """
    WITH RECURSIVE below AS (
        SELECT inhrelid FROM pg_inherits WHERE inhparent = %s
        UNION SELECT i.inhrelid FROM pg_inherits i JOIN below b ON i.inhparent = b.inhrelid)
    SELECT c.oid::bigint, c.relname, c.relispartition, c.relkind <> 'p'
    FROM below b JOIN pg_class c ON c.oid = b.inhrelid ORDER BY 2"""
_PUBLISHED = """
    SELECT r.prrelid::bigint, coalesce(to_jsonb(r)->>'prqual', to_jsonb(r)->>'prattrs') IS NOT NULL
    FROM pg_publication_rel r WHERE r.prpubid = %s"""
_OPERATIONS = ("insert", "update", "delete", "truncate")

Attributes = Mapping[str, list[Any]]
"""Of each column, by its number: its name, its type and what belongs to that."""


class PostgresTable(Struct, frozen=True, kw_only=True):
    name: str
    oid: int
    columns: StructType
    attributes: Attributes
    given: frozenset[str]
    """Numbers of the columns that rows get a value in by themselves."""
    below: dict[int, str]
    """Partitions, and tables that inherit."""
    stored: dict[int, str]
    """It and those below, as far as they have rows of their own."""
    inheriting: frozenset[int]
    """Those of them that are no partitions."""

    @classmethod
    def described(cls, connection: Any, schema: str, name: str) -> PostgresTable:
        found = connection.execute(
            "SELECT c.oid::bigint, c.relkind <> 'p' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relname = %s",
            (schema, name),
        ).fetchone()
        rows = [] if found is None else connection.execute(_COLUMNS, found[:1]).fetchall()
        if not rows:
            raise SourceNotFound(f"There is no table {schema}.{name} in the database")
        below = connection.execute(_BELOW, found[:1]).fetchall()
        return cls(
            name=name,
            oid=found[0],
            columns=StructType(
                tuple(StructField(column, _type(kind, modifier)) for _, column, kind, modifier, _ in rows)
            ),
            attributes={number: [column, kind, modifier] for number, column, kind, modifier, _ in rows},
            given=frozenset(number for number, *_, has_default in rows if has_default),
            below={oid: child for oid, child, *_ in below},
            stored=dict([*([(found[0], name)] if found[1] else []), *((one[0], one[1]) for one in below if one[3])]),
            inheriting=frozenset(oid for oid, _, is_partition, _ in below if not is_partition),
        )

    def has(self, oid: int) -> bool:
        """Whether rows of that table are rows of this one."""
        return oid == self.oid or oid in self.below

    def mark(self) -> dict[str, Any]:
        """What a watermark keeps of it."""
        return {"table": self.oid, "columns": self.attributes}

    def untold(self, mark: Mapping[str, Any]) -> str | None:
        """What has happened to rows since, and is not in the log."""
        if mark.get("table", self.oid) != self.oid:
            return "it is another table than before"
        known: Attributes = mark.get("columns", self.attributes)
        for number, (name, *kind) in self.attributes.items():
            if number not in known:
                if number in self.given:
                    return f"the column {name} has come with a value"
            elif known[number] != [name, *kind]:
                what = "name" if known[number][1:] == kind else "type"
                return f"the column {known[number][0]} has got another {what}"
        return None

    def check_publication(self, connection: Any, name: str) -> None:
        """Raises for one that leaves something out."""
        found = connection.execute(
            "SELECT oid, to_jsonb(p) FROM pg_publication p WHERE pubname = %s", (name,)
        ).fetchone()
        if found is None:
            raise SourceNotFound(f"There is no publication {name} in the database", hint=f"CREATE PUBLICATION {name} …")
        oid, told = found
        left_out = [one for one in _OPERATIONS if not told.get(f"pub{one}", True)]
        if left_out:
            raise InvalidArgument(
                f"The publication {name} leaves out {', '.join(left_out)}",
                hint=f"ALTER PUBLICATION {name} SET (publish = '{', '.join(_OPERATIONS)}')",
            )
        published = dict(connection.execute(_PUBLISHED, (oid,)).fetchall())
        parents = {self.oid, *self._above(connection)}
        if any(is_part for one, is_part in published.items() if one in parents or one in self.below):
            raise InvalidArgument(
                f"The publication {name} has only some rows or columns of {self.name}",
                hint="Publish the table without WHERE and without a list of columns",
            )
        if told["puballtables"] or self._is_in_schema(connection, oid):
            return
        missing = [] if parents & published.keys() else [self.name]
        missing += [self.below[one] for one in self.inheriting if one not in published]
        if missing:
            raise InvalidArgument(
                f"The publication {name} does not publish all of {self.name}: not {', '.join(missing)}",
                hint=f"ALTER PUBLICATION {name} ADD TABLE {', '.join(missing)}, then load the table again",
            )

    def _above(self, connection: Any) -> list[int]:
        """What it is a partition of."""
        asked = "SELECT relid::oid::bigint FROM pg_partition_ancestors(%s) AS relid"
        return [oid for (oid,) in connection.execute(asked, (self.oid,)).fetchall()]

    def _is_in_schema(self, connection: Any, publication: int) -> bool:
        if connection.info.server_version < 150_000:
            return False
        asked = (
            "SELECT 1 FROM pg_publication_namespace p JOIN pg_class c ON c.relnamespace = p.pnnspid"
            " WHERE p.pnpubid = %s AND c.oid = %s"
        )
        return connection.execute(asked, (publication, self.oid)).fetchone() is not None


def _type(name: str, modifier: int) -> DataType:
    if name == "numeric" and modifier >= 4:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
        if precision <= 38 and scale <= precision:
            return DecimalType(precision, scale)
    return _TYPES.get(name, types.STRING)
