"""What the rows of one run come to, key by key: pure functions over Arrow.

One rule decides everything, and it is that of a dictionary which is given the rows one after the other, in the order in
which they arrived:

- A row counts if its sequence is greater than the last one known of its key: of this run, of the table, or of a delete
  that is remembered. An equal one is a repeat, a smaller one is late; neither changes anything.
- A row of a change feed counts if its sequence is equal, too: a delete has that of the row that it deletes, and a feed
  tells its changes in order.
- Without a sequence every row counts, and the last to arrive wins.
- A row that says that its key is gone is a delete. Rows of a change feed say what they are in `_change_type`.
- Partial: a null leaves what the row before had, as far back as the key was last deleted.
- Rows that do not say when they arrived (behind a transform) are ordered by their sequence. Where that does not tell
  which of two counts, they are refused: nothing is guessed.

So it does not matter how rows are spread over runs. `latest` gives at most one row for each key; `history` gives, for
keys that rows touch, all versions with the span in which each was true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal import expr
from lakeseal.errors import AmbiguousMerge, InvalidInput, SchemaMismatch
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.feed_columns import CHANGE_TYPE

ARRIVAL = "__lakeseal_arrival"
"""Of waiting rows: where in the plan its unit is, and its number in the unit."""
UNIT = 2**40
"""So many rows of a unit have places of their own."""
DELETED = "__lakeseal_deleted"
WHOLE = "__lakeseal_whole"
"""Of partial rows: nothing of what the table has of the key counts any more."""
VALID_FROM, VALID_TO = "valid_from", "valid_to"

TRUNCATE = "truncate"
_GONE = ("delete", "update_preimage")
_HERE = ("insert", "update_postimage")

Key = tuple[Any, ...]


class ChangeRule(Struct, frozen=True, kw_only=True):
    """Names are spelt as the rows spell them."""

    keys: tuple[str, ...]
    sequence_by: str | None = None
    delete_when: str | None = None
    partial: bool = False
    is_feed: bool = False
    """Rows say in `_change_type` what they are."""
    order_by: str | None = None
    """What rows of a feed are ordered by, where they do not arrive in order: at the same place, what goes before what
    comes. With a sequence, those of the same one."""


class Latest(Struct, frozen=True, kw_only=True):
    rows: pa.Table
    """One for each key, with `DELETED` and `WHOLE`."""
    is_truncated: bool = False
    """All rows that the table had before are gone."""


def latest(rows: pa.Table, rule: ChangeRule, known: pa.Table | None = None) -> Latest:
    """`known` has keys and the sequences that are known of them; rows that are not behind these are left out."""
    rows = rows.combine_chunks()
    deleted = _deleted(rows, rule)
    rows, deleted, is_truncated = _behind_truncate(rows, deleted, rule)
    if known is not None and rule.sequence_by is not None:
        newer = _is_newer(rows, rule, known)
        rows, deleted = rows.filter(pa.array(newer)), deleted[newer]
    if rule.partial:
        chosen = _folded(rows, deleted, rule)
    else:
        order = _order(rows, deleted, rule)
        last = _ends(rows, order, rule.keys)
        _refuse_several(rows, order, deleted, rule)
        chosen = rows.take(pa.array(order[last]))
        chosen = _with_flags(chosen, deleted[order[last]], np.ones(int(last.sum()), bool))
    return Latest(
        rows=_without(chosen, (ARRIVAL, CHANGE_TYPE) if rule.is_feed else (ARRIVAL,)), is_truncated=is_truncated
    )


def history(rows: pa.Table, rule: ChangeRule, before: pa.Table, deletes: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Versions that are new or have another end than in `before`, which has all of the keys that rows touch; and
    deletes (keys and sequence) that are new. `deletes` has those that are remembered of these keys. Of what is known
    only keys, sequence and end are looked at: other columns of a version that gets another end are null."""
    sequence = rule.sequence_by
    assert sequence is not None
    rows = rows.combine_chunks()
    gone = _deleted(rows, rule)
    columns = [name for name in rows.column_names if name not in (ARRIVAL, *((CHANGE_TYPE,) if rule.is_feed else ()))]
    fresh = rows.select(columns)
    names = list(dict.fromkeys((*rule.keys, sequence)))
    _refuse_several(rows, _sorted(rows.select(names), names), gone, rule)
    old = before.select([*names, VALID_TO]).combine_chunks()
    remembered = deletes.select(names).combine_chunks()
    schema = _wide_enough(fresh.schema, names, old, remembered)
    every = pa.concat_tables([_padded(part, schema) for part in (old, remembered, fresh)])
    is_delete = np.concatenate([np.zeros(old.num_rows, bool), np.ones(remembered.num_rows, bool), gone])
    place = np.concatenate([np.full(old.num_rows + remembered.num_rows, -1), _arrivals(rows)])
    ordered = every.select(names).append_column(ARRIVAL, pa.array(place))
    order = _sorted(ordered, [*names, ARRIVAL])
    # Of one key at one moment the first counts: what is known, then the first to arrive.
    order = order[_starts(every, order, (*rule.keys, sequence))]
    every, is_delete = every.take(pa.array(order)), is_delete[order]
    ends = _ends(every, np.arange(every.num_rows), rule.keys)
    moments = every[sequence].combine_chunks()
    following = pa.concat_arrays([moments[1:], pa.nulls(min(1, len(moments)), moments.type)])
    ended = pc.if_else(pa.array(ends), pa.scalar(None, moments.type), following)
    versions = every.append_column(VALID_FROM, moments).append_column(VALID_TO, ended)
    known_end = pa.concat_arrays(
        [old[VALID_TO].combine_chunks().cast(moments.type), pa.nulls(len(place) - old.num_rows, moments.type)]
    ).take(pa.array(order))
    was_there = order < old.num_rows
    same_end = pc.fill_null(pc.equal(ended, known_end), False).to_numpy(zero_copy_only=False) | (
        ended.is_null().to_numpy(zero_copy_only=False) & known_end.is_null().to_numpy(zero_copy_only=False)
    )
    changed = ~is_delete & ~(was_there & same_end)
    was_remembered = (order >= old.num_rows) & (order < old.num_rows + remembered.num_rows)
    new_deletes = is_delete & ~was_remembered
    return versions.filter(pa.array(changed)), every.select(names).filter(pa.array(new_deletes))


def of_keys(rows: pa.Table, keys: Sequence[str], wanted: pa.Table) -> pa.Table:
    """Those of `rows` whose keys are among `wanted`'s."""
    asked = wanted.select(list(keys)).group_by(list(keys)).aggregate([])
    schema = _wide_enough(asked.schema, keys, rows)
    at = _padded(rows, schema).append_column("at", pa.array(np.arange(rows.num_rows)))
    asked = asked.cast(schema)
    found = at.join(asked, keys=list(keys), join_type="left semi")["at"]
    return rows.take(pa.array(np.sort(found.to_numpy())))


def _deleted(rows: pa.Table, rule: ChangeRule) -> np.ndarray:
    if rule.is_feed:
        kinds = rows[CHANGE_TYPE].combine_chunks()
        known = pc.is_in(kinds, pa.array([*_GONE, *_HERE, TRUNCATE]))
        if not pc.all(known, min_count=0).as_py():
            odd = kinds.filter(pc.invert(known))[0].as_py()
            raise InvalidInput(
                f"A row says that it is {odd!r}, which is no change",
                column=CHANGE_TYPE,
                hint="Read a source of changes",
            )
        gone = pc.is_in(kinds, pa.array(_GONE))
        return np.asarray(gone.to_numpy(zero_copy_only=False), bool)
    if rule.delete_when is None:
        return np.zeros(rows.num_rows, bool)
    bound = expr.bind_predicate(expr.parse(rule.delete_when), from_arrow(rows.schema))
    parts = [pc.fill_null(expr.evaluate(bound, batch), False) for batch in rows.to_batches()]
    parts = [part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part for part in parts]
    return np.concatenate([np.zeros(0, bool), *(part.to_numpy(zero_copy_only=False) for part in parts)]).astype(bool)


def _behind_truncate(rows: pa.Table, deleted: np.ndarray, rule: ChangeRule) -> tuple[pa.Table, np.ndarray, bool]:
    if not rule.is_feed:
        return rows, deleted, False
    truncates = pc.equal(rows[CHANGE_TYPE], TRUNCATE).combine_chunks().to_numpy(zero_copy_only=False)
    if not truncates.any():
        return rows, deleted, False
    if ARRIVAL not in rows.column_names and not truncates.all():
        raise InvalidInput(
            "A table was truncated, and behind a transform it is not known which rows came before",
            hint="Capture the table without a transform, and make a dataset of it (type: datasets) that has one",
        )
    arrivals = _arrivals(rows)
    if len(np.unique(arrivals // UNIT)) > 1:
        raise InvalidInput(
            "A table was truncated while rows of it came from several partitions: which of them were there before is "
            "not known",
            hint="Have all changes of a table in one partition",
        )
    behind = arrivals > arrivals[truncates].max()
    return rows.filter(pa.array(behind)), deleted[behind], True


def _is_newer(rows: pa.Table, rule: ChangeRule, known: pa.Table) -> np.ndarray:
    """Of rows whose key has several sequences that are known, the largest counts."""
    sequence = str(rule.sequence_by)
    if not known.num_rows or not rows.num_rows:
        return np.ones(rows.num_rows, bool)
    largest = known.group_by(list(rule.keys)).aggregate([(sequence, "max")])
    largest = largest.rename_columns([*rule.keys, "known"])
    asked = rows.select(list(dict.fromkeys((*rule.keys, sequence))))
    schema = _wide_enough(asked.schema, rule.keys, largest)
    schema = _wide_enough(schema, [sequence], largest.select(["known"]).rename_columns([sequence]))
    kinds = [schema.field(name).type for name in (*rule.keys, sequence)]
    largest = largest.cast(pa.schema(list(zip(largest.column_names, kinds, strict=True))))
    asked = asked.cast(schema).append_column("at", pa.array(np.arange(rows.num_rows)))
    joined = asked.join(largest, keys=list(rule.keys), join_type="left outer")
    is_newer = pc.greater_equal if rule.is_feed else pc.greater
    newer = pc.fill_null(is_newer(joined[sequence], joined["known"]), True).combine_chunks()
    found = np.empty(rows.num_rows, bool)
    found[joined["at"].to_numpy()] = newer.to_numpy(zero_copy_only=False)
    return found


def _order(rows: pa.Table, deleted: np.ndarray, rule: ChangeRule) -> np.ndarray:
    """Rows of a key next to each other, the one that counts last."""
    if rule.sequence_by is None or rule.is_feed:
        return _told(rows, deleted, rule, rule.sequence_by)
    # Of equal ones the first to arrive counts, so it is last here.
    table, by = _added(rows.select(list(rule.keys)), list(rule.keys), rows[rule.sequence_by])
    if ARRIVAL in rows.column_names:
        table, by = table.append_column(ARRIVAL, rows[ARRIVAL]), [*by, ARRIVAL]
    return _sorted(table, by, (ARRIVAL,))


def _told(rows: pa.Table, deleted: np.ndarray, rule: ChangeRule, sequence: str | None = None) -> np.ndarray:
    """Rows of a key next to each other, as the source told of them one after the other; by `sequence` before that."""
    table, by = rows.select(list(rule.keys)), list(rule.keys)
    if sequence is not None:
        table, by = _added(table, by, rows[sequence])
    if rule.order_by is not None:
        table, by = _added(table, by, rows[rule.order_by])
        table, by = _added(table, by, pa.array((~deleted).astype(np.int8)))
    if ARRIVAL in rows.column_names:
        table, by = table.append_column(ARRIVAL, rows[ARRIVAL]), [*by, ARRIVAL]
    return _sorted(table, by)


def _added(table: pa.Table, by: list[str], column: Any) -> tuple[pa.Table, list[str]]:
    name = f"__lakeseal_{table.num_columns}"
    return table.append_column(name, column), [*by, name]


def _sorted(table: pa.Table, by: Sequence[str], descending: Sequence[str] = ()) -> np.ndarray:
    keys = [(name, "descending" if name in descending else "ascending") for name in by]
    return np.asarray(pc.sort_indices(table, sort_keys=keys).to_numpy(), np.int64)


def _ends(rows: pa.Table, order: np.ndarray, keys: Sequence[str]) -> np.ndarray:
    """Whether the row at each place of the order is the last of its key."""
    return np.append(_differs(rows, order, keys), True)[: len(order)]


def _starts(rows: pa.Table, order: np.ndarray, keys: Sequence[str]) -> np.ndarray:
    return np.insert(_differs(rows, order, keys), 0, True)[: len(order)]


def _differs(rows: pa.Table, order: np.ndarray, keys: Sequence[str]) -> np.ndarray:
    """Whether each row of the order but the last has another key than the next."""
    found = np.zeros(max(0, len(order) - 1), bool)
    for name in keys:
        column = rows[name].combine_chunks() if isinstance(rows[name], pa.ChunkedArray) else rows[name]
        ordered = column.take(pa.array(order))
        found |= pc.not_equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False).astype(bool)
    return found


def _refuse_several(rows: pa.Table, order: np.ndarray, deleted: np.ndarray, rule: ChangeRule) -> None:
    """Rows of one key of which nothing says which is the last. Of equal ones with a sequence any will do, as they are
    repeats, unless they say different things about whether the key is there; of a feed they are none."""
    if rule.order_by is not None or ARRIVAL in rows.column_names:
        return
    same = ~_differs(rows, order, rule.keys)
    if rule.sequence_by is not None:
        same &= ~_differs(rows, order, [rule.sequence_by])
        if not rule.is_feed:
            same &= deleted[order][1:] != deleted[order][:-1]
    if not same.any():
        return
    at = order[int(np.flatnonzero(same)[0])]
    key: Mapping[str, Any] = {name: rows[name][at].as_py() for name in rule.keys}
    raise AmbiguousMerge(
        f"Several rows have the key {key}, and nothing says which of them is the last",
        hint="Name a column that tells: sequence_by. Behind a transform the order in which rows came is not known",
    )


def _folded(rows: pa.Table, deleted: np.ndarray, rule: ChangeRule) -> pa.Table:
    """Partial rows: of each key those that counted when they came, laid over each other."""
    order = _told(rows, deleted, rule, None if ARRIVAL in rows.column_names else rule.sequence_by)
    _refuse_several(rows, order, deleted, rule)
    starts = _starts(rows, order, rule.keys)
    if rule.sequence_by is not None:
        sequences = rows[rule.sequence_by].combine_chunks().take(pa.array(order))
        kept = _running_maxima(sequences, starts, or_equal=rule.is_feed)
        order = order[kept]
        starts = _starts(rows, order, rule.keys)
    rows, deleted = rows.take(pa.array(order)), deleted[order]
    count = len(order)
    ends = np.append(starts[1:], True)[:count]
    # A deleted row, and the first of a key, lets nothing through from before.
    barrier = starts | deleted
    places = np.arange(count)
    columns: dict[str, Any] = {}
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        given = column.is_valid().to_numpy(zero_copy_only=False).astype(bool) | barrier
        # What is behind a delete does not see the deleted row's own values either.
        source = np.maximum.accumulate(np.where(given, places, 0)) if count else places
        taken = column.take(pa.array(source[ends]))
        behind_delete = deleted[source[ends]] & ~deleted[ends]
        columns[name] = taken if name in rule.keys else pc.if_else(pa.array(behind_delete), None, taken)
    groups = np.cumsum(starts) - 1
    any_deleted = np.zeros(int(starts.sum()), bool)
    np.logical_or.at(any_deleted, groups[deleted], True)
    folded = pa.table(columns, schema=rows.schema)
    return _with_flags(folded, deleted[ends], any_deleted)


def _running_maxima(values: pa.Array, starts: np.ndarray, *, or_equal: bool) -> np.ndarray:
    """Whether each value is greater than all before it in its group, or equal to the greatest."""
    if not len(values):
        return np.zeros(0, bool)
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    raised = ranks + (np.cumsum(starts) - 1) * (int(ranks.max()) + 1)
    before = np.insert(np.maximum.accumulate(raised)[:-1], 0, -1)
    return np.asarray(raised >= before if or_equal else raised > before)


def _arrivals(rows: pa.Table) -> np.ndarray:
    if ARRIVAL not in rows.column_names:
        return np.arange(rows.num_rows)
    return np.asarray(rows[ARRIVAL].to_numpy(), np.int64)


def _with_flags(rows: pa.Table, deleted: np.ndarray, whole: np.ndarray) -> pa.Table:
    return rows.append_column(DELETED, pa.array(deleted)).append_column(WHOLE, pa.array(whole))


def _wide_enough(schema: pa.Schema, names: Sequence[str], *others: pa.Table) -> pa.Schema:
    """The schema, with types for these columns that hold what the other tables have there, too."""
    for name in dict.fromkeys(names):
        at = schema.get_field_index(name)
        parts = [pa.schema([schema.field(at)]), *(pa.schema([other.schema.field(name)]) for other in others)]
        try:
            field = pa.unify_schemas(parts, promote_options="permissive").field(0)
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"{name} has another type in the table than in the rows: {error}", column=name
            ) from error
        schema = schema.set(at, field.with_nullable(True))
    return schema


def _padded(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)


def _without(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    return rows.drop_columns([name for name in names if name in rows.column_names])
