"""The product's ledger on SQLite in memory, where each transaction is one step of a simulation, and its server at times
busy, or away just when it was asked to commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lakeseal.errors import StorageUnavailable, UnknownOutcome
from lakeseal.ledger import Ledger
from lakeseal.ledger.backend import TransactionKind
from lakeseal.ledger.tx import Again, Tx
from simulated.faults import Faults
from simulated.scheduler import Scheduler

T = TypeVar("T")


class SimulatedLedger(Ledger):
    """One is opened for many runs, since making its tables takes longer than a run; see `begin`."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger._backend, patience=ledger._patience)
        self.database: Any = None
        """SQLite's own connection, to look at the rows as they are."""
        with self._backend.transaction(TransactionKind.READ) as connection:
            self.database = connection.connection.driver_connection
        # Made by chance, it would make each process's runs others.
        self.database.execute("UPDATE facts SET value = ? WHERE name = 'identity'", ['"the-only-ledger"'])

    def begin(
        self,
        scheduler: Scheduler,
        faults: Faults,
        has_written: Callable[[], None],
        rows: Sequence[tuple[object, ...]] = (),
    ) -> None:
        """Part of another run, with these `rows` of tables and nothing else."""
        self._scheduler, self._faults, self._has_written = scheduler, faults, has_written
        self.database.execute("BEGIN")
        for table in ("commits", "tables", "leases"):
            self.database.execute(f"DELETE FROM {table}")
        for row in rows:
            self.database.execute(f"INSERT INTO tables VALUES ({', '.join('?' * len(row))})", row)
        self.database.execute("COMMIT")

    def rows(self) -> list[tuple[object, ...]]:
        assert not self.database.execute("SELECT * FROM commits").fetchall(), "tables that begin have no commits yet"
        return self.database.execute("SELECT * FROM tables").fetchall()  # type: ignore[no-any-return]

    def _once(self, do: Callable[[Tx], T], kind: TransactionKind) -> T:
        self._scheduler.step(f"ledger {kind.name.lower()}")
        if self._faults.strikes("ledger is busy"):
            raise Again(StorageUnavailable("the ledger is busy"))
        result = super()._once(do, kind)
        if kind is TransactionKind.WRITE:
            self._has_written()
            if self._faults.strikes("answer to a ledger's commit is lost"):
                raise UnknownOutcome("no answer to a commit")
        return result
