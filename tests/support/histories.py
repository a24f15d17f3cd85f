"""A history over HTTP: clients of three kinds, each behind a way of its own that drops, delays, doubles and cuts a
tenth of the messages, a service that is killed now and then; and whether what they were told is one story.

The faults are a schedule: which of a client's requests fails, and how, the seed says."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

import lakeseal
from lakeseal.protocol.actions import Action, AddFile, CommitInfo
from lakeseal.service.client import HttpOwner
from lakeseal.storage import Store, open_store
from lakeseal.testing.proxy import ProxyFault, Request, Verdict, faulty_proxy
from models.history import check_history
from models.strict_order import NEVER, Done, check_one_order
from support.history_client import Asked, Told
from support.lossy_catalog import MortalService
from support.managed_tables import create

CLIENT = Path(__file__).with_name("history_client.py")
NAME = "main.sales.shared"
KINDS = ("ours", "ours", "catalog", "path")
FAULTS = (
    ProxyFault.LOSE_REQUEST,
    ProxyFault.LOSE_REPLY,
    ProxyFault.LOSE_REPLY,
    ProxyFault.LATE,
    ProxyFault.TWICE,
    ProxyFault.SLOW,
)
SHARE = 0.1


class Schedule:
    """The verdict on the nth request of one client is the same in every run with the seed."""

    def __init__(self, seed: int, client: str) -> None:
        self._dice = random.Random(f"{seed} {client}")
        self.struck: dict[str, int] = {}

    def __call__(self, request: Request) -> Verdict:
        # Requests of one client come one after the other.
        draw, fault = self._dice.random(), self._dice.choice(FAULTS)
        if draw >= SHARE:
            return None
        self.struck[fault.name] = self.struck.get(fault.name, 0) + 1
        return fault


class History(Struct, kw_only=True):
    operations: int
    commits: int
    unknown: int
    faults: dict[str, int]
    kills: int
    violations: list[str]


def history(folder: Path, *, clients: int, seconds: float, seed: int, kills: int, ledger: str | None = None) -> History:
    folder.mkdir(parents=True, exist_ok=True)
    service = MortalService(folder, "--rate", "0", "--batch-size", "10", ledger=ledger)
    try:
        token = service.token()
        owner = HttpOwner(service.url, token=token)
        stores = {name: open_store(folder / name) for name in ("a", "b", "free")}
        for name in ("a", "b"):
            create(stores[name], owner)
        create(stores["free"], enableInCommitTimestamps="true")
        schema = pa.schema([("x", pa.int64())])
        shared = lakeseal.Catalog(service.url, token=token).create(
            NAME, schema, location=folder / "shared", kind="catalog"
        )
        stores["shared"] = open_store(shared.uri)
        with ExitStack() as stack:
            asked = []
            schedules = []
            for number in range(clients):
                kind = KINDS[number % len(KINDS)]
                schedule = Schedule(seed, f"{kind}{number}")
                proxy = stack.enter_context(faulty_proxy(service.url, schedule))
                schedules.append(schedule)
                asked.append(
                    Asked(
                        kind=kind,
                        name=f"{kind}{number}",
                        url=proxy.endpoint,
                        token=token,
                        managed=[stores["a"].uri, stores["b"].uri],
                        free=stores["free"].uri,
                        catalogs=stores["shared"].uri,
                        catalogs_name=NAME,
                        seconds=seconds,
                        seed=seed,
                        out=str(folder / f"told-{number}"),
                    )
                )
            _run(asked, seconds, service, kills)
        told = [
            msgspec.json.decode(line, type=Told) for one in asked for line in Path(one.out).read_bytes().splitlines()
        ]
        for name in ("a", "b", "shared"):
            owner.backfill(stores[name].uri)
        owner.close()
    finally:
        service.stop()
    faults: dict[str, int] = {}
    for schedule in schedules:
        for fault, number in schedule.struck.items():
            faults[fault] = faults.get(fault, 0) + number
    violations = list(_violations(told, {store.uri: store for store in stores.values()}))
    return History(
        operations=len(told),
        commits=sum(len(one.made) for one in told),
        unknown=sum(one.end is None for one in told),
        faults=faults,
        kills=service.kills,
        violations=violations,
    )


def _run(asked: Sequence[Asked], seconds: float, service: MortalService, kills: int) -> None:
    tests = str(Path(__file__).resolve().parent.parent)
    paths = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, str(CLIENT), json.dumps(msgspec.to_builtins(list(asked)))],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        for number in range(kills):
            pause = time.monotonic() + seconds / (kills + 1)
            while time.monotonic() < pause and process.poll() is None:
                time.sleep(0.05)
            if number < kills:
                service.kill()
        _, errors = process.communicate(timeout=seconds + 600)
    finally:
        if process.poll() is None:
            process.kill()
    if process.returncode:
        raise AssertionError(f"a client met what no client should: {errors[-4000:]}")


def _violations(told: Sequence[Told], stores: Mapping[str, Store]) -> Iterator[str]:
    logs: dict[str, list[list[Action]]] = {}

    def read(uri: str) -> None:
        logs[uri] = _log(uri, told, stores)

    checks: list[Callable[[], Any]] = [partial(read, uri) for uri in stores]
    checks += [lambda: _check_reads(told, logs), lambda: check_one_order(_story(told, logs))]
    for check in checks:
        try:
            check()
        except AssertionError as broken:
            yield str(broken)[:2000]
    yield from _went_back(told)


def _log(uri: str, told: Sequence[Told], stores: Mapping[str, Store]) -> list[list[Action]]:
    done = {one.txns[uri]: one.made[uri] for one in told if uri in one.made and one.end is not None}
    return check_history(stores[uri], done, failed=[one.txns[uri] for one in told if one.is_failed and uri in one.txns])


def _check_reads(told: Sequence[Told], logs: Mapping[str, list[list[Action]]]) -> None:
    files = {uri: _counts(commits) for uri, commits in logs.items()}
    for one in told:
        for uri, (version, count) in one.saw.items():
            wanted = files[uri][version]
            assert count == wanted, f"F5: {one.who} saw {count} files in version {version} of {uri}, which has {wanted}"


def _counts(commits: Sequence[Sequence[Action]]) -> list[int]:
    counts, count = [], 0
    for actions in commits:
        count += sum(isinstance(action, AddFile) for action in actions)
        counts.append(count)
    return counts


def _story(told: Sequence[Told], logs: Mapping[str, list[list[Action]]]) -> Iterator[Done]:
    by_txn = {
        (uri, action.txn_id): version
        for uri, commits in logs.items()
        for version, actions in enumerate(commits)
        for action in actions
        if isinstance(action, CommitInfo) and action.txn_id is not None
    }
    for one in told:
        if one.kind == "behind" or one.is_failed:
            continue
        made = dict(one.made) if one.end is not None else {}
        if one.end is None:
            made = {uri: by_txn[uri, txn] for uri, txn in one.txns.items() if (uri, txn) in by_txn}
            assert len(made) in (0, len(one.txns)), f"T1: of {one.txns} only {made} is there"
        if made or one.saw:
            saw = {uri: version for uri, (version, _) in one.saw.items()}
            end = NEVER if one.end is None else one.end
            yield Done(name=one.who, start=one.start, end=end, saw=saw, made=made)


def _went_back(told: Sequence[Told]) -> Iterator[str]:
    """Whoever reads what is published may be behind, and never goes back."""
    last: dict[tuple[str, str], int] = {}
    for one in told:
        if one.kind == "behind":
            for uri, (version, _) in one.saw.items():
                if version < last.get((one.who, uri), 0):
                    yield f"B1: {one.who} saw version {version} of {uri} after {last[one.who, uri]}"
                last[one.who, uri] = version
