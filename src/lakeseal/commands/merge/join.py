"""Which rows of a target and of a source belong together.

Equalities between the two sides are looked up in a hash table over the source, which is made once; what else the
condition says is then asked of each pair. A condition without such an equality compares every row with every row.
Either way only so many pairs exist at a time.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal import expr
from lakeseal.commands.merge.names import SOURCE, TARGET, sides
from lakeseal.expr import syntax as sql
from lakeseal.expr.bound import Bound
from lakeseal.expr.coercion import is_atomic
from lakeseal.expr.expression import BoundExpression, Expression
from lakeseal.expr.values import truths
from lakeseal.protocol.schema import StructType

Rows = np.ndarray[Any, np.dtype[np.int64]]
_PAIRS = 2**20
_PLACES = 2**26
_SPARSEST = 16
"""Places for each value that is there."""


class Key(Struct, frozen=True, kw_only=True):
    """An equality between the sides; both are of one type."""

    target: BoundExpression
    source: BoundExpression
    null_safe: bool = False
    """`<=>`: null equals null."""


class Condition(Struct, frozen=True, kw_only=True):
    """A join condition taken apart; AND joins the parts."""

    keys: tuple[Key, ...]
    rest: BoundExpression | None
    of_target: tuple[Expression, ...]
    """Parts of the rest that look at the target alone."""
    reads: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, on: Expression, joint: StructType) -> Condition:
        keys, rest, of_target = [], [], []
        expr.bind_predicate(on, joint)
        for part in on.conjuncts():
            key = _key(part, joint)
            if key is not None:
                keys.append(key)
                continue
            rest.append(part)
            if sides(part) == {TARGET}:
                of_target.append(part)
        bound = expr.bind_predicate(rest[0].and_(*rest[1:]), joint) if rest else None
        # Not those of the whole: `AND false` settles it, and the parts are looked at all the same.
        parts = [side for key in keys for side in (key.target, key.source)] + ([] if bound is None else [bound])
        reads = frozenset(path for part in parts for path in part.columns)
        return cls(keys=tuple(keys), rest=bound, of_target=tuple(of_target), reads=reads)


def _key(part: Expression, joint: StructType) -> Key | None:
    root = part.root
    if not isinstance(root, sql.Call) or root.name not in ("=", "<=>"):
        return None
    looks = [sides(Expression(part.text, arg)) for arg in root.args]
    if looks not in ([{TARGET}, {SOURCE}], [{SOURCE}, {TARGET}]):
        return None
    bound = expr.bind(part, joint).root
    if bound.op != root.name or not is_atomic(bound.args[0].type) or bound.args[0].type != bound.args[1].type:
        return None
    one, other = (BoundExpression(part.text, arg) for arg in bound.args)
    target, source = (one, other) if looks[0] == {TARGET} else (other, one)
    return Key(target=target, source=source, null_safe=root.name == "<=>")


class Matcher:
    """`source` has flat names and is in memory; target rows come in batches, with flat names too."""

    def __init__(self, condition: Condition, source: pa.Table, *, now: datetime.datetime) -> None:
        self._condition = condition
        self._source = source
        self._now = now
        self._distinct: list[_Distinct] = []
        self._steps: list[Rows] = []
        if condition.keys:
            self._index()

    def source_values(self, key: Key) -> pa.Array:
        return _hashable(expr.evaluate(key.source, self._source, now=self._now))

    def pairs(self, target: pa.RecordBatch) -> Iterator[tuple[Rows, Rows]]:
        """Rows of the target and of the source that belong together."""
        for of_target, of_source in self._candidates(target):
            if self._condition.rest is None or not len(of_target):
                yield of_target, of_source
                continue
            joined = paired(target, of_target, self._source, of_source, self._condition.rest.columns)
            true = truths(expr.evaluate(self._condition.rest, joined, now=self._now), len(of_target))
            yield of_target[true], of_source[true]

    def _index(self) -> None:
        ids = np.zeros(self._source.num_rows, dtype=np.int64)
        for number, key in enumerate(self._condition.keys):
            values = self.source_values(key)
            distinct = _Distinct(values, null_safe=key.null_safe)
            codes = distinct.codes(values)
            self._distinct.append(distinct)
            if number == 0:
                ids = codes
                continue
            pairs = np.where((ids >= 0) & (codes >= 0), ids * max(len(distinct), 1) + codes, -1)
            step = np.unique(pairs[pairs >= 0])
            self._steps.append(step)
            ids = _found(step, pairs)
        self._order = np.argsort(ids, kind="stable")[int((ids < 0).sum()) :]
        self._counts = np.bincount(ids[ids >= 0], minlength=int(ids.max(initial=-1)) + 1)
        self._starts = np.cumsum(self._counts) - self._counts

    def _target_ids(self, target: pa.RecordBatch) -> Rows:
        ids = np.zeros(target.num_rows, dtype=np.int64)
        for number, (key, distinct) in enumerate(zip(self._condition.keys, self._distinct, strict=True)):
            codes = distinct.codes(_hashable(expr.evaluate(key.target, target, now=self._now)))
            if number == 0:
                ids = codes
                continue
            pairs = np.where((ids >= 0) & (codes >= 0), ids * max(len(distinct), 1) + codes, -1)
            ids = _found(self._steps[number - 1], pairs)
        return ids

    def _candidates(self, target: pa.RecordBatch) -> Iterator[tuple[Rows, Rows]]:
        if not self._condition.keys:
            yield from _all_pairs(target.num_rows, self._source.num_rows)
            return
        ids = self._target_ids(target)
        rows = np.flatnonzero(ids >= 0)
        counts = self._counts[ids[rows]]
        done = 0
        ends = np.cumsum(counts)
        while done < len(rows):
            before = int(ends[done - 1]) if done else 0
            until = max(int(np.searchsorted(ends, before + _PAIRS, side="right")), done + 1)
            here, many = rows[done:until], counts[done:until]
            within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
            yield np.repeat(here, many), self._order[np.repeat(self._starts[ids[here]], many) + within]
            done = until


def paired(
    target: pa.RecordBatch, of_target: Rows, source: pa.Table, of_source: Rows, paths: frozenset[tuple[str, ...]]
) -> pa.RecordBatch:
    """One row per pair, with the columns at these flat paths."""
    columns = {}
    for name in sorted({path[0] for path in paths}):
        if name.startswith(TARGET):
            columns[name] = target.column(name).take(pa.array(of_target))
        else:
            columns[name] = _whole(source.column(name).take(pa.array(of_source)))
    if not columns:
        return pa.RecordBatch.from_arrays([pa.nulls(len(of_target))], names=["none"])
    return pa.RecordBatch.from_pydict(columns)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _all_pairs(targets: int, sources: int) -> Iterator[tuple[Rows, Rows]]:
    width = min(max(sources, 1), _PAIRS)
    height = max(1, _PAIRS // width)
    for top in range(0, targets, height):
        rows = np.arange(top, min(top + height, targets))
        for left in range(0, sources, width):
            columns = np.arange(left, min(left + width, sources))
            yield np.repeat(rows, len(columns)), np.tile(columns, len(rows))


def _hashable(values: pa.Array) -> pa.Array:
    if pa.types.is_floating(values.type):
        # -0.0 equals 0.0 and NaN equals NaN, and hashing must not tell them apart.
        zero = pc.add(values, pa.scalar(0.0, values.type))
        return pc.if_else(pc.is_nan(zero), pa.scalar(float("nan"), values.type), zero)
    return values


class _Distinct:
    """The distinct values of a source's key, each with a number.

    Whole numbers that lie close together are looked up by their place in an array: a million of them among three
    million in 0.01 s. Arrow hashes all of the three million for each batch that it is asked about, in 0.6 s."""

    def __init__(self, values: pa.Array, *, null_safe: bool) -> None:
        self._null_safe = null_safe
        self._values = values.unique() if null_safe else values.unique().drop_null()
        self._low, self._places = self._by_place()

    def __len__(self) -> int:
        return len(self._values)

    def codes(self, values: pa.Array) -> Rows:
        """The number of each; -1 for what is none of them."""
        if self._places is None:
            found = pc.index_in(values, value_set=self._values, skip_nulls=not self._null_safe)
            codes: Rows = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            return codes
        numbers = pc.fill_null(values, self._low).to_numpy(zero_copy_only=False)
        known = (numbers >= self._low) & (numbers < self._low + len(self._places))
        if values.null_count:
            known &= values.is_valid().to_numpy(zero_copy_only=False)
        codes = np.full(len(values), -1, dtype=np.int64)
        codes[known] = self._places[numbers[known].astype(np.int64) - self._low]
        return codes

    def _by_place(self) -> tuple[int, np.ndarray | None]:
        kind = self._values.type
        if self._null_safe or not len(self) or not pa.types.is_signed_integer(kind):
            return 0, None
        numbers = self._values.to_numpy().astype(np.int64)
        low, high = int(numbers.min()), int(numbers.max())
        if high - low >= min(_SPARSEST * len(self), _PLACES):
            return 0, None
        places = np.full(high - low + 1, -1, dtype=np.int32)
        places[numbers - low] = np.arange(len(self))
        return low, places


def _found(step: Rows, numbers: Rows) -> Rows:
    """Where each number is in a sorted array; -1 if it is not."""
    if not len(step):
        return np.full(len(numbers), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(step, numbers), len(step) - 1)
    return np.where(step[at] == numbers, at, -1)


def is_plain_column(bound: Bound) -> bool:
    return bound.op == "column" and len(bound.option) == 1
