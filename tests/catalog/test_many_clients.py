"""Many processes that create, rename, drop and read tables under the same few names: what each of them saw fits one
order of steps on a dictionary, whatever the catalog is."""

from __future__ import annotations

import multiprocessing
import random
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import (
    AlreadyExists,
    ConcurrentModification,
    InvalidArgument,
    OwnedElsewhere,
    Refused,
    SchemaNotFound,
    TableNotFound,
)
from models.name_histories import CONFLICT, GONE, NO_SCHEMA, OK, REFUSED, TAKEN, Name, NameOp, check_serial

# Children are forked from a process without threads that has everything loaded.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["support.loaded", "lakeseal.table", "lakeseal.catalogs", "lakeseal.service.client"])
CLIENTS = 4
ROWS = pa.schema([("id", pa.int64())])
NAMES = [(schema, table) for schema in ("s", "u") for table in ("a", "b")]
KINDS = ["create"] * 5 + ["rename"] * 4 + ["drop"] * 3 + ["show", "read", "list"] * 2 + ["drop_schema", "replace"]


class _Client:
    def __init__(self, url: str, root: str, seed: int) -> None:
        self._catalog = lakeseal.Catalog(url, root=root)
        self._dice = random.Random(seed)

    def run(self, many: int) -> list[NameOp]:
        return [self._one(self._dice.choice(KINDS)) for _ in range(many)]

    def _one(self, kind: str) -> NameOp:
        name, new = self._dice.choice(NAMES), self._dice.choice(NAMES)
        start = time.monotonic_ns()
        try:
            outcome, seen = OK, getattr(self, f"_{kind}")(name, new)
        except TableNotFound:
            outcome, seen = GONE, None
        except SchemaNotFound:
            outcome, seen = NO_SCHEMA, None
        except AlreadyExists:
            outcome, seen = TAKEN, None
        except ConcurrentModification:
            outcome, seen = CONFLICT, None
        except (OwnedElsewhere, InvalidArgument):
            assert kind == "replace"  # the table, or its schema, went between two steps
            outcome, seen = CONFLICT, None
        except Refused:
            outcome, seen = REFUSED, None
        return NameOp(kind=kind, start=start, end=time.monotonic_ns(), name=name, new=new, outcome=outcome, seen=seen)

    def _as_written(self, name: Name) -> str:
        return ".".join(part.upper() if self._dice.random() < 0.3 else part for part in name)

    def _create(self, name: Name, _: Name) -> str:
        comment = str(uuid.uuid4())
        return told(self._catalog.create(self._as_written(name), ROWS, kind="managed", comment=comment))

    def _rename(self, name: Name, new: Name) -> str:
        return told(self._catalog.rename(self._as_written(name), self._as_written(new)))

    def _drop(self, name: Name, _: Name) -> str:
        return self._catalog.drop(self._as_written(name)).uri

    def _show(self, name: Name, _: Name) -> str:
        return self._catalog.show(self._as_written(name)).uri

    def _read(self, name: Name, _: Name) -> str:
        return told(self._catalog.table(self._as_written(name)))

    def _list(self, name: Name, _: Name) -> list[tuple[str, str]]:
        return sorted((one.name.table.lower(), one.uri) for one in self._catalog.tables(name[0]))

    def _drop_schema(self, name: Name, _: Name) -> None:
        self._catalog.drop_schema(name[0])

    def _replace(self, name: Name, new: Name) -> str:
        with lakeseal.transaction(catalog=self._catalog) as txn:
            txn.drop(self._as_written(name))
            return txn.create(self._as_written(new), ROWS).uri


def told(table: lakeseal.Table) -> str:
    """Which table it is, after a look into it."""
    assert table.to_arrow().num_rows == 0
    return table.uri


def work(url: str, root: str, seed: int, many: int) -> list[NameOp]:
    return _Client(url, root, seed).run(many)


def many_clients(url: str, folder: Path, *, rounds: int, many: int, seed: int) -> None:
    for number in range(rounds):
        with SERVER.Pool(CLIENTS) as pool:
            seeds = [seed + 1000 * number + client for client in range(CLIENTS)]
            tasks = [pool.apply_async(work, (url, f"file://{folder}", one, many)) for one in seeds]
            clients = [task.get(timeout=300) for task in tasks]
        check_serial(clients)
        catalog = lakeseal.Catalog(url)
        assert catalog.unfinished() == []
        for one in catalog.tables():
            catalog.drop(str(one.name))
        for schema in catalog.schemas():
            catalog.drop_schema(schema)


def test_what_many_processes_do_to_the_same_names_fits_one_order(url: str, tmp_path: Path) -> None:
    many_clients(url, tmp_path, rounds=1, many=12, seed=1)


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_what_many_processes_do_to_the_same_names_fits_one_order_for_long(url: str, tmp_path: Path) -> None:
    many_clients(url, tmp_path, rounds=20, many=25, seed=int(time.time()))


def op(kind: str, start: int, end: int, outcome: str = OK, seen: object = None, new: str = "a") -> NameOp:
    return NameOp(kind=kind, start=start, end=end, outcome=outcome, seen=seen, name=("s", "a"), new=("s", new))


MADE = op("create", 0, 1, seen="t1")


@pytest.mark.parametrize(
    "clients",
    [
        [[MADE, op("create", 2, 3, seen="t2")]],
        [[MADE], [op("show", 2, 3, GONE)]],
        [[MADE], [op("show", 2, 3, seen="t2")]],
        [[MADE, op("rename", 2, 3, seen="t1", new="b")], [op("show", 4, 5, seen="t1")]],
        [[MADE, op("drop", 2, 9, seen="t1")], [op("show", 3, 4, GONE), op("show", 5, 6, seen="t1")]],
        [[MADE, op("drop", 2, 3, seen="t1")], [op("rename", 4, 5, seen="t1", new="b")]],
        [[MADE], [op("list", 2, 3, seen=[])]],
        [[MADE], [op("create", 2, 3, NO_SCHEMA)]],
        [[MADE], [op("drop_schema", 2, 3)]],
        [[MADE], [op("create", 0, 1, seen="t2")], [op("rename", 2, 9, seen="t1", new="b")]],
        [[MADE, op("replace", 2, 5, seen="t2")], [op("show", 3, 4, GONE)]],
    ],
)
def test_a_story_that_no_dictionary_tells_is_found(clients: list[list[NameOp]]) -> None:
    with pytest.raises(AssertionError):
        check_serial(clients)


def test_a_story_that_needs_steps_between_those_of_others_is_told() -> None:
    assert check_serial([[MADE, op("drop", 2, 9, seen="t1")], [op("show", 3, 4, seen="t1"), op("show", 5, 6, GONE)]])
    assert check_serial([[MADE, op("drop", 2, 9, seen="t1")], [op("drop", 3, 8, seen="t1")]])
    assert check_serial([[MADE], [op("show", 0, 9, GONE), op("create", 10, 11, TAKEN)]])
