"""MERGE in Spark: the same meaning as `commands/merge/command`, for sources that do not fit in one process.

Spark joins; tasks read and write files as Arrow. First the columns of conditions of the files that may match are joined
with the source, which gives the place of every row that changes. Then only files with such rows are read whole. The
source is kept by Spark while the merge runs, so it is evaluated once.

Conditions and values go to Spark as they were written, over two frames with the aliases of the merge, so Spark binds
their names by its own rules. What `expr` understands of the condition only leaves out files and columns earlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from lakeseal.clock import now_ms
from lakeseal.commands.command import EVERY_TIME, CommandContext, FilesToWrite, PlannedChange, Written
from lakeseal.commands.file_changes import live_rows, removal, with_vector
from lakeseal.commands.merge.clauses import MergeCommand
from lakeseal.commands.merge.evolution import evolved
from lakeseal.commands.merge.metrics import merge_metrics, merge_operation
from lakeseal.commands.merge.names import SOURCE, TARGET, own_names, sides
from lakeseal.commands.touched_files import changeable
from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commit.proposal import Operation
from lakeseal.errors import AmbiguousMerge, InvalidInput
from lakeseal.expr import syntax as sql
from lakeseal.expr.expression import Expression, literal
from lakeseal.expr.render import quote_name
from lakeseal.files.file_schema import CHANGE_TYPE
from lakeseal.jobs.search import write_vectors
from lakeseal.log.data import DataFile, DataReader, ReadSpec, data_files
from lakeseal.log.files import add_actions
from lakeseal.protocol.actions import Action, AddFile
from lakeseal.protocol.row_tracking import RowTrackingColumns
from lakeseal.protocol.schema import BYTE, DATE, INTEGER, LONG, SHORT, STRING, StructField, StructType
from lakeseal.spark.engine import SparkEngine
from lakeseal.spark.failures import analysed, recovered
from lakeseal.spark.lent_settings import LentSettings
from lakeseal.spark.merge_columns import MergeColumns
from lakeseal.spark.placed_rows import FILE, ROW, placed_rows
from lakeseal.spark.predicates import understood
from lakeseal.spark.read_task import opener
from lakeseal.spark.schema import data_schema, spark_type

_SOURCE_ROW = "__lakeseal_source"
_CLAUSE = "__lakeseal_clause"
# So many rows are sent to every executor rather than the whole table to be shuffled to meet them.
_BROADCAST_ROWS = 500_000
_RANGED = (BYTE, SHORT, INTEGER, LONG, STRING, DATE)
# Spark passes over parts of what it keeps by least and greatest values, which leave NaN out: rows that match would be
# lost.
_WHOLE_CACHES = LentSettings({"spark.sql.inMemoryColumnarStorage.partitionPruning": "false"})


class SparkMerge(Struct, frozen=True, kw_only=True):
    """The command: a merge with a DataFrame, for the engine of its session."""

    shown: ClassVar[str | None] = "merge"
    times: ClassVar[tuple[str, ...]] = EVERY_TIME

    asked: MergeCommand
    source: DataFrame

    def decide(self, context: CommandContext) -> PlannedChange:
        context.until_end.enter_context(recovered())
        context.until_end.enter_context(analysed("do this merge"))
        return _SparkMerge(self.asked, context, self.source).change()


class _Touched(Struct, frozen=True, kw_only=True):
    number: int
    add: AddFile
    file: DataFile
    acted: int


class _SparkMerge:
    def __init__(self, command: MergeCommand, context: CommandContext, source: DataFrame) -> None:
        self._command = command
        self._txn = context.txn
        self._store = context.store
        self._progress = context.progress
        self._until_end = context.until_end
        assert isinstance(context.engine, SparkEngine), "a DataFrame is its session's"
        self._spark = context.engine.spark
        self._settings = context.engine.settings
        self._snapshot = changeable(context.txn)
        schema = data_schema(source.schema)
        self._table = evolved(command, context.txn, schema)
        self._row_ids = RowTrackingColumns.of(self._snapshot.properties)
        self._columns = MergeColumns(command, self._table, schema, self._settings, self._row_ids)
        self._on = self._understood()
        self._until_end.enter_context(_WHOLE_CACHES.lent(self._spark))
        numbered = self._keep(source.withColumn(_SOURCE_ROW, F.monotonically_increasing_id()))
        self._source = numbered.alias(self._columns.source_alias)
        properties = self._snapshot.properties
        self._by_vectors = properties.deletion_vectors
        self._feed = properties.change_data_feed
        self._updates = [n for n, clause in enumerate(command.clauses) if clause.action == "update"]
        self._sources = 0

    def change(self) -> PlannedChange:
        self._sources = self._source.count()
        self._columns.check(self._rows([], None), self._source)
        candidates = self._txn.filter_files(None if self._on is None else self._predicate(self._on))
        numbered = list(enumerate(data_files(candidates)))
        self._progress.stage(f"searching in {len(numbered)} files")
        pairs, actions = self._matched(numbered)
        touched, counts = self._touched(actions, candidates, numbered)
        writes = self._writes(pairs, actions, touched, counts)

        def finish(written: Written) -> tuple[list[Action], Operation]:
            files = [*written, *self._old_files(actions, touched)]
            counts["copied"] = 0 if self._by_vectors else self._copied(touched) or 0
            return files, merge_operation(self._command, merge_metrics(files, counts, self._sources))

        return PlannedChange(finish=finish, writes=writes, rewritten=len(touched), nothing="no row changes")

    def _understood(self) -> Expression | None:
        """The condition over flat names, where `expr` reads it as the session does."""
        if self._settings.other_quotes and ('"' in self._command.on or "\\" in self._command.on):
            return None
        try:
            return self._columns.names.resolve(self._command.on)
        except InvalidInput:
            return None

    def _predicate(self, on: Expression) -> str | None:
        """What rows of the table must be like to have a match."""
        if self._command.of("not_matched_by_source"):
            return None
        parts = [own_names(part) for part in on.conjuncts() if sides(part) == {TARGET}]
        parts += self._key_ranges(on)
        if not parts:
            return None
        whole = " AND ".join(f"({part})" for part in parts)
        return understood(whole, self._snapshot.schema, self._settings)

    def _key_ranges(self, on: Expression) -> list[str]:
        """Between which values of the source a column must be that is to equal one of them."""
        keys = [key for part in on.conjuncts() if (key := _plain_key(part, self._table)) is not None]
        if not keys:
            return []
        bounds = [f(F.expr(source)).cast(spark_type(field.type)) for field, source in keys for f in (F.min, F.max)]
        (row,) = self._source.select(*bounds).collect()
        ranges = []
        for number, (field, source) in enumerate(keys):
            (given,) = data_schema(self._source.select(F.expr(source).alias("it")).schema).fields
            if given.type != field.type:
                continue  # comparing them casts one or the other
            low, high = row[2 * number], row[2 * number + 1]
            name = quote_name(field.name)
            ranges.append("false" if low is None else f"{name} BETWEEN {literal(low).sql} AND {literal(high).sql}")
        return ranges

    def _rows(self, files: Sequence[tuple[int, DataFile]], columns: Collection[str] | None) -> DataFrame:
        names = [n for n in self._table.names if columns is None or n in columns]
        spec = ReadSpec(
            schema=self._table,
            partition_columns=self._snapshot.partition_columns,
            mapping=self._snapshot.properties.column_mapping_mode,  # type: ignore[arg-type]
            columns=tuple(names),
            max_decoded_bytes=self._snapshot.trust.max_decoded_bytes,
            places=self._snapshot.places,
            row_ids=self._row_ids if columns is None else None,
            pads_chars=self._settings.pads_chars,
        )
        rows = placed_rows(self._spark, self._store, spec, files)
        read = names if columns is not None else self._columns.row_names
        return rows.select(*map(quoted, read), quoted(FILE), quoted(ROW)).alias(self._columns.target_alias)

    def _matched(self, files: Sequence[tuple[int, DataFile]]) -> tuple[DataFrame, DataFrame]:
        """Pairs that belong together, and the rows that change, by their places."""
        target = self._rows(files, self._columns.searched(self._on))
        source = _sent(self._source, self._sources)
        joined = target.join(source, F.expr(self._columns.on), "inner")
        chosen = self._columns.clause("matched").alias(_CLAUSE)
        pairs = self._keep(joined.select(quoted(FILE), quoted(ROW), quoted(_SOURCE_ROW), chosen))
        actions = pairs.where(quoted(_CLAUSE).isNotNull())
        if self._command.of("not_matched_by_source"):
            alone = target.join(pairs.select(quoted(FILE), quoted(ROW)), [FILE, ROW], "left_anti")
            chosen = self._columns.clause("not_matched_by_source").alias(_CLAUSE)
            nobody = F.lit(None).cast("long").alias(_SOURCE_ROW)
            by_source = alone.select(quoted(FILE), quoted(ROW), nobody, chosen)
            actions = actions.unionByName(by_source.where(quoted(_CLAUSE).isNotNull()))
        actions = self._keep(actions)
        self._check_ambiguous(actions, target)
        if self._command.may_match_often:
            actions = self._keep(actions.dropDuplicates([FILE, ROW]))
        return pairs, actions

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._until_end.callback(kept.unpersist)
        return kept

    def _check_ambiguous(self, actions: DataFrame, target: DataFrame) -> None:
        if self._command.may_match_often:
            return
        several = actions.groupBy(FILE, ROW).agg(F.count("*").alias("count"))
        wrong = several.where("`count` > 1").limit(1).collect()
        if wrong:
            place = (quoted(FILE) == wrong[0][FILE]) & (quoted(ROW) == wrong[0][ROW])
            (row,) = target.where(place).drop(FILE, ROW).limit(1).collect()
            shown = ", ".join(f"{name}: {value!r}" for name, value in row.asDict().items())
            raise AmbiguousMerge(f"Several rows of the source would change the row {{{shown}}}")

    def _touched(
        self, actions: DataFrame, candidates: Any, numbered: Sequence[tuple[int, DataFile]]
    ) -> tuple[list[_Touched], Counter[str]]:
        found = actions.groupBy(FILE, _CLAUSE).count().collect()
        acted: Counter[int] = Counter()
        counts: Counter[str] = Counter()
        for row in found:
            acted[row[FILE]] += row["count"]
            counts[self._command.clauses[row[_CLAUSE]].name] += row["count"]
        adds = {add.path: add for add in add_actions(candidates)} if acted else {}
        files = dict(numbered)
        return [
            _Touched(number=n, add=adds[files[n].path], file=files[n], acted=acted[n]) for n in sorted(acted)
        ], counts

    def _writes(
        self, pairs: DataFrame, actions: DataFrame, touched: list[_Touched], counts: Counter[str]
    ) -> tuple[FilesToWrite, ...]:
        updates = any(counts[clause.name] for clause in self._command.clauses if clause.action == "update")
        changes = self._feed and bool(touched) and (updates or not self._by_vectors)
        parts = []
        if touched and (changes or updates or not self._by_vectors):
            parts.append(self._rewritten(actions, touched, changes))
        inserted = self._inserted(pairs)
        if inserted is not None:
            counts["when_not_matched_insert"] = inserted.count()
            if counts["when_not_matched_insert"]:
                parts.append(self._columns.with_changes(self._columns.inserted(inserted, quoted(_CLAUSE)), changes))
        if not parts:
            return ()
        frame = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        return (FilesToWrite(data=frame, options=WriteOptions(changes=changes, with_row_ids=True)),)

    def _inserted(self, pairs: DataFrame) -> DataFrame | None:
        if not self._command.of("not_matched"):
            return None
        fresh = self._source.join(pairs.select(quoted(_SOURCE_ROW)), [_SOURCE_ROW], "left_anti")
        chosen = fresh.withColumn(_CLAUSE, self._columns.clause("not_matched"))
        return self._keep(chosen.where(quoted(_CLAUSE).isNotNull()))

    def _rewritten(self, actions: DataFrame, touched: list[_Touched], changes: bool) -> DataFrame:
        rows = self._rows([(t.number, t.file) for t in touched], None)
        given = _sent(actions.join(self._source, [_SOURCE_ROW], "left"), sum(one.acted for one in touched))
        joined = rows.join(given, [FILE, ROW], "inner" if self._by_vectors else "left")
        if not changes:
            keeps = quoted(_CLAUSE).isNull() | quoted(_CLAUSE).isin(self._updates)
            return self._columns.updated(joined.where(keeps), quoted(_CLAUSE)).select(
                *(F.col(quote_name(n)) for n in self._columns.row_names)
            )
        return self._columns.with_feed(
            self._columns.updated(joined, quoted(_CLAUSE)), quoted(_CLAUSE), self._updates, CHANGE_TYPE
        )

    def _copied(self, touched: list[_Touched]) -> int | None:
        rows = [live_rows(one.add) for one in touched]
        known = [count for count in rows if count is not None]
        return None if len(known) < len(rows) else sum(known) - sum(one.acted for one in touched)

    def _old_files(self, actions: DataFrame, touched: list[_Touched]) -> list[Action]:
        now = now_ms()
        old: list[Action] = [removal(one.add, now_ms=now) for one in touched]
        if not self._by_vectors or not touched:
            return old
        partly = [(one, rows) for one in touched if (rows := self._live(one)) != one.acted]
        places = {
            row[FILE]: np.array(sorted(row["rows"]), np.uint64)
            for row in actions.groupBy(FILE).agg(F.collect_set(quoted(ROW)).alias("rows")).collect()
        }
        spec = ReadSpec(
            schema=self._table, partition_columns=self._snapshot.partition_columns, places=self._snapshot.places
        )
        store = self._store.open()
        reader = DataReader(store, spec, outside=opener(self._store))
        properties = self._snapshot.properties
        prefix = properties.random_prefix_length if properties.randomize_file_prefixes else 0
        vectors = write_vectors(reader, store, [(one.file, places[one.number]) for one, _ in partly], prefix)
        for (one, rows), vector in zip(partly, vectors, strict=True):
            hidden = 0 if one.add.deletion_vector is None else one.add.deletion_vector.cardinality
            old.append(with_vector(one.add, vector, records=rows + hidden))
        return old

    def _live(self, one: _Touched) -> int:
        known = live_rows(one.add)
        return known if known is not None else self._rows([(one.number, one.file)], []).count()


def _plain_key(part: Expression, table: StructType) -> tuple[StructField, str] | None:
    """Of `t.column = …` the column and the source's side, by its own names, where values of the column's type have a
    plain order."""
    root = part.root
    if not isinstance(root, sql.Call) or root.name != "=":
        return None
    for target, source in (root.args, root.args[::-1]):
        if isinstance(target, sql.Column) and len(target.parts) == 1 and target.parts[0].startswith(TARGET):
            field = table.field(target.parts[0][len(TARGET) :])
            if field is not None and field.type in _RANGED and sides(Expression(part.text, source)) == {SOURCE}:
                return field, own_names(Expression(part.text, source))
    return None


def _sent(frame: DataFrame, rows: int) -> DataFrame:
    return F.broadcast(frame) if rows <= _BROADCAST_ROWS else frame


def quoted(name: str) -> Column:
    return F.col(quote_name(name))
