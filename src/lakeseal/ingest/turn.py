"""A run's turn: the lease of its pipeline, kept as long as the run takes."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from lakeseal.errors import Fenced, LakesealError
from lakeseal.steps import leases
from lakeseal.steps.books import LeaseBook
from lakeseal.steps.holder import Waiting, is_gone, take_turn, this_process
from lakeseal.steps.leases import Lease
from lakeseal.steps.turn import Turn


class HeldTurn:
    """Taken by `with`: `LeaseHeld` where another run has it, unless there is somebody to tell while `waiting` for it.
    While held, a thread renews the lease; losing it shows in `check`."""

    def __init__(
        self, book: LeaseBook, pipeline: str, run_id: str, seconds: float, *, waiting: Waiting | None = None
    ) -> None:
        self._book, self._pipeline, self._run_id, self._seconds = book, pipeline, run_id, seconds
        self._waiting = waiting
        self._lease: Lease
        self._over = threading.Event()
        self._lost: Fenced | None = None
        self._thread = threading.Thread(target=self._renew, name="lakeseal-lease", daemon=True)

    @property
    def turn(self) -> Turn:
        return self._lease.turn

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    def check(self) -> None:
        """Before something is published: `Fenced` if the turn is lost. What is written is fenced by its epoch anyway;
        this only spares the work."""
        if self._lost is not None:
            raise self._lost

    def _renew(self) -> None:
        while not self._over.wait(self._lease.seconds / 3):
            try:
                self._lease = self._book.renew(self._lease)
            except Fenced as error:
                self._lost = error
                return
            except LakesealError:
                continue  # the ledger is away for a moment; nobody else can get the lease there either

    def __enter__(self) -> Self:
        name, holder = leases.of_pipeline(self._pipeline), this_process(f"run {self._run_id}")
        self._lease = take_turn(self._book, name, holder=holder, seconds=self._seconds, waiting=self._waiting)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._lost is None:
            self._book.release(self._lease)


def is_at_work(book: LeaseBook, pipeline: str, run_id: str) -> bool:
    """Whether a run that has not been seen to end still has its turn."""
    held = book.look(leases.of_pipeline(pipeline))
    return held is not None and held.holder.endswith(f", run {run_id}") and not is_gone(held.holder)
