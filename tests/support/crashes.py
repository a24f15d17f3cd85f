"""Killing a process at each of its effects in turn: every write to a store, every write to a ledger, and every step
that an owner elsewhere is asked for is one.

    effects = Effects(at=7, when=When.AFTER)
    store, ledger = CrashingStore(store, effects), CrashingLedger(ledger, effects)

Without `at` nothing is killed, and `effects.count` says afterwards how many there were. What dies dies as by SIGKILL:
nothing is flushed, closed or rolled back by the process itself.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lakeseal.ledger import Ledger, Tx
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.storage.base import Store
from lakeseal.storage.streams import WriteStream
from lakeseal.testing.faults import FaultyStore
from support.lossy_owner import STEPS

if TYPE_CHECKING:
    pass

T = TypeVar("T")


class When(Enum):
    BEFORE = "nothing of it has happened"
    INSIDE = "a ledger's transaction has run and is not committed, or was sent with a courier; as BEFORE for a store"
    AFTER = "it has happened, and nobody has been told"


class Effects:
    def __init__(self, at: int | None = None, when: When = When.AFTER) -> None:
        self.count = 0
        self.transactions: set[int] = set()
        """Which of the effects were a ledger's."""
        self._at = at
        self._when = when
        self._lock = threading.Lock()

    def around(self, effect: Callable[[], T]) -> T:
        return self._around(self._next(), effect)

    def around_transaction(self, write: Callable[[Callable[[Tx], T]], T], do: Callable[[Tx], T]) -> T:
        number = self._next()
        self.transactions.add(number)
        if number != self._at or self._when is not When.INSIDE:
            return self._around(number, lambda: write(do))

        def cut_off(tx: Tx) -> T:
            try:
                do(tx)
            finally:
                die()

        return write(cut_off)

    def _next(self) -> int:
        with self._lock:  # or two threads could both come after the one that it is
            self.count += 1
            return self.count

    def _around(self, number: int, effect: Callable[[], T]) -> T:
        if number == self._at and self._when is not When.AFTER:
            die()
        try:
            return effect()
        finally:  # also where it was refused, or nobody would die of this one
            if number == self._at:
                die()


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process that is killed does not go on")


class CrashingStore(FaultyStore):
    def __init__(self, store: Store, effects: Effects) -> None:
        super().__init__(store)
        self._effects = effects

    def put(self, key: str, data: bytes) -> None:
        self._effects.around(lambda: super(CrashingStore, self).put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._effects.around(lambda: super(CrashingStore, self).put_if_absent(key, data))

    def delete(self, keys: Iterable[str]) -> None:
        named = tuple(keys)
        self._effects.around(lambda: super(CrashingStore, self).delete(named))

    def move(self, pairs: Sequence[tuple[str, str]], to: Store) -> list[tuple[str, str]]:
        left = []
        for pair in pairs:  # each is an effect of its own
            left += self._effects.around(lambda pair=pair: super(CrashingStore, self).move([pair], to))  # type: ignore[misc]
        return left

    def open_write(self, key: str) -> WriteStream:
        return self._effects.around(lambda: super(CrashingStore, self).open_write(key))


class CrashingLedger:
    """A `Ledger`, as far as owners use one."""

    def __init__(self, ledger: Ledger, effects: Effects) -> None:
        self._ledger = ledger
        self._effects = effects

    def write(self, do: Callable[[Tx], T], *, idempotent: bool = False) -> T:
        return self._effects.around_transaction(lambda it: self._ledger.write(it, idempotent=idempotent), do)

    def read(self, do: Callable[[Tx], T]) -> T:
        return self._ledger.read(do)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


class CrashingOwner:
    """An `OwnerEndpoint` in another process, of which this one is a client."""

    def __init__(self, owner: OwnerEndpoint, effects: Effects) -> None:
        self._owner = owner
        self._effects = effects

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._owner, name)
        if name not in STEPS:
            return found
        return lambda *arguments, **named: self._effects.around(lambda: found(*arguments, **named))
