"""Running a command: its three steps, and what the table wants done behind its commit.

A table with `delta.autoOptimize.autoCompact` gets small files put together after each commit that adds some, in a
commit of its own that changes no row. It comes before `run` returns, so that whoever goes on with the table does not
meet it, and whatever becomes of it, the command stands.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, nullcontext

import msgspec

from lakeseal import traces
from lakeseal.commands.command import EVERY_TIME, Command, CommandContext, NothingToDo
from lakeseal.commands.optimize import AutoCompaction, OptimizeCommand
from lakeseal.commands.transactional_write import TransactionalWrite
from lakeseal.commit.transaction import CommitResult, OptimisticTransaction
from lakeseal.errors import located
from lakeseal.jobs.engine import Engine
from lakeseal.jobs.progress import SILENT, progress
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.actions import AddCDCFile, AddFile
from lakeseal.storage import StoreSpec

_log = logging.getLogger(__name__)
# What was told of which table: what is so behind one write is mostly so behind the next.
_told: set[tuple[str, str]] = set()
_MOST_TOLD = 10_000


def run(
    command: Command, txn: OptimisticTransaction, *, engine: Engine, store: StoreSpec
) -> CommitResult | NothingToDo:
    with traces.span(_name(command), {"lakeseal.table": txn.table}) as say:
        result = _run(command, txn, engine=engine, store=store)
        told = {"lakeseal.version": result.version, "lakeseal.attempts": getattr(result, "attempts", 0)}
        say(told | {f"lakeseal.{name}": value for name, value in result.metrics.items()})
    return result


def _name(command: Command) -> str:
    return f"lakeseal {type(command).__name__.removesuffix('Command').lower()}"


def _run(
    command: Command, txn: OptimisticTransaction, *, engine: Engine, store: StoreSpec
) -> CommitResult | NothingToDo:
    shown = nullcontext(SILENT) if command.shown is None else progress(command.shown)
    with located(table=txn.table), shown as bar, ExitStack() as until_end:
        watch = _Stopwatch()
        context = CommandContext(txn=txn, engine=engine, store=store, progress=bar, until_end=until_end)
        change = command.decide(context)
        if isinstance(change, NothingToDo):
            return change
        scan_time = watch.lap()
        if change.rewritten:
            bar.stage("rewriting", change.rewritten)
        files = TransactionalWrite(txn, engine, store=store, progress=bar)
        written: list[AddFile | AddCDCFile] = []
        for write in change.writes:
            written += files.write_files(write.data, write.options, is_optimize=write.is_optimize)
        actions, operation = change.finish(written)
        times = dict(zip(EVERY_TIME, (scan_time, watch.lap(), watch.total), strict=True))
        metrics = {**operation.metrics, **{name: times[name] for name in command.times}}
        if change.nothing is not None and not actions and not _changes_metadata(txn):
            return NothingToDo(version=txn.read_version, reason=change.nothing, metrics=metrics)
        bar.stage("committing")
        result = txn.commit(actions, msgspec.structs.replace(operation, metrics=metrics))
    added = [action for action in actions if isinstance(action, AddFile) and action.data_change]
    if added and result.attempts:
        compact_behind(result.snapshot, txn, engine=engine, store=store, added=added)
    return result


def compact_behind(
    snapshot: Snapshot,
    txn: OptimisticTransaction,
    *,
    engine: Engine,
    store: StoreSpec,
    added: list[AddFile] | None = None,
) -> None:
    """Puts small files together where the table asks for it: in the partitions of `added`, or in all. Never raises;
    why it could not is logged, once for each table and reason in a process."""
    if snapshot.properties.auto_compact == "false":
        return
    partitions = None if added is None else frozenset(tuple(sorted(add.partition_values.items())) for add in added)
    try:
        run(OptimizeCommand(auto=AutoCompaction(partitions=partitions)), txn.following(), engine=engine, store=store)
    except Exception as error:
        told = (txn.table, str(error))
        if told in _told:
            return
        if len(_told) >= _MOST_TOLD:
            _told.clear()
        _told.add(told)
        _log.warning("Small files of %s were not put together; what was written stands: %s", *told)


def _changes_metadata(txn: OptimisticTransaction) -> bool:
    return txn.snapshot is None or txn.metadata != txn.snapshot.metadata


class _Stopwatch:
    """Milliseconds since it was made, and since it was last asked for a lap."""

    def __init__(self) -> None:
        self._start = self._lap = time.monotonic_ns()

    def lap(self) -> int:
        now = time.monotonic_ns()
        passed, self._lap = now - self._lap, now
        return passed // 1_000_000

    @property
    def total(self) -> int:
        return (time.monotonic_ns() - self._start) // 1_000_000
