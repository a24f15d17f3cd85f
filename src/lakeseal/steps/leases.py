"""Leases in the ledger: who may work on something now, under an epoch that grows with each new holder.

    leases = Leases(ledger)
    lease = leases.acquire(of_pipeline("clicks"), holder="host:pid", seconds=60)   # LeaseHeld if another has it
    lease = leases.renew(lease)                                                    # Fenced if another has got it
    leases.release(lease)

A lease only spares useless work. It may run out while its holder is alive but slow; then another may get it, under the
next epoch, and the first one's writes are refused wherever they name their epoch (`check`, step stores, watermarks).
Times are those of the one clock that all users of the ledger share. A dead holder's lease runs out by itself; where it
is known to be gone (`holder`), nobody need wait for that.
"""

from __future__ import annotations

from msgspec import Struct

from lakeseal.errors import Fenced, InvalidArgument, LeaseHeld
from lakeseal.ledger import Ledger, Tx
from lakeseal.ledger.schema import leases
from lakeseal.owner.messages import LedgerRecord
from lakeseal.steps.turn import Turn

OF_PIPELINES = "ingest "
"""How the names of pipelines' leases begin."""


def of_pipeline(pipeline: str) -> str:
    """The lease that whoever works on a pipeline's datasets holds."""
    return f"{OF_PIPELINES}{pipeline}"


class Lease(Struct, frozen=True, kw_only=True):
    name: str
    holder: str
    epoch: int
    expires_ms: int
    seconds: float

    @property
    def turn(self) -> Turn:
        return Turn(name=self.name, epoch=self.epoch)


class Leases:
    """The leases in a ledger. May be shared by threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def acquire(self, name: str, *, holder: str, seconds: float = 60.0, instead_of: str | None = None) -> Lease:
        """`holder` is unique to this run. Asking again as the same holder, while it is held, gives the same epoch.
        `instead_of` is a holder that is known to be gone, and does not count."""
        if seconds <= 0 or not holder:
            raise InvalidArgument("A lease needs a holder, and a time above 0")

        def do(tx: Tx) -> Lease:
            now = tx.now()
            expires = now + int(seconds * 1000)
            if tx.insert(leases, name=name, holder=holder, epoch=1, expires=expires, info={}):
                return Lease(name=name, holder=holder, epoch=1, expires_ms=expires, seconds=seconds)
            row = tx.get(leases, name=name)
            assert row is not None, "a lease's row is never deleted"
            if row.holder not in (holder, instead_of) and row.expires > now:
                raise LeaseHeld(
                    f"{name!r} is held by {row.holder} for {(row.expires - now) / 1000:.0f} s more",
                    hint="Wait until it ends, as lakeseal ingest run --wait does, or until a dead run's lease is over",
                )
            epoch = row.epoch if row.holder == holder and row.expires > now else row.epoch + 1
            tx.update(leases, {"name": name}, {"holder": holder, "epoch": epoch, "expires": expires})
            return Lease(name=name, holder=holder, epoch=epoch, expires_ms=expires, seconds=seconds)

        return self._ledger.write(do, idempotent=True)

    def look(self, name: str) -> Lease | None:
        """As it is held now; None if it is not."""

        def do(tx: Tx) -> Lease | None:
            row, now = tx.get(leases, name=name), tx.now()
            if row is None or row.expires <= now:
                return None
            left = (row.expires - now) / 1000
            return Lease(name=name, holder=row.holder, epoch=row.epoch, expires_ms=row.expires, seconds=left)

        return self._ledger.read(do)

    def renew(self, lease: Lease) -> Lease:
        """The lease for its time from now on, even if it had run out, as long as nobody else has got it."""

        def do(tx: Tx) -> Lease:
            check(tx, lease.turn)
            expires = tx.now() + int(lease.seconds * 1000)
            tx.update(leases, {"name": lease.name}, {"expires": expires})
            return Lease(
                name=lease.name, holder=lease.holder, epoch=lease.epoch, expires_ms=expires, seconds=lease.seconds
            )

        return self._ledger.write(do, idempotent=True)

    def release(self, lease: Lease) -> None:
        """Nothing happens if another has got it meanwhile. The epoch stays, so that the next one is larger."""

        def do(tx: Tx) -> None:
            row = tx.get(leases, name=lease.name)
            if row is not None and (row.holder, row.epoch) == (lease.holder, lease.epoch):
                tx.update(leases, {"name": lease.name}, {"expires": 0})

        self._ledger.write(do, idempotent=True)


def check(tx: Tx, turn: Turn) -> None:
    """Inside a transaction that writes: `Fenced` if a later epoch has the lease, and it can't get it before the end
    of this transaction."""
    row = tx.get(leases, name=turn.name)
    if row is None or row.epoch != turn.epoch:
        now = "nobody has it any more" if row is None else f"{row.holder} has it, under epoch {row.epoch}"
        raise Fenced(f"This run lost its turn at {turn.name!r} (epoch {turn.epoch}): {now}")


def held(turn: Turn) -> LedgerRecord:
    """`check`, as a record that rides along with commits."""
    epoch = {"epoch": turn.epoch}
    return LedgerRecord(table=str(leases.name), key={"name": turn.name}, expected=epoch, values=epoch)
