"""Search: which of the files that may match have rows that do, and which rows.

The first half of a delete or an update. A task reads only the columns of the condition. Where the table hides rows by
deletion vectors instead of rewriting files, the task writes the new vectors too: all of its own into one file, small
ones into the log itself. A `Search` is JSON, and so is what it finds.

Where only an engine can judge the condition (`in_plan`), the engine looks instead, and what it found names the rows:
asked a second time, it might choose others.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakeseal import expr
from lakeseal.expr.values import truths
from lakeseal.jobs.table_files import SPLIT_BYTES, TableFiles, described, splits
from lakeseal.log.data import DataFile, DataReader
from lakeseal.log.read_ahead import in_order
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import DeletionVectorDescriptor
from lakeseal.protocol.deletion_vectors import (
    Positions,
    encode,
    frame,
    inline_descriptor,
    inline_positions,
    relative_descriptor,
    relative_path,
)
from lakeseal.storage import Store, StoreSpec

_POSITION = "lakeseal.position"
_INLINE_BYTES = 128
_WORKERS = 4


class Found(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was found in one file."""

    path: str
    rows: int
    """Rows that readers see."""
    matched: int
    hidden: int = 0
    """Rows that were hidden before."""
    vector: DeletionVectorDescriptor | None = None
    """Hides the rows that matched too; none where all do."""
    chosen: DeletionVectorDescriptor | None = None
    """The rows that matched, where nobody can ask again; none where all do."""

    @property
    def is_whole(self) -> bool:
        return self.matched == self.rows


class Search(TableFiles, frozen=True, kw_only=True):
    where: str
    vectors: bool = False
    """Whether to write the deletion vectors that hide the rows that match."""
    vector_prefix_length: int = 0
    in_plan: bool = False
    """Whether only the engine can judge the condition."""
    names_rows: bool = False
    """Whether what is found says which rows they are."""
    rows: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How many rows readers see in a file, by path, where the log says so; for who cannot count them on the way."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        store: StoreSpec,
        files: pa.Table,
        where: str,
        *,
        vectors: bool,
        now: object = None,
        in_plan: bool = False,
        names_rows: bool = False,
        rows: dict[str, int] | None = None,
    ) -> Search:
        properties = snapshot.properties
        return cls(
            **described(snapshot, store),
            splits=splits(files, SPLIT_BYTES),
            where=where,
            vectors=vectors,
            vector_prefix_length=properties.random_prefix_length if properties.randomize_file_prefixes else 0,
            now=now,  # type: ignore[arg-type]
            in_plan=in_plan,
            names_rows=names_rows,
            rows=rows or {},
        )

    def run(self, split: int, on_file: Callable[[], None] = lambda: None) -> list[Found]:
        """What one task does: the files of its split in which rows match."""
        bound = expr.bind_predicate(expr.parse(self.where), self.table)
        names = {path[0] for path in bound.columns}
        reader = self.reader([name for name in self.table.names if name in names], position_column=_POSITION)

        def look(file: DataFile) -> Iterator[tuple[DataFile, int, Positions]]:
            rows, matching = 0, []
            for batch in reader.read_file(file):
                rows += batch.num_rows
                here = truths(expr.evaluate(bound, batch, now=self.now), batch.num_rows)
                if here.any():
                    matching.append(batch.column(_POSITION).to_numpy()[here])
            on_file()
            if matching:
                yield file, rows, np.concatenate(matching).astype(np.uint64)

        return self.told(list(in_order(self.splits[split], look, workers=_WORKERS)))

    def told(self, found: list[tuple[DataFile, int, Positions]]) -> list[Found]:
        """What is to be said of files, given how many rows each has and where those that match are."""
        partly = [(file, positions) for file, rows, positions in found if len(positions) < rows]
        vectors: list[DeletionVectorDescriptor] = []
        if self.vectors:
            vectors = write_vectors(self.reader([]), self.store.open(), partly, self.vector_prefix_length)
        by_path = dict(zip((file.path for file, _ in partly), vectors, strict=False))
        return [
            Found(
                path=file.path,
                rows=rows,
                matched=len(positions),
                hidden=0 if file.deletion_vector is None else file.deletion_vector.cardinality,
                vector=by_path.get(file.path),
                chosen=chosen_rows(positions) if self.names_rows and len(positions) < rows else None,
            )
            for file, rows, positions in found
        ]


def chosen_rows(positions: Positions) -> DeletionVectorDescriptor:
    """Positions, ascending, as `DataFile.chosen` has them."""
    return inline_descriptor(encode(positions), len(positions))


def is_chosen(file: DataFile, positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which of these positions the file's `chosen` names; all of them where it has none."""
    if file.chosen is None:
        return np.ones(len(positions), np.bool_)
    return np.isin(positions.astype(np.uint64), inline_positions(file.chosen), assume_unique=True)


def write_vectors(
    reader: DataReader, store: Store, files: list[tuple[DataFile, Positions]], prefix_length: int = 0
) -> list[DeletionVectorDescriptor]:
    """For each file the vector that hides these rows besides those that it hides already; they share one new file."""
    vectors: list[tuple[bytes, int]] = []
    for file, positions in files:
        if file.deletion_vector is not None:
            before = reader.hidden_rows(file.deletion_vector, file.size or 0)
            positions = np.union1d(before, positions)
        vectors.append((encode(positions), len(positions)))
    stored = [data for data, _ in vectors if len(data) > _INLINE_BYTES]
    uuid, prefix = uuid4(), secrets.token_hex(50)[:prefix_length]
    framed, offsets = frame(stored)
    at = iter(offsets)
    made = [
        inline_descriptor(data, count)
        if len(data) <= _INLINE_BYTES
        else relative_descriptor(uuid, prefix=prefix, offset=next(at), size=len(data), cardinality=count)
        for data, count in vectors
    ]
    if stored:
        key = relative_path(relative_descriptor(uuid, prefix=prefix, offset=1, size=0, cardinality=0))
        store.put(key, framed)
    return made
