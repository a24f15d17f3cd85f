"""The conflict check against a plain model: what it lets through is as if transactions had run one after the other.

The table is a handful of files with rows of one partition each. Programs read it and decide what to do by what they
see; if a check passes, running the program again on what really was there must give the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

import msgspec
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from lakeseal.commit.conflicts import check
from lakeseal.commit.isolation import IsolationLevel
from lakeseal.commit.proposal import Operation, Proposal
from lakeseal.commit.read_set import ReadSet
from lakeseal.commit.winner import WinningCommit
from lakeseal.log.files import adds_from_actions
from lakeseal.protocol.actions import AddFile, CommitInfo, DeletionVectorDescriptor, Metadata, RemoveFile
from support.examples import examples

METADATA = Metadata(id="t", schema_string='{"type":"struct","fields":[]}', partition_columns=("p",))


class Stored(Struct, frozen=True):
    partition: int
    rows: tuple[int, ...]
    vector: str | None = None


State = dict[str, Stored]
_names = count()


class Effect(Struct, frozen=True, kw_only=True):
    reads: ReadSet = ReadSet()
    removes: tuple[str, ...] = ()
    adds: tuple[tuple[str, Stored], ...] = ()
    data_change: bool = True

    def apply(self, state: State) -> State:
        assert all(path in state for path in self.removes), "a file is removed that is not there"
        left = {path: stored for path, stored in state.items() if path not in self.removes}
        assert not any(path in left for path, _ in self.adds), "a path is live twice"
        return {**left, **dict(self.adds)}

    def proposal(self, state: State, level: IsolationLevel) -> Proposal:
        return Proposal(
            txn_id="t",
            read_version=0,
            operation=Operation(name="TEST"),
            isolation=level,
            reads=self.reads,
            adds=tuple(as_add(path, stored, self.data_change) for path, stored in self.adds),
            removes=tuple(
                RemoveFile(path=path, data_change=self.data_change, deletion_vector=vector(state[path].vector))
                for path in self.removes
            ),
        )


def vector(name: str | None) -> DeletionVectorDescriptor | None:
    if name is None:
        return None
    return DeletionVectorDescriptor(storage_type="u", path_or_inline_dv=name, size_in_bytes=1, cardinality=1)


def as_add(path: str, stored: Stored, data_change: bool = True) -> AddFile:
    return AddFile(
        path=path,
        partition_values={"p": str(stored.partition)},
        size=1,
        modification_time=0,
        data_change=data_change,
        deletion_vector=vector(stored.vector),
    )


def new(partition: int, rows: tuple[int, ...], name: str | None = None, dv: str | None = None) -> tuple[str, Stored]:
    return name or f"f{next(_names)}", Stored(partition, rows, dv)


def read_partition(state: State, p: int) -> tuple[ReadSet, State]:
    matched = {path: stored for path, stored in state.items() if stored.partition == p}
    table = adds_from_actions([as_add(path, stored) for path, stored in matched.items()])
    return ReadSet(predicates=(f"p = {p}",), files=(table,)), matched


Program = Callable[[State], Effect]


def append(p: int, x: int) -> Program:
    return lambda state: Effect(adds=(new(p, (x,)),))


def drop_partition(p: int) -> Program:
    def run(state: State) -> Effect:
        reads, matched = read_partition(state, p)
        return Effect(reads=reads, removes=tuple(matched))

    return run


def delete_rows(p: int, x: int, *, by_vector: bool) -> Program:
    def run(state: State) -> Effect:
        reads, matched = read_partition(state, p)
        touched = {path: stored for path, stored in matched.items() if x in stored.rows}
        kept = {path: tuple(row for row in stored.rows if row != x) for path, stored in touched.items()}
        if by_vector:
            adds = tuple(new(p, rows, path, f"v{next(_names)}") for path, rows in kept.items() if rows)
        else:
            adds = tuple(new(p, rows) for rows in kept.values() if rows)
        return Effect(reads=reads, removes=tuple(touched), adds=adds)

    return run


def copy_count(p: int, to: int) -> Program:
    def run(state: State) -> Effect:
        reads, matched = read_partition(state, p)
        return Effect(reads=reads, adds=(new(to, (1000 + sum(len(f.rows) for f in matched.values()),)),))

    return run


def overwrite_with_sum(to: int) -> Program:
    def run(state: State) -> Effect:
        total = sum(sum(stored.rows) for stored in state.values())
        return Effect(reads=ReadSet(whole_table=True), removes=tuple(state), adds=(new(to, (total,)),))

    return run


def optimize(p: int) -> Program:
    def run(state: State) -> Effect:
        reads, matched = read_partition(state, p)
        if len(matched) < 2:
            return Effect(data_change=False)
        rows = tuple(row for stored in matched.values() for row in stored.rows)
        return Effect(reads=ReadSet(files=reads.files), removes=tuple(matched), adds=(new(p, rows),), data_change=False)

    return run


partitions = st.integers(0, 2)
values = st.integers(0, 3)
programs: st.SearchStrategy[Program] = st.one_of(
    st.builds(append, partitions, values),
    st.builds(drop_partition, partitions),
    st.builds(delete_rows, partitions, values, by_vector=st.booleans()),
    st.builds(copy_count, partitions, partitions),
    st.builds(overwrite_with_sum, partitions),
    st.builds(optimize, partitions),
)
tables: st.SearchStrategy[State] = st.lists(
    st.builds(Stored, partitions, st.lists(values, min_size=1, max_size=3).map(tuple)), max_size=5
).map(lambda stored: {f"old{i}": s for i, s in enumerate(stored)})


def rows_of(state: State) -> Counter[tuple[int, int]]:
    return Counter((stored.partition, row) for stored in state.values() for row in stored.rows)


def may_match(predicate: str, files: pa.Table) -> pa.Array:
    wanted = predicate.removeprefix("p = ")
    return pa.array([dict(v)["p"] == wanted for v in files["partitionValues"].to_pylist()], pa.bool_())


def as_winner(effect: Effect, state: State, version: int) -> WinningCommit:
    proposal = effect.proposal(state, IsolationLevel.SERIALIZABLE)
    info = CommitInfo(operation="TEST", is_blind_append=proposal.is_blind_append)
    return WinningCommit.from_actions(version, [info, *proposal.adds, *proposal.removes])


def passes(ours: Effect, state: State, winners: list[WinningCommit], level: IsolationLevel) -> bool:
    proposal = ours.proposal(state, level)
    return all(check(proposal, winner, before=METADATA, may_match=may_match) is None for winner in winners)


def run_all(state: State, winners: list[Program]) -> tuple[State, list[WinningCommit]]:
    commits = []
    for version, program in enumerate(winners, start=1):
        effect = program(state)
        commits.append(as_winner(effect, state, version))
        state = effect.apply(state)
    return state, commits


@examples(150, 2000)
@given(start=tables, winners=st.lists(programs, min_size=1, max_size=3), program=programs)
def test_serializable_gives_the_same_rows_as_running_after_the_winners(
    start: State, winners: list[Program], program: Program
) -> None:
    ours = program(start)
    now, commits = run_all(start, winners)
    if passes(ours, start, commits, IsolationLevel.SERIALIZABLE):
        assert rows_of(ours.apply(now)) == rows_of(program(now).apply(now))


@examples(150, 2000)
@given(start=tables, winner=programs, program=programs)
def test_write_serializable_gives_the_same_rows_as_one_of_the_two_orders(
    start: State, winner: Program, program: Program
) -> None:
    ours = program(start)
    now, commits = run_all(start, [winner])
    if passes(ours, start, commits, IsolationLevel.WRITE_SERIALIZABLE):
        first = ours.apply(start)
        possible = [rows_of(program(now).apply(now)), rows_of(winner(first).apply(first))]
        assert rows_of(ours.apply(now)) in possible


@examples(100, 1500)
@given(start=tables, winners=st.lists(programs, min_size=1, max_size=3), program=programs)
def test_snapshot_isolation_never_removes_a_file_twice_or_adds_a_path_twice(
    start: State, winners: list[Program], program: Program
) -> None:
    # Whatever a transaction says that it read, or forgets to say.
    for ours in (program(start), msgspec.structs.replace(program(start), reads=ReadSet())):
        now, commits = run_all(start, winners)
        if passes(ours, start, commits, IsolationLevel.SNAPSHOT_ISOLATION):
            ours.apply(now)  # asserts it


@examples(60, 600)
@given(
    start=tables,
    winner=st.one_of(st.builds(append, partitions, values), st.builds(optimize, partitions)),
    program=st.builds(append, partitions, values),
    level=st.sampled_from(IsolationLevel),
)
def test_appends_conflict_with_neither_appends_nor_optimize(
    start: State, winner: Program, program: Program, level: IsolationLevel
) -> None:
    _, commits = run_all(start, [winner])
    assert passes(program(start), start, commits, level)


@examples(60, 600)
@given(start=tables, p=partitions, level=st.sampled_from(IsolationLevel), other=partitions, x=values)
def test_work_on_different_partitions_never_conflicts(
    start: State, p: int, level: IsolationLevel, other: int, x: int
) -> None:
    if p == other:
        return
    _, commits = run_all(start, [delete_rows(p, x, by_vector=False)])
    assert passes(drop_partition(other)(start), start, commits, level)
