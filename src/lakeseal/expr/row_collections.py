"""Functions of arrays and maps, one row at a time. Lists stand for arrays, lists of pairs for maps.

Values are compared as Spark compares them: NaN equals NaN and is above all others, and 0.0 equals -0.0.
"""

from __future__ import annotations

import math
from typing import Any

from lakeseal.errors import EvaluationError
from lakeseal.expr.row_function import MAX_TEXT, too_long

_MAX_ITEMS = 1 << 20


def key_of(value: Any) -> Any:
    """What values are equal by."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(map(key_of, value))
    if isinstance(value, dict):
        return tuple((name, key_of(one)) for name, one in value.items())
    return value


def equal_parts(left: Any, right: Any) -> bool:
    return bool(key_of(left) == key_of(right))


def order_of(value: Any) -> Any:
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _same(left: Any, right: Any) -> bool:
    return left is not None and right is not None and bool(key_of(left) == key_of(right))


def element_at(array: list[Any], index: int) -> Any:
    if index == 0:
        raise EvaluationError("element_at counts from 1, or from -1 at the end", hint="Use get() to count from 0")
    if abs(index) > len(array):
        raise EvaluationError(
            f"The index {index} is beyond an array of {len(array)} elements", hint="Use try_element_at"
        )
    return array[index - 1] if index > 0 else array[index]


def try_element_at(array: list[Any], index: int) -> Any:
    return None if 0 < len(array) < abs(index) or (not array and index) else element_at(array, index)


def get(array: list[Any], index: int) -> Any:
    return array[index] if 0 <= index < len(array) else None


def map_item(pairs: list[tuple[Any, Any]], key: Any) -> Any:
    return next((value for name, value in pairs if _same(name, key)), None)


def map_contains_key(pairs: list[tuple[Any, Any]], key: Any) -> bool:
    return any(_same(name, key) for name, _ in pairs)


def map_keys(pairs: list[tuple[Any, Any]]) -> list[Any]:
    return [key for key, _ in pairs]


def map_values(pairs: list[tuple[Any, Any]]) -> list[Any]:
    return [value for _, value in pairs]


def map_entries(pairs: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in pairs]


def make_map(*parts: Any) -> list[tuple[Any, Any]]:
    return _checked_map(list(zip(parts[::2], parts[1::2], strict=True)))


def map_from_arrays(keys: list[Any], values: list[Any]) -> list[tuple[Any, Any]]:
    if len(keys) != len(values):
        raise EvaluationError(f"A map of {len(keys)} keys cannot have {len(values)} values")
    return _checked_map(list(zip(keys, values, strict=True)))


def map_from_entries(entries: list[Any]) -> list[tuple[Any, Any]] | None:
    if None in entries:
        return None
    return _checked_map([tuple(entry.values()) for entry in entries])


def array_insert(array: list[Any] | None, place: int | None, item: Any) -> list[Any] | None:
    """At a place that counts from 1, or from -1 behind the last; what is between is null."""
    if array is None or place is None:
        return None
    if place == 0:
        raise EvaluationError("array_insert counts from 1, or from -1 at the end")
    if abs(place) > _MAX_ITEMS:
        raise EvaluationError(f"An array of more than {_MAX_ITEMS} elements would be made")
    if place > 0:
        return [*array[: place - 1], *[None] * (place - 1 - len(array)), item, *array[place - 1 :]]
    at = len(array) + place + 1
    return [*array[:at], item, *array[at:]] if at >= 0 else [item, *[None] * -at, *array]


def map_concat(*maps: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return _checked_map([pair for pairs in maps for pair in pairs])


def _checked_map(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    seen: set[Any] = set()
    for key, _ in pairs:
        if key is None:
            raise EvaluationError("A map's key cannot be null")
        if key_of(key) in seen:
            raise EvaluationError(f"A map cannot have the key {key!r} twice")
        seen.add(key_of(key))
    return pairs


def make_array(*items: Any) -> list[Any]:
    return list(items)


def named_struct(names: tuple[str, ...], *values: Any) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def array_position(array: list[Any], wanted: Any) -> int:
    return next((n for n, item in enumerate(array, 1) if _same(item, wanted)), 0)


def array_contains(array: list[Any], wanted: Any) -> bool | None:
    if any(_same(item, wanted) for item in array):
        return True
    return None if None in array else False


def array_max(array: list[Any]) -> Any:
    return max((item for item in array if item is not None), key=order_of, default=None)


def array_min(array: list[Any]) -> Any:
    return min((item for item in array if item is not None), key=order_of, default=None)


def array_join(array: list[Any], separator: str, null: str | None = None) -> str:
    texts = [null if item is None else _as_text(item) for item in array]
    joined = [text for text in texts if text is not None]
    if sum(map(len, joined)) + len(separator) * len(joined) > MAX_TEXT:
        raise too_long()
    return separator.join(joined)


def _as_text(item: Any) -> str:
    return item if isinstance(item, str) else str(item).lower() if isinstance(item, bool) else str(item)


def array_distinct(array: list[Any]) -> list[Any]:
    return _first(array)


def _slot(item: Any) -> Any:
    return (item is None, key_of(item))


def _first(array: list[Any]) -> list[Any]:
    """The first of each value."""
    seen: set[Any] = set()
    return [item for item in array if not (_slot(item) in seen or seen.add(_slot(item)))]  # type: ignore[func-returns-value]


def array_union(left: list[Any], right: list[Any]) -> list[Any]:
    return _first([*left, *right])


def array_intersect(left: list[Any], right: list[Any]) -> list[Any]:
    wanted = set(map(_slot, right))
    return _first([item for item in left if _slot(item) in wanted])


def array_except(left: list[Any], right: list[Any]) -> list[Any]:
    unwanted = set(map(_slot, right))
    return _first([item for item in left if _slot(item) not in unwanted])


def array_remove(array: list[Any], unwanted: Any) -> list[Any]:
    return [item for item in array if not _same(item, unwanted)]


def array_append(array: list[Any] | None, item: Any) -> list[Any] | None:
    return None if array is None else [*array, item]


def array_prepend(array: list[Any] | None, item: Any) -> list[Any] | None:
    return None if array is None else [item, *array]


def array_compact(array: list[Any]) -> list[Any]:
    return [item for item in array if item is not None]


def array_repeat(item: Any, count: int | None) -> list[Any] | None:
    if count is None:
        return None
    if count > _MAX_ITEMS:
        raise EvaluationError(f"An array of more than {_MAX_ITEMS} elements would be made")
    return [item] * max(count, 0)


def arrays_overlap(left: list[Any], right: list[Any]) -> bool | None:
    if {key_of(item) for item in left if item is not None} & {key_of(item) for item in right if item is not None}:
        return True
    return None if left and right and (None in left or None in right) else False


def slice_of(array: list[Any], start: int, count: int) -> list[Any]:
    if start == 0:
        raise EvaluationError("slice counts from 1, or from -1 at the end")
    if count < 0:
        raise EvaluationError(f"A slice cannot have {count} elements")
    begin = start - 1 if start > 0 else len(array) + start
    return array[begin : begin + count] if 0 <= begin < len(array) else []


def sort_array(array: list[Any], ascending: bool = True) -> list[Any]:
    """Nulls first, or last where it goes down."""
    nulls = [None] * array.count(None)
    items = sorted(array_compact(array), key=order_of, reverse=not ascending)
    return nulls + items if ascending else items + nulls


def array_sort(array: list[Any]) -> list[Any]:
    """Nulls last."""
    return sorted(array_compact(array), key=order_of) + [None] * array.count(None)


def reverse(value: Any) -> Any:
    return value[::-1]


def flatten(arrays: list[Any]) -> list[Any] | None:
    return None if None in arrays else [item for array in arrays for item in array]


def concat(*arrays: list[Any]) -> list[Any]:
    return [item for array in arrays for item in array]


def sequence(start: int, stop: int, step: int | None = None) -> list[int]:
    by = step if step is not None else 1 if start <= stop else -1
    if (by > 0 and start > stop) or (by < 0 and start < stop) or (by == 0 and start != stop):
        raise EvaluationError(f"A sequence does not go from {start} to {stop} by {by}")
    if by and abs(stop - start) // abs(by) >= _MAX_ITEMS:
        raise EvaluationError(f"An array of more than {_MAX_ITEMS} elements would be made")
    return list(range(start, stop + (1 if by > 0 else -1), by)) if by else [start]


def str_to_map(text: str, between_pairs: str = ",", between_parts: str = ":") -> list[tuple[Any, Any]]:
    pairs: list[tuple[Any, Any]] = []
    for pair in text.split(between_pairs):
        key, found, value = pair.partition(between_parts)
        pairs.append((key, value if found else None))
    return _checked_map(pairs)
