"""Kills a run at its effects, one after the other, and lets the next run go on:
`python crash_driver.py <directory> <Kafka's address> <topic prefix> <every nth> [random kills]`.

Every write to a store and every write to the ledger is an effect, and it is killed before, inside and after each. After
a kill more input arrives; then every row of all input must be in every target once, and the watermarks must say so.
All of it twice: what is no table of the ledger is published by the driver, and by tasks. With `changes` at the end,
rows are late, repeated and deletes, tables are those of modes that change rows, and a dictionary is the judge; with
`graph`, datasets are made of others.

Prints the number of kills; what is wrong is an exception. A process of its own, because it forks.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

import support.loaded  # noqa: F401  for all children
from lakeseal import Repository
from lakeseal.ingest import (
    BranchTarget,
    Dataset,
    DatasetsSource,
    DirectoryTarget,
    FilesSource,
    KafkaSource,
    Pipeline,
    TableTarget,
    delegation,
)
from lakeseal.ledger import Ledger, open
from lakeseal.ledger.schema import leases
from lakeseal.storage import LocalStore
from lakeseal.table import Table
from support.crashes import Effects, When
from support.row_histories import SCHEMA, Row, historized, in_order, random_rows, upserted

ROWS = 5


class Case:
    """Input, targets and ledger of one kill."""

    def __init__(self, place: Path, address: str, topic: str) -> None:
        self.place = place
        self.landing = place / "landing"
        self.landing.mkdir(parents=True)
        self.url = f"sqlite:///{place}/ledger.db"
        files = FilesSource(path=str(self.landing), format="json", schema="id long")
        # A few at a time, so that every run has new ones.
        kafka = KafkaSource(brokers=address, topic=topic, schema="id long", max_messages=ROWS)
        table, plain = {"uri": str(place / "a")}, {"uri": str(place / "b"), "owner": "none"}
        self.pipeline = Pipeline(
            name="crash",
            ledger=self.url,
            datasets=[
                Dataset(name="files to table", source=files, target=TableTarget(**table)),
                Dataset(name="files to file system", source=files, target=TableTarget(**plain)),
                Dataset(name="files to directory", source=files, target=DirectoryTarget(path=str(place / "c"))),
                Dataset(name="kafka to table", source=kafka, target=TableTarget(uri=str(place / "d"))),
                Dataset(name="kafka to directory", source=kafka, target=DirectoryTarget(path=str(place / "e"))),
            ],
        )
        self.files = 0

    def land(self) -> None:
        ids = range(self.files * ROWS, (self.files + 1) * ROWS)
        (self.landing / f"{self.files}.json").write_text("".join(f'{{"id": {n}}}\n' for n in ids))
        self.files += 1

    def check(self, messages: int) -> None:
        landed, produced = Counter(range(self.files * ROWS)), Counter(range(messages))
        found = {
            "a": self.rows("a"),
            "b": self.rows("b"),
            "c": _directory(self.place / "c"),
            "d": self.rows("d"),
            "e": _directory(self.place / "e"),
        }
        for name, expected in {"a": landed, "b": landed, "c": landed, "d": produced, "e": produced}.items():
            assert found[name] == expected, f"{name}: {(found[name] - expected) + (expected - found[name])}"
        for mark in self.pipeline.watermarks():
            if mark.dataset.startswith("kafka"):
                assert mark.value["offset"] == messages, mark
        seen = Counter(mark.dataset for mark in self.pipeline.watermarks() if mark.dataset.startswith("files"))
        assert set(seen.values()) == {self.files}, seen
        assert not self.pipeline.open_sequences()

    def rows(self, name: str) -> Counter[int]:
        return Counter(Table(self.place / name, owner=self.url).to_arrow()["id"].to_pylist())


class ChangesCase(Case):
    """Rows that change those that are there."""

    def __init__(self, place: Path, _address: str, _topic: str) -> None:
        self.place = place
        self.landing = place / "landing"
        self.landing.mkdir(parents=True)
        self.url = f"sqlite:///{place}/ledger.db"
        files = FilesSource(path=str(self.landing), format="json", schema=SCHEMA)
        by_n: dict[str, Any] = {"keys": ("id",), "sequence_by": "n", "delete_when": "gone"}
        self.pipeline = Pipeline(
            name="crash",
            ledger=self.url,
            datasets=[
                Dataset(name=f"{mode} {owner}", source=files, target=self.target(mode, owner, **by_n))
                for mode in ("upsert", "scd2")
                for owner in ("ledger", "none")
            ]
            + [Dataset(name="branch", source=files, target=BranchTarget(repository=str(place / "repo"), path="p"))],
        )
        Repository.create(place / "repo")
        self.files, self.landed = 0, list[Row]()
        self.rng = random.Random(str(place.name))

    def target(self, mode: Any, owner: Any, **options: Any) -> TableTarget:
        return TableTarget(uri=str(self.place / f"{mode}-{owner}"), mode=mode, owner=owner, **options)

    def land(self) -> None:
        rows = random_rows(self.rng, 12, keys=4)
        rows = [{**row, "n": row["n"] + 8 * self.files} for row in rows]
        (self.landing / f"{self.files}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        self.landed += rows
        self.files += 1

    def check(self, _messages: int) -> None:
        for owner in ("ledger", "none"):
            for mode, judge in (("upsert", upserted), ("scd2", historized)):
                found = Table(self.place / f"{mode}-{owner}", owner=self.url).to_arrow().to_pylist()
                assert in_order(found) == judge(self.landed), f"{mode}-{owner}"
        on_branch = Repository.open(self.place / "repo").to_arrow("main", "p").to_pylist()
        assert Counter(map(_text, on_branch)) == Counter(map(_text, self.landed)), "branch"
        seen = Counter(mark.dataset for mark in self.pipeline.watermarks())
        assert set(seen.values()) == {self.files}, seen
        assert not self.pipeline.open_sequences()


class GraphCase(Case):
    """Datasets that are made of others: in the ledger's transaction, and in waves behind a table of the file system.
    After every death each of them is the function of its inputs, or the next run makes it that."""

    def __init__(self, place: Path, _address: str, _topic: str) -> None:
        self.place = place
        self.landing = place / "landing"
        self.landing.mkdir(parents=True)
        self.url = f"sqlite:///{place}/ledger.db"
        files = FilesSource(path=str(self.landing), format="json", schema="id long")

        def made(name: str, of: str, query: str, owner: Any) -> Dataset:
            target = TableTarget(uri=str(place / name), mode="replace", owner=owner)
            return Dataset(name=name, source=DatasetsSource(inputs=(of,)), transform=query, target=target)

        total = "SELECT count(*) AS n, sum(id) AS total FROM rows_in"
        self.pipeline = Pipeline(
            name="crash",
            ledger=self.url,
            datasets=[
                made("again", "plain", "SELECT n + 1 AS n, total FROM plain", "ledger"),
                made("plain", "rows_in", total, "none"),
                made("joint", "rows_in", total, "ledger"),
                Dataset(name="rows_in", source=files, target=TableTarget(uri=str(place / "rows_in"))),
            ],
        )
        self.files = 0

    def check(self, _messages: int) -> None:
        count = self.files * ROWS
        assert self.rows("rows_in") == Counter(range(count))
        for name, more in (("joint", 0), ("plain", 0), ("again", 1)):
            found = Table(self.place / name, owner=self.url).to_arrow().to_pylist()
            assert found == [{"n": count + more, "total": sum(range(count))}], f"{name}: {found}"
        self.check_versions()
        assert not self.pipeline.open_sequences()

    def check_versions(self) -> None:
        """Every version of the joint table is the function of the version of its input that was committed with it."""
        whole = Table(self.place / "rows_in", owner=self.url)
        states = [sorted(whole.to_arrow(n)["id"].to_pylist()) for n in range(1, whole.version() + 1)]
        joint = Table(self.place / "joint", owner=self.url)
        found = [joint.to_arrow(n).to_pylist()[0] for n in range(1, joint.version() + 1)]
        assert found == [{"n": len(ids), "total": sum(ids)} for ids in states], found


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


def _directory(path: Path) -> Counter[int]:
    return Counter(ds.dataset(path, format="parquet").to_table()["id"].to_pylist())


def in_child(do: Callable[[], Any], kill_after: float | None = None) -> bool:
    """False if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            do()
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            os._exit(1)
        os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert status == 0, f"a child failed by {status}; its reason is above"
    return True


def struck(effects: Effects) -> None:
    """From now on everything that this process writes counts."""
    write = Ledger.write

    def counted(self: Ledger, do: Any, *, idempotent: bool = False) -> Any:
        return effects.around_transaction(lambda it: write(self, it, idempotent=idempotent), do)

    Ledger.write = counted  # type: ignore[method-assign]
    for name in ("put", "put_if_absent", "delete", "move", "open_write"):

        def around(original: Any) -> Any:
            return lambda self, *given, **named: effects.around(lambda: original(self, *given, **named))

        setattr(LocalStore, name, around(getattr(LocalStore, name)))


def time_passes(url: str) -> None:
    """A dead run's lease runs out."""
    with open(url) as ledger:
        ledger.write(lambda tx: [tx.update(leases, {"name": "ingest crash"}, {"expires": 0})])


def survive(case: Case, messages: int, kill: Callable[[], bool]) -> bool:
    case.land()
    assert in_child(case.pipeline.run)
    case.land()
    ended = kill()
    case.land()

    def go_on() -> None:
        time_passes(case.url)
        while case.pipeline.run().state != "nothing_new":
            continue
        case.check(messages)

    assert in_child(go_on)
    return ended


def main() -> None:
    faulthandler.enable()
    place, address, topic, every, randomly = Path(sys.argv[1]), sys.argv[2], sys.argv[3], *map(int, sys.argv[4:6])
    messages = json.loads(sys.argv[6])
    kind = {"changes": ChangesCase, "graph": GraphCase}.get("".join(sys.argv[7:]), Case)
    ways = {"driver": delegation.FROM} if kind is not Case else {"driver": delegation.FROM, "tasks": 1}
    kills = 0
    for way, least in ways.items():
        delegation.FROM = least
        for when in When:
            kills += kill_at_effects(kind, place / f"{way}-{when.name}", address, topic, every, when, messages)
        for number in range(randomly):
            case = kind(place / f"{way}-random-{number}", address, topic)
            moment = random.Random(number).uniform(0.0, 0.35)
            kills += not survive(case, messages, lambda case=case, moment=moment: in_child(case.pipeline.run, moment))  # type: ignore[misc]
    print(kills)


def kill_at_effects(
    kind: type[Case], place: Path, address: str, topic: str, every: int, when: When, messages: int
) -> int:
    at = 1 + list(When).index(when) * max(1, every // 3)
    for kills in itertools.count():
        case = kind(place / str(at), address, topic)

        def kill(case: Case = case, at: int = at) -> bool:
            def do() -> None:
                struck(Effects(at=at, when=when))
                case.pipeline.run()

            return in_child(do)

        if survive(case, messages, kill):
            return kills
        at += every
    raise AssertionError("there is always another kill")


if __name__ == "__main__":
    main()
