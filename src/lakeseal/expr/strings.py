"""Functions of strings, as Spark does them: positions count characters, trimming is of spaces only."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import UnsupportedExpression
from lakeseal.expr.bound import Bound
from lakeseal.expr.patterns import match_like
from lakeseal.expr.row_texts import MOST_CHARACTERS
from lakeseal.expr.values import Datum, on_arrays

_ASCII: dict[str, tuple[Callable[..., Datum], Callable[[str], str]]] = {
    "upper": (pc.ascii_upper, str.upper),
    "lower": (pc.ascii_lower, str.lower),
}
_YOUNG_PARTNERS = frozenset("\u019b\u0264\ua7d3\ua7d5")
_TRIMS: dict[str, Callable[..., Datum]] = {
    "trim both": pc.utf8_trim,
    "trim leading": pc.utf8_ltrim,
    "trim trailing": pc.utf8_rtrim,
}


def change_case(node: Bound, args: Sequence[Datum]) -> Datum:
    in_ascii, in_full = _ASCII[node.op]

    def kernel(array: pa.Array) -> pa.Array:
        plain = pc.string_is_ascii(array)
        if pc.all(plain).as_py() is not False:
            # Arrow takes the first text to be where its buffer begins, which in a slice of others' making it is not.
            return in_ascii(pa.concat_arrays([array.slice(0, 0), array]))
        # One letter may become several, which Arrow's own functions leave out; so by Python, once per distinct text.
        encoded = array.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        _refuse_new_letters(set().union(*texts))
        changed = [in_full(text) for text in texts]
        return pa.array(changed, pa.string()).take(encoded.indices)

    return on_arrays(kernel, *args)


def _refuse_new_letters(letters: set[str]) -> None:
    """Letters younger than Python's Unicode, or whose other case is: Spark may know it."""
    for letter in letters:
        if letter in _YOUNG_PARTNERS or unicodedata.category(letter) == "Cn":
            raise UnsupportedExpression(f"The case of {letter!r} is not supported")


def length(node: Bound, args: Sequence[Datum]) -> Datum:
    return pc.binary_length(args[0]) if pa.types.is_binary(args[0].type) else pc.utf8_length(args[0])


def trim(node: Bound, args: Sequence[Datum]) -> Datum:
    return _TRIMS[node.op](args[0], characters=node.option)


def concat(node: Bound, args: Sequence[Datum]) -> Datum:
    return pc.binary_join_element_wise(*args, pa.scalar("", node.arrow) if node.arrow == pa.string() else b"")


def substring(node: Bound, args: Sequence[Datum]) -> Datum:
    """The option is where to start (from 1, or from the end if negative) and how many characters to take."""
    start, count = node.option
    if count is not None and count <= 0:
        return pc.utf8_slice_codeunits(args[0], start=0, stop=0)
    if start >= 0:
        begin = max(start - 1, 0)
        return pc.utf8_slice_codeunits(args[0], start=begin, stop=None if count is None else begin + count)
    end = start + (MOST_CHARACTERS if count is None else count)
    return pc.utf8_slice_codeunits(args[0], start=start, stop=None if end >= 0 else end)


def replace(node: Bound, args: Sequence[Datum]) -> Datum:
    search, replacement = node.option
    if not search:
        return args[0]
    return pc.replace_substring(args[0], pattern=search, replacement=replacement)


def pad(node: Bound, args: Sequence[Datum]) -> Datum:
    width, padding = node.option
    fill = pc.utf8_lpad if node.op == "lpad" else pc.utf8_rpad
    return pc.utf8_slice_codeunits(fill(args[0], width=width, padding=padding), start=0, stop=width)


def starts_with(node: Bound, args: Sequence[Datum]) -> Datum:
    return pc.starts_with(args[0], pattern=node.option)


def ends_with(node: Bound, args: Sequence[Datum]) -> Datum:
    return pc.ends_with(args[0], pattern=node.option)


def contains(node: Bound, args: Sequence[Datum]) -> Datum:
    return pc.match_substring(args[0], pattern=node.option)


def like(node: Bound, args: Sequence[Datum]) -> Datum:
    return match_like(args[0], node.option)


def rlike(node: Bound, args: Sequence[Datum]) -> Datum:
    return pc.match_substring_regex(args[0], pattern=node.option)
