"""Streams out of a table that changes meanwhile, killed anywhere: every row once.

The judge is the table's log as bare JSON and its data files as bare Parquet, read by nothing of ours, and what the
offsets in the query's checkpoint say about where the stream began. A history is a table, a stream's options, and what
happens to both: commits of every kind beside the stream and while it asks, runs with other limits each, kills. A kill
is a batch that was planned and not run, one that was run and not noted, or the whole checkpoint as it was some time
ago. One half of the histories is driven by an engine that asks as Spark does, with commits between its questions; the
other by Spark itself, with commits and copies of the checkpoint by other threads.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import Struct

import lakeseal
from lakeseal import Table
from lakeseal.errors import SourceChanged
from lakeseal.spark.failures import recovered
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.stream_engine import Engine

Rows = list[dict[str, Any]]
_CHANGES = ("_change_type", "_commit_version")
_AT_ONCE = 3  # streams in one session, which wait for each other's Python more than for anything else


class BareLog:
    """What commits say, kept as they appear: a clean-up may take them away."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._commits: dict[int, list[dict[str, Any]]] = {}
        self._times: dict[int, int] = {}

    def look(self) -> None:
        for path in sorted((self._root / "_delta_log").glob("*.json")):
            if path.stem.isdigit() and int(path.stem) not in self._commits:
                self._commits[int(path.stem)] = [json.loads(line) for line in path.read_text().splitlines()]
                time_ms = path.stat().st_mtime_ns // 1_000_000
                self._times[int(path.stem)] = max(time_ms, self._times.get(int(path.stem) - 1, -1) + 1)

    @property
    def newest(self) -> int:
        return max(self._commits)

    @property
    def oldest(self) -> int:
        """That a clean-up has left."""
        return min(int(path.stem) for path in (self._root / "_delta_log").glob("*.json") if path.stem.isdigit())

    def first_since(self, ms: int) -> int:
        return min((v for v, time_ms in self._times.items() if time_ms >= ms), default=self.newest + 1)

    def time(self, version: int) -> int:
        return self._times[version]

    def _of(self, version: int, kind: str, *, changes_only: bool = True) -> list[dict[str, Any]]:
        found = [action[kind] for action in self._commits[version] if kind in action]
        return [a for a in found if a.get("dataChange", True)] if changes_only and kind != "cdc" else found

    def _rows(self, file: dict[str, Any]) -> Rows:
        partition = file.get("partitionValues") or {}
        found: Rows = pq.ParquetFile(self._root / unquote(file["path"])).read().to_pylist()
        return [{**row, **partition} for row in found]

    def snapshot(self, version: int) -> Rows:
        files: dict[str, dict[str, Any]] = {}
        for v in range(version + 1):
            for gone in self._of(v, "remove", changes_only=False):
                files.pop(gone["path"], None)
            files |= {add["path"]: add for add in self._of(v, "add", changes_only=False)}
        return [row for file in files.values() for row in self._rows(file)]

    def added(self, version: int) -> Rows:
        """Of a commit that takes nothing away; streams pass over the others, or stop."""
        if self._of(version, "remove"):
            return []
        return [row for add in self._of(version, "add") for row in self._rows(add)]

    def changed(self, version: int) -> Rows:
        explicit = self._of(version, "cdc")
        if explicit:
            found = [row for cdc in explicit for row in self._rows(cdc)]
        else:
            found = [
                {**row, "_change_type": kind}
                for action, kind in (("add", "insert"), ("remove", "delete"))
                for file in self._of(version, action)
                for row in self._rows(file)
            ]
        return [{**row, "_commit_version": version} for row in found]

    def expected(self, origin: int, is_initial: bool, changes: bool) -> Rows:
        found: Rows = []
        if is_initial:
            found = self.snapshot(origin)
            if changes:
                found = [{**row, "_change_type": "insert", "_commit_version": origin} for row in found]
        later = range(origin + is_initial, self.newest + 1)
        return found + [row for v in later for row in (self.changed(v) if changes else self.added(v))]


class Plan(Struct, kw_only=True):
    """What the user says, the same in every run."""

    changes: bool
    passes_over: str | None
    """`ignoreDeletes`, `skipChangeCommits` or neither."""
    start: str
    partitioned: bool

    @classmethod
    def of(cls, chance: random.Random) -> Plan:
        changes = chance.random() < 0.35
        passes_over = None if changes else chance.choice([None, "ignoreDeletes", "skipChangeCommits"])
        return cls(
            changes=changes,
            passes_over=passes_over,
            start=chance.choice(["", "", "", "version", "latest", "moment", "next", "soon"]),
            partitioned=passes_over == "ignoreDeletes" or chance.random() < 0.3,
        )


class Source:
    """The table, and commits to it of the kinds that the plan's stream goes on after."""

    def __init__(self, root: Path, plan: Plan, chance: random.Random) -> None:
        self.table = Table(root)
        self.log = BareLog(root)
        self.plan = plan
        self._chance = chance
        self._ids = 0
        self.columns: list[str] = []
        self.write(properties={"delta.enableChangeDataFeed": str(plan.changes).lower()})

    def write(self, **how: Any) -> None:
        count = self._chance.randrange(1, 6)
        ids = range(self._ids, self._ids + count)
        self._ids += count
        data: dict[str, Any] = {"id": pa.array(ids, pa.int64()), "p": [self._chance.choice("abc") for _ in ids]}
        data |= {name: [f"{name}{i}" for i in ids] for name in self.columns}
        if self.plan.partitioned and self._ids == count:
            how["partition_by"] = "p"
        self.table.write(pa.table(data), max_records_per_file=self._chance.choice([1, 2, 100]), **how)
        self.log.look()

    def change(self) -> None:
        """Some commit, or none."""
        self._kinds()[self._chance.choice(list(self._kinds()))]()
        self.log.look()

    def _kinds(self) -> dict[str, Callable[[], object]]:
        pick, table = self._chance, self.table
        kinds: dict[str, Callable[[], object]] = {f"append{n}": self.write for n in range(5)}
        kinds["optimize"] = table.optimize
        kinds["checkpoint"] = table.checkpoint
        kinds["note"] = lambda: table.set_properties({"note": str(pick.random())})
        kinds["column"] = self._new_column
        if self.plan.passes_over == "ignoreDeletes":
            kinds["delete"] = lambda: table.delete(f"p = '{pick.choice('abc')}'")
        if self.plan.passes_over == "skipChangeCommits" or self.plan.changes:
            kinds["delete"] = lambda: table.delete(f"id % 5 = {pick.randrange(5)}")
            kinds["update"] = lambda: table.update({"p": "'b'"}, f"id % 4 = {pick.randrange(4)}")
            kinds["overwrite"] = lambda: self.write(mode="overwrite")
            kinds["restore"] = self._restore
        return kinds

    def _new_column(self) -> None:
        if len(self.columns) < 2 and self._chance.random() < 0.5:
            self.columns.append("xy"[len(self.columns)])
            self.write(merge_schema=True)

    def _restore(self) -> None:
        self.log.look()
        if not self.columns:  # a restore takes columns away, which stops a stream for good
            self.table.restore(version=self._chance.randrange(self.log.oldest, self.log.newest + 1))


def start_options(plan: Plan, log: BareLog, chance: random.Random) -> dict[str, str]:
    version = chance.randrange(log.newest + 1)
    match plan.start:
        case "version":
            return {"startingVersion": str(version)}
        case "next":
            return {"startingVersion": str(log.newest + 1)}
        case "latest":
            return {"startingVersion": "latest"}
        case "moment" | "soon":
            ms = (
                log.time(version) + chance.randrange(-1, 2)
                if plan.start == "moment"
                else time.time_ns() // 1_000_000 + 400
            )
            return {"startingTimestamp": datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")}
    return {}


def limits(chance: random.Random) -> dict[str, str]:
    """Of one run."""
    given = {}
    if chance.random() < 0.7:
        given["maxFilesPerTrigger"] = str(chance.randrange(1, 6))
    if chance.random() < 0.3:
        given["maxBytesPerTrigger"] = str(chance.choice([1, 1500, 4000, 10**9]))
    return given


class History(Struct, kw_only=True):
    """One case: the table, the options of its stream, and the versions between which the stream began."""

    plan: Plan
    source: Source
    options: dict[str, str]
    chance: random.Random
    began: tuple[int, int]
    """Newest versions before and after the stream's beginning was decided."""

    @classmethod
    def of(cls, root: Path, chance: random.Random) -> History:
        plan = Plan.of(chance)
        source = Source(root / "source", plan, chance)
        for _ in range(chance.randrange(4)):
            source.change()
        options = {**start_options(plan, source.log, chance), "readChangeFeed": str(plan.changes).lower()}
        if plan.passes_over is not None:
            options[plan.passes_over] = "true"
        return cls(
            plan=plan, source=source, options=options, chance=chance, began=(source.log.newest, source.log.newest)
        )

    def check(self, found: Rows, origin: dict[str, Any] | None, about: str) -> None:
        log = self.source.log
        log.look()
        about = f"{about}, {self.plan}, {self.options}, began at {origin}"
        if origin is None:
            assert self.plan.start in ("moment", "soon"), about
            assert log.first_since(self._moment_ms()) > log.newest, about
            assert not found, about
            return
        version, is_initial = origin["version"], origin["isInitial"]
        assert is_initial == (self.plan.start == ""), about
        match self.plan.start:
            case "":
                assert self.began[0] <= version <= self.began[-1], about
            case "latest":
                assert self.began[0] < version <= self.began[-1] + 1, about
            case "version" | "next":
                assert version == int(self.options["startingVersion"]), about
            case _:
                assert version == log.first_since(self._moment_ms()), about
        expected = log.expected(version, is_initial, self.plan.changes)
        columns = ["id", "p", "x", "y", *(_CHANGES if self.plan.changes else ())]
        same_rows([_only(row, columns) for row in found], [_only(row, columns) for row in expected], about)

    def _moment_ms(self) -> int:
        return round(datetime.fromisoformat(self.options["startingTimestamp"]).timestamp() * 1000)


def _only(row: dict[str, Any], columns: list[str]) -> dict[str, Any]:
    return {name: row.get(name) for name in columns}


# An engine that asks as Spark does


class Interrupted(Engine):
    """With something happening between any two questions."""

    between: Callable[[], None] | None = None

    def start(self) -> dict[str, Any]:
        found = super().start()
        self._happens()
        return found

    def plan(self, limit: Any = None) -> bool:
        found = super().plan(limit)
        self._happens()
        return found

    def _happens(self) -> None:
        if self.between is not None:
            self.between()


class Image(Struct, frozen=True, kw_only=True):
    """A checkpoint at some moment, and what the sink had then."""

    offset: dict[str, Any] | None
    planned: dict[str, Any] | None
    origin: dict[str, Any] | None
    given: tuple[Rows, ...]


class Driver:
    """A history on an engine that asks as Spark does."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.chance = history.chance
        self.source = history.source
        self.engine = Interrupted(self.source.table.uri, **history.options, **limits(self.chance))
        self.given: list[Rows] = []
        self.images: list[Image] = []
        self.origin: dict[str, Any] | None = None
        self.until: int | None = None
        """The version beyond which a source that was told to read what is there does not go."""
        self.beginnings: dict[str, tuple[int, int]] = {}

    def run(self) -> tuple[Rows, dict[str, Any] | None]:
        self.engine.between = lambda: self.source.change() if self.chance.random() < 0.25 else None
        for _ in range(self.chance.randrange(3, 14)):
            roll = self.chance.random()
            if roll < 0.45:
                self.batch()
            elif roll < 0.65:
                self.source.change()
            elif roll < 0.8:
                self.start_again()
            elif roll < 0.85:
                self.clean()
            elif self.images:
                image = self.chance.choice(self.images)
                self.given = list(image.given)
                self.engine.offset, self.engine.planned, self.origin = image.offset, image.planned, image.origin
                self.start_again()
        self.engine.between = None
        if self.history.plan.start == "soon":
            time.sleep(0.45)
            self.source.write()
        for _ in range(2):  # what the first was to leave for later comes by the second
            self.start_again()
            while self.batch():
                pass
        if self.origin is not None:
            self.history.began = self.beginnings[json.dumps(self.origin)]
        return [row for rows in self.given for row in rows], self.origin

    def start_again(self) -> None:
        self.engine.options = {"path": self.source.table.uri, **self.history.options, **limits(self.chance)}
        self.engine.restart()
        self.until = None
        if self.chance.random() < 0.4:
            self.engine.source.prepareForTriggerAvailableNow()
            self.until = self.source.log.newest

    def batch(self) -> bool:
        """Whether something was there."""
        engine, before = self.engine, self.source.log.newest if self.until is None else self.until
        try:
            if not engine.plan():
                return False
            assert engine.planned is not None
            if "origin" in engine.planned:
                self.beginnings.setdefault(json.dumps(engine.planned["origin"]), (before, self.source.log.newest))
            found = engine.run().to_pylist()
        except SourceChanged as error:
            assert "schema changed" in str(error), error
            self.start_again()
            return True
        self.origin = engine.planned.get("origin", self.origin)
        image = Image(offset=engine.offset, planned=engine.planned, origin=self.origin, given=tuple(self.given))
        self.images.append(image)
        if self.chance.random() < 0.15:
            self.start_again()  # the driver died before it noted the batch: it is run again
            return True
        self.given.append(found)
        engine.offset, engine.planned = engine.planned, None
        return True

    def clean(self) -> None:
        """The log loses what the stream does not need any more."""
        log = Path(self.source.table.uri.removeprefix("file://")) / "_delta_log"
        kept = [int(path.name[:20]) for path in log.glob("*.checkpoint*.parquet")]
        offset = self.engine.offset
        if offset is None or offset["version"] < 0 or offset["isInitial"]:
            return
        below = max((v for v in kept if v <= offset["version"]), default=0)
        self.images = [i for i in self.images if i.offset is not None and i.offset["version"] >= below]
        for path in log.glob("*.json"):
            if path.stem.isdigit() and int(path.stem) < below:
                path.unlink()


def test_an_engine_that_asks_as_spark_does_gets_every_row_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    for seed in cases(short=12, full=2000):
        with case(seed) as chance:
            root = tmp_path_factory.mktemp("history")
            history = History.of(root, chance)
            history.check(*Driver(history).run(), "an engine")
            shutil.rmtree(root, ignore_errors=True)  # maintenance after the last commit may still write


# Spark itself


class Recorder:
    """Rows by the numbers of batches, and the query's checkpoint."""

    def __init__(self, root: Path) -> None:
        self.rows_at, self.checkpoint, self._copy = root / "out", root / "checkpoint", root / "copy"
        self.rows_at.mkdir()

    def start(self, frame: Any, trigger: dict[str, Any]) -> Any:
        place = str(self.rows_at)

        def note(batch: Any, number: int) -> None:
            found = json.dumps([row.asDict() for row in batch.collect()], default=str)
            (Path(place) / str(number)).write_text(found)

        return frame.writeStream.foreachBatch(note).trigger(**trigger).option(
            "checkpointLocation", str(self.checkpoint)
        ).start()  # fmt: skip

    def rows(self) -> Rows:
        return [row for file in self.rows_at.iterdir() for row in json.loads(file.read_text())]

    def take_image(self) -> None:
        """As a machine that goes down now would leave it: a batch is planned only when the one before is noted."""
        shutil.rmtree(self._copy, ignore_errors=True)
        for name in ("metadata", "commits", "offsets"):
            with_files = self.checkpoint / name
            for path in [with_files] if with_files.is_file() else list(with_files.glob("*")):
                to = self._copy / path.relative_to(self.checkpoint)
                to.parent.mkdir(parents=True, exist_ok=True)
                if not path.name.endswith(".tmp"):
                    with suppress(FileNotFoundError):
                        shutil.copyfile(path, to)
        last = max((numbers(self._copy / "commits")), default=-1)
        for number in numbers(self._copy / "offsets"):
            if number > last + 1:
                forget(self._copy / "offsets", number)

    def go_back(self) -> None:
        if (self._copy / "metadata").exists():
            shutil.rmtree(self.checkpoint)
            self._copy.rename(self.checkpoint)
            last = max(numbers(self.checkpoint / "offsets"), default=-1)
            for number in numbers(self.rows_at):
                if number > last:
                    (self.rows_at / str(number)).unlink()


class TableSink:
    """Rows in a table, each batch a commit."""

    def __init__(self, root: Path) -> None:
        self.table, self.checkpoint = Table(root / "target"), root / "checkpoint"

    def start(self, frame: Any, trigger: dict[str, Any]) -> Any:
        for name in _CHANGES:
            if name in frame.columns:
                frame = frame.withColumnRenamed(name, f"of{name}")
        writer = frame.drop("_commit_timestamp").writeStream.format("lakeseal").option("mergeSchema", True)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start(self.table.uri)

    def rows(self) -> Rows:
        found = self.table.to_arrow().to_pylist() if self.table.exists() else []
        return [{name.removeprefix("of"): value for name, value in row.items()} for row in found]

    def take_image(self) -> None:
        """The table goes on meanwhile, so an old image would be none that a crash can leave."""

    def go_back(self) -> None:
        """There is nothing to go back to."""


def numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def forget(folder: Path, number: int) -> None:
    (folder / str(number)).unlink(missing_ok=True)
    (folder / f".{number}.crc").unlink(missing_ok=True)


class SparkDriver:
    """A history on Spark's own engine."""

    def __init__(self, session: Any, root: Path, history: History) -> None:
        self.session = session
        self.history = history
        self.chance = history.chance
        self.source = history.source
        self.sink = (Recorder if self.chance.random() < 0.6 else TableSink)(root)

    def run(self) -> tuple[Rows, dict[str, Any] | None]:
        before = self.source.log.newest
        for _ in range(self.chance.randrange(1, 3)):
            self.some_run()
            self.crash()
        if self.history.plan.start == "soon":
            time.sleep(0.45)
            self.source.write()
        self.to_the_end()
        self.history.began = (before, self.source.log.newest)
        return self.sink.rows(), self.origin()

    def start(self, trigger: dict[str, Any]) -> Any:
        options = {**self.history.options, **limits(self.chance)}
        reader = self.session.readStream.format("lakeseal").options(**options)
        return self.sink.start(reader.load(self.source.table.uri), trigger)

    def some_run(self) -> None:
        """Stopped at any moment, or at the end of what was there, with commits meanwhile."""
        until_end = self.chance.random() < 0.4
        commits = [(self._moment(), self.chance.random() * 0.1) for _ in range(self.chance.randrange(4))]
        image_at, stop_at, wait = self._moment(1), self._moment(), 0.001 + self.chance.random() * 0.1
        over = threading.Event()
        beside = [
            threading.Thread(target=self._commits, args=(commits, over)),
            threading.Thread(target=self._image, args=(image_at, over)),
        ]
        for thread in beside:
            thread.start()
        try:
            with kills(), recovered():
                query = self.start({"availableNow": True} if until_end else {"processingTime": "0 seconds"})
                if until_end:
                    assert query.awaitTermination(300)
                else:
                    while query.isActive and not stop_at() and query.status["message"] != "Waiting for data to arrive":
                        time.sleep(0.005)
                    query.awaitTermination(wait)
                    query.stop()
        finally:
            over.set()
            for thread in beside:
                thread.join()

    def _moment(self, least: int = 0) -> Callable[[], bool]:
        """Whether the query has come to some place: another file or two of its checkpoint."""
        folder = self.sink.checkpoint / self.chance.choice(("offsets", "commits"))
        wanted = len(numbers(folder)) + self.chance.randrange(least, 3)
        return lambda: len(numbers(folder)) >= wanted

    def _commits(self, commits: list[tuple[Callable[[], bool], float]], over: threading.Event) -> None:
        for has_come, pause in commits:
            while not has_come() and not over.wait(0.005):
                pass
            time.sleep(pause)
            self.source.change()

    def _image(self, has_come: Callable[[], bool], over: threading.Event) -> None:
        while not has_come() and not over.wait(0.005):
            pass
        with suppress(FileNotFoundError):
            self.sink.take_image()

    def crash(self) -> None:
        roll = self.chance.random()
        commits, offsets = self.sink.checkpoint / "commits", self.sink.checkpoint / "offsets"
        if roll < 0.4 and numbers(commits)[-1:] == numbers(offsets)[-1:] != []:
            forget(commits, numbers(commits)[-1])
        elif roll < 0.7:
            self.sink.go_back()

    def to_the_end(self) -> None:
        for _ in range(12):
            with kills(), recovered():
                assert self.start({"availableNow": True}).awaitTermination(300)
                return
        raise AssertionError("the stream does not come to an end")

    def origin(self) -> dict[str, Any] | None:
        folder = self.sink.checkpoint / "offsets"
        for number in numbers(folder):
            end = json.loads((folder / str(number)).read_text().splitlines()[2])
            if "origin" in end:
                found: dict[str, Any] = end["origin"]
                return found
        return None


@contextmanager
def kills() -> Iterator[None]:
    """Around a run that a new column may end, or a machine too busy to start a process in Spark's ten seconds."""
    try:
        yield
    except SourceChanged as error:
        assert "schema changed" in str(error), error
    except Exception as error:
        if "failed to connect back" not in str(error):
            raise


@pytest.mark.spark
@pytest.mark.timeout(36000)
def test_spark_gets_every_row_once(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    lakeseal.register(spark)

    def look(seed: int) -> None:
        spark.createDataFrame([(1,)], "a int")  # the session is this thread's, or Spark finds no source by its name
        root = tmp_path_factory.mktemp("history")
        with case(seed) as chance:
            one_history(spark, chance, root)
        shutil.rmtree(root, ignore_errors=True)  # maintenance after the last commit may still write

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [pool.submit(look, seed) for seed in cases(short=2, full=500)]
        try:
            for one in found:
                one.result()
        finally:
            pool.shutdown(cancel_futures=True)


def one_history(spark: Any, chance: random.Random, root: Path) -> None:
    history = History.of(root, chance)
    driver = SparkDriver(spark, root, history)
    history.check(*driver.run(), f"Spark into {type(driver.sink).__name__}")
