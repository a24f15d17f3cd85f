"""DESCRIBE and SHOW: what a table is, as rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakeseal.commands.clone import properties_of_a_copy
from lakeseal.commit.alter_columns import found as column_at
from lakeseal.commit.clustering import clustering_columns
from lakeseal.errors import InvalidArgument
from lakeseal.expr.render import quote_name, quote_string
from lakeseal.files.constraints import generation_expression
from lakeseal.files.normalize import CURRENT_DEFAULT
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.identity import identity_of
from lakeseal.protocol.properties import CONSTRAINT_PREFIX, TableProperties
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructField, StructType
from lakeseal.statements.statement import Describe, DescribeColumn, History, ShowProperties
from lakeseal.table import Table
from lakeseal.table_sql.answers import TEXTS, answer
from lakeseal.table_sql.context import SqlContext

_MOMENT = pa.timestamp("us", "UTC")
_TEXT, _LONG = pa.string(), pa.int64()


def history(context: SqlContext, table: Table, statement: History) -> Any:
    types = {
        "version": _LONG,
        "timestamp": _MOMENT,
        "operation": _TEXT,
        "operationParameters": TEXTS,
        "readVersion": _LONG,
        "isolationLevel": _TEXT,
        "isBlindAppend": pa.bool_(),
        "operationMetrics": TEXTS,
        "userMetadata": _TEXT,
        "engineInfo": _TEXT,
    }
    entries = table.history(statement.limit)
    rows = [{**entry, "timestamp": _moment(entry.get("timestamp"))} for entry in entries]
    return answer(context, types, [{name: _texts(row.get(name)) for name in types} for row in rows])


def detail(context: SqlContext, table: Table, name: str | None) -> Any:
    """As Delta Spark's DESCRIBE DETAIL."""
    snapshot = table.snapshot()
    metadata, protocol = snapshot.metadata, snapshot.protocol
    row = {
        "format": "delta",
        "id": metadata.id,
        "name": name or metadata.name,
        "description": metadata.description,
        "location": snapshot.table,
        "createdAt": _from_ms(metadata.created_time),
        "lastModified": _moment(table.history(1)[0].get("timestamp")),
        "partitionColumns": list(metadata.partition_columns),
        "clusteringColumns": list(_clustering(snapshot)),
        "numFiles": snapshot.files.num_rows,
        "sizeInBytes": snapshot.size_in_bytes,
        "properties": list(_shown(snapshot).items()),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}),
    }
    texts = pa.list_(_TEXT)
    types = dict.fromkeys(("format", "id", "name", "description", "location"), _TEXT) | {
        "createdAt": _MOMENT,
        "lastModified": _MOMENT,
        "partitionColumns": texts,
        "clusteringColumns": texts,
        "numFiles": _LONG,
        "sizeInBytes": _LONG,
        "properties": TEXTS,
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "tableFeatures": texts,
    }
    return answer(context, types, [row])


def describe(context: SqlContext, table: Table, statement: Describe) -> Any:
    snapshot = table.snapshot()
    rows = [_described(field.name, _type(field), field.metadata.get("comment")) for field in snapshot.schema.fields]
    if snapshot.partition_columns:
        rows += [_described("# Partition Information"), _described("# col_name", "data_type", "comment")]
        for name in snapshot.partition_columns:
            field = snapshot.schema.field(name)
            assert field is not None
            rows.append(_described(name, _type(field), field.metadata.get("comment")))
    if statement.extended:
        rows += [_described(), _described("# Detailed Table Information")]
        told = {
            "Name": statement.table.shown,
            "Type": "EXTERNAL",
            "Provider": "delta",
            "Location": snapshot.table,
            "Comment": snapshot.metadata.description,
            "Version": str(snapshot.version),
            "Table Properties": "[" + ",".join(f"{k}={v}" for k, v in sorted(_shown(snapshot).items())) + "]",
        }
        rows += [_described(key, value) for key, value in told.items() if value is not None]
    return answer(context, dict.fromkeys(("col_name", "data_type", "comment"), _TEXT), rows)


def describe_column(context: SqlContext, table: Table, statement: DescribeColumn) -> Any:
    _, field = column_at(table.snapshot().schema, statement.column)
    # Spelled as it was asked for, as Spark has it.
    told = {"col_name": statement.column[-1], "data_type": _type(field), "comment": field.metadata.get("comment")}
    rows = [{"info_name": name, "info_value": value} for name, value in told.items()]
    return answer(context, dict.fromkeys(("info_name", "info_value"), _TEXT), rows)


def show_columns(context: SqlContext, table: Table) -> Any:
    return answer(context, {"col_name": _TEXT}, [{"col_name": name} for name in table.snapshot().schema.names])


def show_properties(context: SqlContext, table: Table, statement: ShowProperties) -> Any:
    properties = _shown(table.snapshot())
    if statement.key is not None:
        value = properties.get(statement.key)
        if value is None:
            raise InvalidArgument(
                f"The table has no property {statement.key!r}",
                table=table.uri,
                hint=f"It has {', '.join(sorted(properties)) or 'none'}",
            )
        properties = {statement.key: value}
    rows = [{"key": key, "value": value} for key, value in sorted(properties.items())]
    return answer(context, {"key": _TEXT, "value": _TEXT}, rows)


def show_create(context: SqlContext, table: Table, name: str) -> Any:
    return answer(context, {"createtab_stmt": _TEXT}, [{"createtab_stmt": created_by(table.snapshot(), name)}])


def created_by(snapshot: Snapshot, name: str) -> str:
    """A statement that makes an empty table like this one."""
    metadata = snapshot.metadata
    elements = [_definition(field) for field in snapshot.schema.fields]
    # What only this table can have is nothing to set.
    kept = {*properties_of_a_copy(snapshot)} - {TableProperties.column_mapping_max_id.key}
    properties = {key: value for key, value in _shown(snapshot).items() if key in kept}
    for key in sorted(properties):
        if key.lower().startswith(CONSTRAINT_PREFIX):
            constraint = quote_name(key[len(CONSTRAINT_PREFIX) :])
            elements.append(f"CONSTRAINT {constraint} CHECK ({properties[key]}\n  )")
    lines = [f"CREATE TABLE {name} (\n  " + ",\n  ".join(elements) + ")", "USING delta"]
    if metadata.partition_columns:
        lines.append(f"PARTITIONED BY ({', '.join(map(quote_name, metadata.partition_columns))})")
    if clustering := _clustering(snapshot):
        lines.append(f"CLUSTER BY ({', '.join(clustering)})")
    if metadata.description:
        lines.append(f"COMMENT {quote_string(metadata.description)}")
    own = {k: v for k, v in sorted(properties.items()) if not k.lower().startswith(CONSTRAINT_PREFIX)}
    if own:
        told = ",\n  ".join(f"{quote_string(key)} = {quote_string(value)}" for key, value in own.items())
        lines.append(f"TBLPROPERTIES (\n  {told})")
    return "\n".join(lines)


def _definition(field: StructField) -> str:
    parts = [quote_name(field.name), field.char_varchar or _written(field.type)]
    if not field.nullable:
        parts.append("NOT NULL")
    default, generated = field.metadata.get(CURRENT_DEFAULT), generation_expression(field)
    if isinstance(default, str):
        parts.append(f"DEFAULT {default}")
    if (identity := identity_of(field)) is not None:
        how = "BY DEFAULT" if identity.allows_explicit else "ALWAYS"
        parts.append(f"GENERATED {how} AS IDENTITY (START WITH {identity.start} INCREMENT BY {identity.step})")
    if generated is not None:
        parts.append(f"GENERATED ALWAYS AS ({generated})")
    if (comment := field.metadata.get("comment")) is not None:
        parts.append(f"COMMENT {quote_string(str(comment))}")
    return " ".join(parts)


def _described(name: str = "", kind: str = "", comment: Any = None) -> dict[str, Any]:
    return {"col_name": name, "data_type": kind, "comment": comment}


def _type(field: StructField) -> str:
    return field.char_varchar or str(field.type)


def _written(data_type: DataType) -> str:
    """A type that can be read again, whatever its fields are called."""
    match data_type:
        case StructType(fields=fields):
            return f"struct<{', '.join(_written_field(field) for field in fields)}>"
        case ArrayType(element=element):
            return f"array<{_written(element)}>"
        case MapType(key=key, value=value):
            return f"map<{_written(key)}, {_written(value)}>"
        case _:
            return str(data_type)


def _written_field(field: StructField) -> str:
    comment = field.metadata.get("comment")
    told = "" if comment is None else f" COMMENT {quote_string(str(comment))}"
    return f"{quote_name(field.name)}: {_written(field.type)}{'' if field.nullable else ' NOT NULL'}{told}"


def _shown(snapshot: Snapshot) -> dict[str, str]:
    secret = TableProperties.managed_commit_owner_conf.key
    return {k: v for k, v in snapshot.metadata.configuration.items() if v is not None and k != secret}


def _clustering(snapshot: Snapshot) -> tuple[str, ...]:
    names = {field.physical_name: field.name for field in snapshot.schema.fields}
    return tuple(".".join((names.get(first, first), *rest)) for first, *rest in clustering_columns(snapshot.domains))


def _texts(value: Any) -> Any:
    return [(str(k), str(v)) for k, v in value.items()] if isinstance(value, dict) else value


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str):
        return datetime.fromisoformat(value)
    return _from_ms(value)


def _from_ms(value: Any) -> datetime | None:
    return datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else None
