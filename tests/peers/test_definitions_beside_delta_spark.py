"""Random CREATE, ALTER, INSERT, UPDATE and DELETE by `lakeseal.sql`, without a session, beside the same texts in Delta
Spark: after each statement both have the same columns, the same rows and the same change feed, or both have refused it.

Each begins with a table of its own. What one of the two takes and the other does not ends the history, unless it is
among what is known (`_OURS_ONLY`, `_THEIRS_ONLY`).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import lakeseal
from lakeseal import Table, errors
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructType
from oracles.rows import same_rows
from oracles.seeds import case, cases

pytestmark = pytest.mark.peers

_DELTA = """
    result = []
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for history in todo:
        told = []
        for statement in history:
            try:
                spark.sql(statement).collect()
                told.append(None)
            except Exception as error:
                told.append(f"{type(error).__name__}: {error}"[:300])
        result.append(told)
"""
_TYPES = (
    "INT",
    "BIGINT",
    "STRING",
    "DOUBLE",
    "DATE",
    "DECIMAL(8,2)",
    "SMALLINT",
    "BOOLEAN",
    "STRUCT<a: INT, b: STRING>",
)
_WIDER = {"INT": "BIGINT", "SMALLINT": "INT", "DECIMAL(8,2)": "DECIMAL(12,2)", "FLOAT": "DOUBLE"}
_VALUES = {
    "INT": ("1", "-7", "NULL", "2147483647"),
    "SMALLINT": ("3", "NULL", "-2"),
    "BIGINT": ("5", "NULL", "9007199254740993"),
    "STRING": ("'x'", "''", "NULL", "'it''s'", "'ü'"),
    "DOUBLE": ("1.5", "NULL", "-0.25", "2e10"),
    "DATE": ("date'2024-02-29'", "NULL", "'2001-01-01'"),
    "DECIMAL(8,2)": ("1.25", "NULL", "-100", "0.10"),
    "DECIMAL(12,2)": ("1.25", "NULL", "-100"),
    "BOOLEAN": ("true", "false", "NULL"),
    "STRUCT<a: INT, b: STRING>": ("NULL", "named_struct('a', 1, 'b', 'y')"),
}
# Delta Spark refuses these, and there is nothing wrong with them.
_OURS_ONLY = ("NOT_SUPPORTED_CHANGE_COLUMN", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", "DELTA_NOT_NULL")
# What needs a session of Spark here is refused by name.
_THEIRS_ONLY = (errors.UnsupportedExpression, errors.UnsupportedFeature)


class Definitions:
    """A history of texts about one table, in which `{t}` stands for it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._fresh = 0
        self.feed = chance.random() < 0.5
        self.columns: dict[str, str] = {"id": "INT"}
        self.partitioned: str | None = None
        self.texts = [self._create()]
        for _ in range(chance.randrange(5, 9)):
            self.texts.append(self._next())

    def _name(self) -> str:
        self._fresh += 1
        return f"{self._chance.choice(['c', 'Name', 'x_y'])}{self._fresh}"

    def _other(self) -> str | None:
        """A column that may change."""
        return self._chance.choice([name for name in self.columns if name not in ("id", self.partitioned)] or [None])

    def _create(self, how: str = "CREATE TABLE") -> str:
        chance = self._chance
        self.columns = {"id": "INT"}
        says = ["id INT"]
        for _ in range(chance.randrange(1, 4)):
            name, kind = self._name(), chance.choice(_TYPES)
            self.columns[name] = kind
            more = chance.choice(["", "", f" COMMENT 'about {name}'", f" DEFAULT {_default(chance, kind)}"])
            says.append(f"{name} {kind}{more}")
        flat = [name for name, kind in self.columns.items() if kind in ("STRING", "DATE") and name != "id"]
        self.partitioned = chance.choice(flat) if flat and chance.random() < 0.4 and len(self.columns) > 2 else None
        by = f" PARTITIONED BY ({self.partitioned})" if self.partitioned else ""
        properties = {"delta.feature.allowColumnDefaults": "supported", "delta.columnMapping.mode": "name"}
        properties |= {"delta.enableTypeWidening": "true"}
        properties |= {"delta.enableChangeDataFeed": "true"} if self.feed else {}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        return f"{how} {{t}} ({', '.join(says)}) USING delta{by} TBLPROPERTIES ({listed})"

    def _next(self) -> str:
        chance = self._chance
        kinds = [
            "insert",
            "insert",
            "insert",
            "columns",
            "overwrite",
            "update",
            "delete",
            "add",
            "add",
            "drop",
            "rename",
        ]
        kinds += ["widen", "default", "comment", "constraint", "property", "replace", "by_name"]
        match chance.choice(kinds):
            case "insert" | "overwrite" as kind:
                into = "INSERT OVERWRITE {t}" if kind == "overwrite" and chance.random() < 0.5 else "INSERT INTO {t}"
                return f"{into} VALUES {self._rows(list(self.columns))}"
            case "columns":
                names = [name for name in self.columns if name == "id" or chance.random() < 0.6]
                chance.shuffle(names)
                return f"INSERT INTO {{t}} ({', '.join(names)}) VALUES {self._rows(names)}"
            case "by_name":
                names = [name for name in self.columns if name == "id" or chance.random() < 0.7]
                listed = ", ".join(f"CAST({self._value(name)} AS {self.columns[name]}) AS {name}" for name in names)
                return f"INSERT INTO {{t}} BY NAME SELECT {listed}"
            case "update":
                name = chance.choice(list(self.columns))
                return (
                    f"UPDATE {{t}} SET {name} = {self._value(name)} WHERE id {chance.choice(['> 1', '= 1', 'IS NULL'])}"
                )
            case "delete":
                return f"DELETE FROM {{t}} WHERE id {chance.choice(['> 3', '= 2', 'IS NULL', '< 0'])}"
            case "add":
                name, kind = self._name(), chance.choice(_TYPES)
                where = chance.choice(
                    ["", "", " FIRST", f" AFTER {chance.choice(list(self.columns))}", " COMMENT 'new'"]
                )
                first = " FIRST" in where
                after = where.removeprefix(" AFTER ") if " AFTER " in where else None
                self._put(name, kind, first=first, after=after)
                return f"ALTER TABLE {{t}} ADD COLUMNS ({name} {kind}{where})"
            case "drop" if (name := self._other()) is not None:
                del self.columns[name]
                return f"ALTER TABLE {{t}} DROP COLUMN {name}"
            case "rename" if (name := self._other()) is not None:
                fresh = self._name()
                self.columns = {fresh if one == name else one: kind for one, kind in self.columns.items()}
                return f"ALTER TABLE {{t}} RENAME COLUMN {name} TO {fresh}"
            case "widen" if (name := self._other()) is not None and self.columns[name] in _WIDER:
                self.columns[name] = _WIDER[self.columns[name]]
                return f"ALTER TABLE {{t}} ALTER COLUMN {name} TYPE {self.columns[name]}"
            case "default" if (name := self._other()) is not None:
                if chance.random() < 0.3:
                    return f"ALTER TABLE {{t}} ALTER COLUMN {name} DROP DEFAULT"
                return f"ALTER TABLE {{t}} ALTER COLUMN {name} SET DEFAULT {_default(chance, self.columns[name])}"
            case "comment":
                return f"ALTER TABLE {{t}} ALTER COLUMN {chance.choice(list(self.columns))} COMMENT 'said so'"
            case "constraint":
                if chance.random() < 0.3:
                    return "ALTER TABLE {t} DROP CONSTRAINT IF EXISTS small"
                return f"ALTER TABLE {{t}} ADD CONSTRAINT small CHECK (id < {chance.choice([2, 1000])})"
            case "property":
                return (
                    "ALTER TABLE {t} SET TBLPROPERTIES ('some.thing' = 'x', 'delta.logRetentionDuration' = '20 days')"
                )
            case "replace" if chance.random() < 0.4:
                return self._create("CREATE OR REPLACE TABLE")
            case _:
                return f"INSERT INTO {{t}} (id) VALUES ({chance.randrange(5)})"

    def _put(self, name: str, kind: str, *, first: bool, after: str | None) -> None:
        found = list(self.columns.items())
        place = 0 if first else len(found) if after is None else 1 + [one for one, _ in found].index(after)
        found.insert(place, (name, kind))
        self.columns = dict(found)

    def _rows(self, names: list[str]) -> str:
        return ", ".join(
            f"({', '.join(self._value(name) for name in names)})" for _ in range(self._chance.randrange(1, 4))
        )

    def _value(self, name: str) -> str:
        if name == "id":
            return str(self._chance.randrange(5))
        return self._chance.choice(_VALUES[self.columns[name]])


def _default(chance: random.Random, kind: str) -> str:
    return chance.choice([value for value in _VALUES[kind] if not value.startswith("named")])


@pytest.mark.timeout(36000)
def test_definitions_mean_what_they_mean_to_delta_spark(delta_spark: Any, tmp_path: Path) -> None:
    seeds = list(cases(10, 250))
    histories = []
    for seed in seeds:
        with case(seed) as chance:
            histories.append(Definitions(chance))
    todo = [
        [text.replace("{t}", f"delta.`{tmp_path}/{seed}-theirs`") for text in one.texts]
        for seed, one in zip(seeds, histories, strict=True)
    ]
    answers = delta_spark.run(_DELTA, todo=todo)
    compared, ended, wrong = 0, 0, []
    for seed, history, told in zip(seeds, histories, answers, strict=True):
        try:
            with case(seed):
                number = _compare(history, told, tmp_path / f"{seed}-ours", Table(tmp_path / f"{seed}-theirs"))
            compared += number
            ended += number < len(told)
        except AssertionError as error:  # the others may have more to tell
            wrong.append(error)
    print(f"{compared} statements in {len(seeds)} histories, of which {ended} ended early")
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} histories differ", wrong)


def _compare(history: Definitions, told: list[str | None], place: Path, theirs: Table) -> int:
    """How many statements were compared."""
    ours = Table(place)
    version = -1
    for number, (text, refused) in enumerate(zip(history.texts, told, strict=True)):
        before = ours.version() if ours.exists() else -1
        about = f"statement {number}: {text}\n" + "\n".join(history.texts[:number])
        try:
            lakeseal.sql(text.replace("{t}", f"delta.`{place}`"))
        except errors.LakesealError as error:
            if refused is None and isinstance(error, _THEIRS_ONLY):
                return number
            assert refused is not None, f"{about}\nonly Lakeseal refuses it: {error!r}"
            continue
        if refused is not None and any(one in refused for one in _OURS_ONLY):
            return number
        assert refused is None, f"{about}\nonly Delta Spark refuses it: {refused}"
        version = _version_of(theirs, version, text)
        mine, other = ours.snapshot(), theirs.snapshot(version)
        assert _columns(mine.schema) == _columns(other.schema), about
        assert mine.partition_columns == other.partition_columns, about
        assert mine.properties.constraints == other.properties.constraints, about
        same_rows(ours.to_arrow().to_pylist(), theirs.to_arrow(version=version).to_pylist(), about)
        if history.feed and "REPLACE TABLE" not in text and ours.version() > before >= 0 and not _alters(text):
            same_rows(_feed(ours, ours.version()), _feed(theirs, version), f"feed of {about}")
    return len(told)


def _alters(text: str) -> bool:
    return text.startswith(("ALTER", "CREATE"))


def _version_of(theirs: Table, before: int, text: str) -> int:
    """The version that a statement made: the next one that says so, or none if it found nothing to do."""
    names = {"INSERT": "WRITE", "UPDATE": "UPDATE", "DELETE": "DELETE", "CREATE": "CREATE", "ALTER": ""}
    wanted = names[text.split()[0]]
    for entry in sorted(theirs.history(), key=lambda entry: entry["version"]):
        if entry["version"] > before and wanted in (entry["operation"] or ""):
            return int(entry["version"])
    return before


def _columns(schema: StructType) -> list[tuple[Any, ...]]:
    keys = ("comment", "CURRENT_DEFAULT")
    return [
        (field.name, _plain(field.type), field.nullable, {key: field.metadata.get(key) for key in keys})
        for field in schema.fields
    ]


def _plain(data_type: DataType) -> Any:
    match data_type:
        case StructType(fields=fields):
            return [(field.name, _plain(field.type), field.nullable) for field in fields]
        case ArrayType(element=element, contains_null=nulls):
            return ("array", _plain(element), nulls)
        case MapType(key=key, value=value):
            return ("map", _plain(key), _plain(value))
        case _:
            return str(data_type)


def _feed(table: Table, version: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.changes(version, version).to_pylist()
    for row in rows:
        del row["_commit_version"], row["_commit_timestamp"]
    return rows
