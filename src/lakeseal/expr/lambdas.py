"""Functions that call a lambda for each element: its body is run once over the elements of all rows.

A node's arguments are what it goes over, then the bodies; its option names the lambdas' parameters. A body sees the
columns of the row that its element is of. Where a body may fail, `exists` and `forall` go from element to element, as
Spark does, which looks at none behind the one that decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import EvaluationError
from lakeseal.expr.bound import Bound
from lakeseal.expr.row_collections import key_of
from lakeseal.expr.values import Bools, Datum, as_array, scatter, truths

if TYPE_CHECKING:
    from lakeseal.expr.interpreter import Rows

Run = Callable[[Bound, "Rows"], Datum]
Whole = npt.NDArray[np.int64]


class _Elements:
    """Where the elements of arrays or maps are, row by row."""

    def __init__(self, array: pa.Array) -> None:
        offsets = np.asarray(array.offsets).astype(np.int64)
        self.valid: Bools = np.asarray(array.is_valid()).astype(np.bool_)
        self.starts: Whole = offsets[:-1]
        self.lengths: Whole = np.where(self.valid, np.diff(offsets), 0)

    def owners(self, lengths: Whole) -> tuple[Whole, Whole]:
        """Of so many elements per row, in order: their rows, and their places in these."""
        rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
        places = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return rows, places

    def at(self, rows: Whole, places: Whole, child: pa.Array) -> pa.Array:
        """Elements by row and place, null behind a row's last."""
        beyond = places >= self.lengths[rows]
        return child.take(pa.array(np.where(beyond, 0, self.starts[rows] + places), mask=beyond))


def _offsets(lengths: Whole) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _lists(values: pa.Array, lengths: Whole, valid: Bools, arrow: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(lengths), values, type=arrow, mask=pa.array(~valid))


def _maps(keys: pa.Array, items: pa.Array, lengths: Whole, valid: Bools, arrow: pa.DataType) -> pa.Array:
    return pa.MapArray.from_arrays(_offsets(lengths), keys, items, type=arrow, mask=pa.array(~valid))


def _run(body: Bound, rows: Rows, owners: Whole, variables: dict[int, Any], run: Run) -> pa.Array:
    if not len(owners):
        return pa.array([], body.arrow)
    return as_array(run(body, rows.spread(owners, variables)), len(owners))


def _kept(lengths: Whole, owners: Whole, kept: Bools) -> Whole:
    return np.bincount(owners[kept], minlength=len(lengths)).astype(np.int64)


def _transform(node: Bound, rows: Rows, run: Run) -> pa.Array:
    array, elements = _array(node.args[0], rows, run)
    owners, places = elements.owners(elements.lengths)
    result = _run(node.args[1], rows, owners, _parameters(node, array, elements, owners, places), run)
    return _lists(result, elements.lengths, elements.valid, node.arrow)


def _filter(node: Bound, rows: Rows, run: Run) -> pa.Array:
    array, elements = _array(node.args[0], rows, run)
    owners, places = elements.owners(elements.lengths)
    given = _parameters(node, array, elements, owners, places)
    kept = truths(_run(node.args[1], rows, owners, given, run), len(owners))
    values = given[node.option[0]].filter(pa.array(kept))
    return _lists(values, _kept(elements.lengths, owners, kept), elements.valid, node.arrow)


def _array(arg: Bound, rows: Rows, run: Run) -> tuple[pa.Array, _Elements]:
    array = as_array(run(arg, rows), rows.length)
    return array, _Elements(array)


def _parameters(node: Bound, array: pa.Array, elements: _Elements, owners: Whole, places: Whole) -> dict[int, pa.Array]:
    """The element, and its place, from 0, where the lambda asks for it."""
    given = (elements.at(owners, places, array.values), pa.array(places, pa.int32()))
    return dict(zip(node.option, given, strict=False))


def _quantified(node: Bound, rows: Rows, run: Run) -> pa.Array:
    """`exists` and `forall`: an element that decides wins over one of which nothing is known."""
    array, elements = _array(node.args[0], rows, run)
    deciding = node.op == "exists"
    found, unknown = np.zeros(rows.length, np.bool_), ~elements.valid

    def look(owners: Whole, places: Whole) -> None:
        flags = _run(node.args[1], rows, owners, _parameters(node, array, elements, owners, places), run)
        found[owners[truths(pc.equal(flags, deciding), len(owners))]] = True
        unknown[owners[np.asarray(flags.is_null()).astype(np.bool_)]] = True

    if node.args[1].raises:
        for place in range(int(elements.lengths.max(initial=0))):
            owners = np.flatnonzero((elements.lengths > place) & ~found)
            look(owners, np.full(len(owners), place, np.int64))
    else:
        look(*elements.owners(elements.lengths))
    return pa.array(found == deciding, mask=unknown & ~found)


def _aggregate(node: Bound, rows: Rows, run: Run) -> Datum:
    array, elements = _array(node.args[0], rows, run)
    valid = elements.valid
    if not valid.any():
        return pa.scalar(None, node.arrow)
    here = rows if valid.all() else rows.choose(valid)
    array = array if valid.all() else array.filter(pa.array(valid))
    elements = _Elements(array)
    _, zero, merge, finish = node.args
    sum_key, element_key, whole_key = node.option
    value = as_array(run(zero, here), here.length)
    for place in range(int(elements.lengths.max(initial=0))):
        owners = np.flatnonzero(elements.lengths > place)
        element = elements.at(owners, np.full(len(owners), place, np.int64), array.values)
        merged = _run(merge, here, owners, {sum_key: value.take(pa.array(owners)), element_key: element}, run)
        chosen = np.arange(here.length)
        chosen[owners] = here.length + np.arange(len(owners))
        value = pa.concat_arrays([value, merged]).take(pa.array(chosen))
    result = _run(finish, here, np.arange(here.length), {whole_key: value}, run)
    return result if valid.all() else scatter(result, valid)


def _zip_with(node: Bound, rows: Rows, run: Run) -> Datum:
    left, of_left = _array(node.args[0], rows, run)
    other = node.args[1]
    if other.raises and not of_left.valid.all():  # it is not looked at where there is nothing on the left
        if not of_left.valid.any():
            return pa.scalar(None, node.arrow)
        right = scatter(run(other, rows.choose(of_left.valid)), of_left.valid)
        of_right = _Elements(right)
    else:
        right, of_right = _array(other, rows, run)
    valid = of_left.valid & of_right.valid
    lengths = np.where(valid, np.maximum(of_left.lengths, of_right.lengths), 0)
    owners, places = of_left.owners(lengths)
    sides = (of_left.at(owners, places, left.values), of_right.at(owners, places, right.values))
    result = _run(node.args[2], rows, owners, dict(zip(node.option, sides, strict=True)), run)
    return _lists(result, lengths, valid, node.arrow)


def _of_map(node: Bound, rows: Rows, run: Run) -> pa.Array:
    array, elements = _array(node.args[0], rows, run)
    owners, places = elements.owners(elements.lengths)
    keys, items = (elements.at(owners, places, child) for child in (array.keys, array.items))
    result = _run(node.args[1], rows, owners, dict(zip(node.option, (keys, items), strict=True)), run)
    lengths = elements.lengths
    match node.op:
        case "map_filter":
            kept = truths(result, len(owners))
            keys, items = (part.filter(pa.array(kept)) for part in (keys, items))
            lengths = _kept(lengths, owners, kept)
        case "transform_values":
            items = result
        case _:
            keys = _checked_keys(result, owners)
    return _maps(keys, items, lengths, elements.valid, node.arrow)


def _checked_keys(keys: pa.Array, owners: Whole) -> pa.Array:
    if keys.null_count:
        raise EvaluationError("A map's key cannot be null")
    seen: set[Any] = set()
    for owner, key in zip(owners.tolist(), keys.to_pylist(), strict=True):
        if (owner, key_of(key)) in seen:
            raise EvaluationError(f"A map cannot have the key {key!r} twice")
        seen.add((owner, key_of(key)))
    return keys


LAMBDA_KERNELS: dict[str, Callable[[Bound, Rows, Run], Datum]] = {
    "transform": _transform,
    "filter": _filter,
    **dict.fromkeys(("exists", "forall"), _quantified),
    "aggregate": _aggregate,
    "zip_with": _zip_with,
    **dict.fromkeys(("map_filter", "transform_keys", "transform_values"), _of_map),
}
