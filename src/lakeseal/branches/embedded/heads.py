"""Where branches and tags stand: rows of the ledger, and the only place that moves them.

- A head moves by compare-and-set on (commit, epoch), and every move makes the epoch larger.
- One row per repository, under the name "", holds the *collection*: a number that grows when a garbage collection has
  read the heads. A move names the collection that it began under and is refused under another one (`FENCED`), because
  files that it wrote or relied on may have been taken for garbage; whoever is refused writes them again. Movers share
  that row's lock, and a collection has it alone.
- After a lost reply the ledger runs a move again; a move that finds its own commit in place has won. One that finds
  another there may have won, too, and been built upon: `Moved.perhaps` says so, and history tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from lakeseal import typed_json
from lakeseal.branches.values import Protection, Ref
from lakeseal.clock import now_ms
from lakeseal.errors import AlreadyExists, BrokenLedger, RefNotFound, RepositoryNotFound
from lakeseal.ledger import Ledger, Row, Tx, key
from lakeseal.ledger.schema import heads, tags

REPOSITORY = "repository"
BRANCH = "branch"
JOB = "job"


class Head(Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    commit: str
    epoch: int
    info: dict[str, Any]
    created_ms: int
    updated_ms: int

    @classmethod
    def from_row(cls, row: Row) -> Head:
        return cls(
            name=row.branch,
            kind=row.kind,
            commit=row.commit_id,
            epoch=row.epoch,
            info=row.info,
            created_ms=row.created,
            updated_ms=row.updated,
        )

    @property
    def protection(self) -> Protection:
        try:
            return typed_json.convert(self.info.get("protection", {}), Protection)
        except msgspec.ValidationError as error:
            raise BrokenLedger(f"the protection of {self.name} can't be read: {error}") from error

    @property
    def ref(self) -> Ref:
        return Ref(
            name=self.name,
            kind="job" if self.kind == JOB else "branch",
            commit=self.commit,
            protection=self.protection,
            created_ms=self.created_ms,
            updated_ms=self.updated_ms,
        )


class HeadsSnapshot(Struct, frozen=True, kw_only=True):
    """Heads, tags and the collection in one moment."""

    collection: int
    horizon_ms: int
    """Commits before this may have lost their files."""
    heads: tuple[Head, ...] = ()
    tags: tuple[Ref, ...] = ()

    def head(self, name: str) -> Head | None:
        return next((head for head in self.heads if head.name == name), None)

    @property
    def roots(self) -> list[str]:
        return [head.commit for head in self.heads] + [tag.commit for tag in self.tags]


class MoveVerdict(Enum):
    MOVED = "the head is where it should be"
    LOST = "the head was elsewhere"
    GONE = "there is no such branch"
    FENCED = "a collection has begun since"


class Moved(Struct, frozen=True, kw_only=True):
    verdict: MoveVerdict
    actual: str = ""
    perhaps: bool = False
    """Lost, unless an earlier run of it won unseen and others have moved the head on."""


class Heads:
    def __init__(self, ledger: Ledger, repo: str) -> None:
        self._ledger = ledger
        self._repo = repo

    def register(self, branch: str, commit: str, uri: str) -> bool:
        """Makes the repository's row and its first branch; False if it is there."""
        now = now_ms()

        def do(tx: Tx) -> bool:
            if not self._insert(tx, "", REPOSITORY, "", {"uri": uri}, now):
                there = tx.get(heads, repo=self._repo, branch=branch)
                return there is not None and there.commit_id == commit
            self._insert(tx, branch, BRANCH, commit, {}, now)
            return True

        return self._ledger.write(do, idempotent=True)

    def is_known(self) -> bool:
        return self._ledger.read(lambda tx: tx.get(heads, repo=self._repo, branch="")) is not None

    def look(self, name: str) -> HeadsSnapshot:
        """A branch or tag of this name, if there is one."""

        def do(tx: Tx) -> HeadsSnapshot:
            head = tx.get(heads, repo=self._repo, branch=name) if name else None
            tag = tx.get(tags, repo=self._repo, tag=name) if name and head is None else None
            return self._standing(tx.get(heads, repo=self._repo, branch=""), [head], [tag])

        return self._ledger.read(do)

    def all(self) -> HeadsSnapshot:
        return self._ledger.read(self._all)

    def move(self, head: Head, commit: str, collection: int) -> Moved:
        """From where `head` says to a commit that is durable."""
        runs = 0

        def do(tx: Tx) -> Moved:
            nonlocal runs
            runs += 1
            # The repository's row before any other, as a collection locks them.
            current = self._collection(tx)
            row = tx.get(heads, repo=self._repo, branch=head.name)
            if row is not None and row.commit_id == commit:
                return Moved(verdict=MoveVerdict.MOVED, actual=commit)
            if row is None:
                return Moved(verdict=MoveVerdict.GONE, perhaps=runs > 1)
            if current != collection:
                return Moved(verdict=MoveVerdict.FENCED, actual=row.commit_id, perhaps=runs > 1)
            moved = tx.compare_and_set(
                heads,
                {"repo": self._repo, "branch": head.name},
                {"commit_id": head.commit, "epoch": head.epoch},
                {"commit_id": commit, "epoch": head.epoch + 1, "updated": now_ms()},
            )
            if moved:
                return Moved(verdict=MoveVerdict.MOVED, actual=commit)
            return Moved(verdict=MoveVerdict.LOST, actual=row.commit_id, perhaps=runs > 1)

        return self._ledger.write(do, idempotent=True)

    def create_branch(self, name: str, commit: str, collection: int) -> Head | None:
        """None if a collection has begun since."""
        now = now_ms()

        def do(tx: Tx) -> Head | None:
            # Alone, not shared: of a branch and a tag that want one name at once, one must see the other.
            if self._repository(tx).epoch != collection:
                return None
            there = tx.get(heads, repo=self._repo, branch=name)
            if there is not None and (there.commit_id, there.created) == (commit, now):
                return Head.from_row(there)
            if there is not None or tx.get(tags, repo=self._repo, tag=name) is not None:
                raise AlreadyExists(f"there is a branch or tag {name!r}", hint="Choose another name")
            self._insert(tx, name, BRANCH, commit, {}, now)
            return Head(name=name, kind=BRANCH, commit=commit, epoch=now, info={}, created_ms=now, updated_ms=now)

        return self._ledger.write(do, idempotent=True)

    def create_tag(self, name: str, commit: str, collection: int) -> Ref | None:
        now = now_ms()

        def do(tx: Tx) -> Ref | None:
            if self._repository(tx).epoch != collection:
                return None
            there = tx.get(tags, repo=self._repo, tag=name)
            taken = there is not None and (there.commit_id, there.created) != (commit, now)
            if taken or tx.get(heads, repo=self._repo, branch=name) is not None:
                raise AlreadyExists(f"there is a branch or tag {name!r}", hint="Choose another name")
            tx.insert(tags, repo=self._repo, tag=name, commit_id=commit, info={}, created=now)
            return Ref(name=name, kind="tag", commit=commit, created_ms=now, updated_ms=now)

        return self._ledger.write(do, idempotent=True)

    def delete_tag(self, name: str) -> None:
        self._ledger.write(lambda tx: tx.delete(tags, repo=self._repo, tag=name), idempotent=True)

    def delete_branch(self, head: Head) -> bool:
        """If it stands where `head` says, at its epoch; also if it is gone already."""

        def do(tx: Tx) -> bool:
            row = tx.get(heads, repo=self._repo, branch=head.name)
            if row is None:
                return True
            if (row.commit_id, row.epoch) != (head.commit, head.epoch):
                return False
            return tx.delete(heads, repo=self._repo, branch=head.name) > 0

        return self._ledger.write(do, idempotent=True)

    def protect(self, name: str, protection: Protection) -> Head:
        """Moves the epoch, so that a merge that was checked under other rules does not get through."""

        def do(tx: Tx) -> Head:
            row = tx.get(heads, repo=self._repo, branch=name)
            if row is None or row.kind != BRANCH:
                raise RefNotFound(f"there is no branch {name!r}")
            info = {**row.info, "protection": msgspec.to_builtins(protection)}
            where = {"repo": self._repo, "branch": name}
            tx.update(heads, where, {"info": info, "epoch": row.epoch + 1, "updated": now_ms()})
            return Head.from_row(tx.get(heads, repo=self._repo, branch=name) or row)

        return self._ledger.write(do, idempotent=True)

    def begin_job(self, name: str, dest: str, info: dict[str, Any]) -> Head:
        """A branch at the head of `dest`; the one that is there, if the job has begun before."""
        now = now_ms()

        def do(tx: Tx) -> Head:
            self._collection(tx)
            there = tx.get(heads, repo=self._repo, branch=name)
            if there is not None:
                return Head.from_row(there)
            start = tx.get(heads, repo=self._repo, branch=dest)
            if start is None:
                raise RefNotFound(f"there is no branch {dest!r}")
            self._insert(tx, name, JOB, start.commit_id, {**info, "base": start.commit_id}, now)
            return Head.from_row(_there(tx.get(heads, repo=self._repo, branch=name)))

        return self._ledger.write(do, idempotent=True)

    def collect(self, horizon_ms: int, stale: Sequence[Head]) -> HeadsSnapshot:
        """Begins a collection: removes stale jobs' branches that have not moved, fences moves that are under way, and
        gives what stands now."""

        def do(tx: Tx) -> HeadsSnapshot:
            row = self._repository(tx)
            info = {**row.info, "horizon_ms": max(horizon_ms, int(row.info.get("horizon_ms", 0)))}
            tx.update(heads, {"repo": self._repo, "branch": ""}, {"epoch": row.epoch + 1, "info": info})
            for head in stale:
                there = tx.get(heads, repo=self._repo, branch=head.name)
                if there is not None and (there.commit_id, there.epoch) == (head.commit, head.epoch):
                    tx.delete(heads, repo=self._repo, branch=head.name)
            return self._all(tx)

        # Twice is as good as once: the second fences again.
        return self._ledger.write(do, idempotent=True)

    def _all(self, tx: Tx) -> HeadsSnapshot:
        # The repository's row, which is locked where it matters, guards the others.
        rows = tx.rows(sa.select(heads).where(heads.c.repo_key == key(self._repo)).order_by(heads.c.branch), lock=False)
        named = tx.rows(sa.select(tags).where(tags.c.repo_key == key(self._repo)).order_by(tags.c.tag), lock=False)
        own = next((row for row in rows if row.branch == ""), None)
        return self._standing(own, [row for row in rows if row.branch != ""], named)

    def _standing(self, own: Row | None, rows: Sequence[Row | None], named: Sequence[Row | None]) -> HeadsSnapshot:
        if own is None:
            raise RepositoryNotFound("the ledger does not know the repository", table=self._repo)
        return HeadsSnapshot(
            collection=own.epoch,
            horizon_ms=int(own.info.get("horizon_ms", 0)),
            heads=tuple(Head.from_row(row) for row in rows if row is not None),
            tags=tuple(
                Ref(name=row.tag, kind="tag", commit=row.commit_id, created_ms=row.created, updated_ms=row.created)
                for row in named
                if row is not None
            ),
        )

    def _collection(self, tx: Tx) -> int:
        """Held until the end of the transaction, side by side with other movers."""
        where = (heads.c.repo_key == key(self._repo), heads.c.branch_key == key(""))
        rows = tx.rows(sa.select(heads.c.epoch).where(*where).with_for_update(read=True), lock=False)
        if not rows:
            raise RepositoryNotFound("the ledger does not know the repository", table=self._repo)
        return int(rows[0].epoch)

    def _repository(self, tx: Tx) -> Row:
        row = tx.get(heads, repo=self._repo, branch="")
        if row is None:
            raise RepositoryNotFound("the ledger does not know the repository", table=self._repo)
        return row

    def _insert(self, tx: Tx, name: str, kind: str, commit: str, info: dict[str, Any], now: int) -> bool:
        return tx.insert(
            heads,
            repo=self._repo,
            branch=name,
            commit_id=commit,
            # A branch that is made again under its name does not take up the epochs of the old one.
            epoch=now,
            kind=kind,
            info=info,
            created=now,
            updated=now,
        )


def _there(row: Row | None) -> Row:
    assert row is not None
    return row
