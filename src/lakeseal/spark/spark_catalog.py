"""Tables of ours in Spark's own catalog, as far as it lets a data source in Python know which table is meant.

Spark asks the source for the schema once, when a table is made by `CREATE TABLE name USING lakeseal LOCATION 'uri'`,
and says where it is. Later it passes the schema that the catalog has kept, and nothing else. So the schema that it is
given has a note of the place in every column's metadata (`with_note`), by which the table is read (`place_in`).

Writes never go by the note: Spark lets columns of a query through as they are where names and types are the target's,
and their note is then that of the table that was *read*. A write has to say its place, and where columns bear the note
of another one, it is refused (`check_source`): `saveAsTable` would keep that note under the new name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import pyspark.sql.types as spark
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lakeseal.errors import UnsupportedFeature
from lakeseal.spark.options import TABLE_OPTIONS, is_of_storage

NOTE = "__lakeseal_table"
"""Two underscores: no table keeps such notes (`data_schema`)."""
SAVED = "__lakeseal_saved"
"""An option by which writers of this process say that no name of Spark's catalog is made of the columns."""
# What Spark says of a table beside its options.
_SPARKS = frozenset(("provider", "location", "owner", "external", "comment", "collation", "is_managed_location"))
_OPTION = "option."
_PLANNED = re.compile(r"^\(1\) BatchScan lakeseal\b", re.MULTILINE)
_VIEWS = ("VIEW", "TEMPORARY", "METRIC_VIEW")
NO_PLACE = (
    "With CREATE TABLE name USING lakeseal LOCATION 'uri', without columns, a table that is there gets a name that can "
    'be read; DROP TABLE leaves its files. Write it by lakeseal.sql("INSERT INTO name …", spark), by '
    "Table(uri).write(df), or by df.write.format('lakeseal').save(uri)"
)


def is_asked_by_catalog(options: Mapping[str, str]) -> bool:
    """Whether Spark asks for the schema of a table that is being made in its catalog."""
    return any(name.lower() == "provider" for name in options)


def created(options: Mapping[str, str]) -> dict[str, str]:
    """What the user said of a table that is being made in Spark's catalog."""
    lower = {name.lower(): text for name, text in options.items()}
    said = {name.removeprefix(_OPTION) for name in lower if name.startswith(_OPTION)}
    own = {
        name: text
        for name, text in lower.items()
        if not name.startswith(_OPTION) and (name not in _SPARKS or name in said) and not name.startswith("delta.")
    }
    kept = next((name for name in own if is_of_storage(name)), None)
    if kept is not None:
        raise UnsupportedFeature(
            f"The option {kept!r} would be kept in Spark's catalog, and go wherever the table's columns go",
            hint="Set it in the environment of the driver and the executors, or read by a temporary view",
        )
    if not own.keys() & set(TABLE_OPTIONS[:2]):
        raise UnsupportedFeature("A table of Lakeseal in Spark's catalog needs a place of its own", hint=NO_PLACE)
    return own


def with_note(schema: spark.StructType, options: Mapping[str, str]) -> spark.StructType:
    note = msgspec.json.encode(dict(sorted(options.items()))).decode()
    return spark.StructType(
        [
            spark.StructField(field.name, field.dataType, field.nullable, {**(field.metadata or {}), NOTE: note})
            for field in schema.fields
        ]
    )


def place_in(schema: spark.StructType) -> dict[str, str] | None:
    """The options by which a table was made in Spark's catalog, of a schema that the catalog has kept; None where there
    is no note, or more than one."""
    notes = {(field.metadata or {}).get(NOTE) for field in schema.fields}
    note = next(iter(notes)) if len(notes) == 1 else None
    return None if not isinstance(note, str) else msgspec.json.decode(note, type=dict[str, str])


def named_place(spark_session: SparkSession, name: str) -> dict[str, str] | None:
    """The place of a table of ours in Spark's catalog; None if the name is no table's, or not one of ours.

    Views over our tables and other formats' tables made of them have our columns, notes and all: so it is asked what
    kind of thing the name is, and who would read it."""
    try:
        if spark_session.catalog.getTable(name).tableType in _VIEWS:
            return None
        place = place_in(spark_session.table(name).schema)
    except AnalysisException:
        return None
    if place is None:
        return None
    plan = spark_session.sql(f"EXPLAIN FORMATTED TABLE {name}").collect()[0][0]
    return place if _PLANNED.search(plan) else None


def make_name(spark_session: SparkSession, name: str, place: Mapping[str, str], *, anew: bool = False) -> None:
    """Gives a table a name in Spark's catalog; `anew` where it has one and its columns are others now."""
    listed = ", ".join(f"`{key}` '{_escaped(value)}'" for key, value in place.items())
    how = "CREATE OR REPLACE TABLE" if anew else "CREATE TABLE"
    spark_session.sql(f"{how} {name} USING lakeseal OPTIONS ({listed})")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def check_source(options: Mapping[str, str], schema: spark.StructType) -> None:
    """Raises unless a write says where, or where a name could be made of columns that are noted to be elsewhere."""
    lower = {name.lower(): text for name, text in options.items()}
    if not lower.keys() & set(TABLE_OPTIONS[:2]):
        raise UnsupportedFeature(
            "Spark does not tell a data source in Python into which table of its catalog rows go", hint=NO_PLACE
        )
    foreign = any(NOTE in (field.metadata or {}) for field in schema.fields)
    if foreign and SAVED not in lower and place_in(schema) != {"path": lower.get("path")}:
        raise UnsupportedFeature(
            "The columns come from another table of Spark's catalog, and Spark does not say whether their note of it "
            "would be kept under a new name",
            hint="Call lakeseal.register(spark) first, or write by Table(uri).write(df)",
        )
