"""Many writers, one winner: the promise that every commit stands on."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakeseal.errors import ObjectNotFound
from lakeseal.storage import Store, StoreSpec

ROUNDS = 12
SIZE = 300_000


def content(writer: str) -> bytes:
    return (writer.encode().ljust(20, b".") * (SIZE // 20))[:SIZE]


@contextmanager
def readers(store: Store, keys: list[str], failures: list[str]) -> Iterator[None]:
    """Two threads that read the keys all the time, and note whatever is not some writer's whole content."""
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            for key in keys:
                try:
                    data = store.get(key)
                except ObjectNotFound:
                    continue
                if data != content(data[:20].rstrip(b".").decode()):
                    failures.append(f"{key}: {len(data)} bytes, {data[:20]!r}")

    threads = [threading.Thread(target=poll) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_of_32_threads_exactly_one_wins_and_readers_never_see_a_part(store: Store) -> None:
    keys = [f"log/{number:020}.json" for number in range(ROUNDS)]
    winners: dict[str, list[str]] = {key: [] for key in keys}
    failures: list[str] = []
    barrier = threading.Barrier(32)

    def contend(writer: str) -> None:
        for key in keys:
            barrier.wait()
            if store.put_if_absent(key, content(writer)):
                winners[key].append(writer)

    threads = [threading.Thread(target=contend, args=(f"thread-{number}",)) for number in range(32)]
    with readers(store, keys, failures):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    assert [len(names) for names in winners.values()] == [1] * ROUNDS
    for key, [winner] in winners.items():
        assert store.get(key) == content(winner)
    assert store.list_keys("log/") == keys


CONTENDER = """
import json, pickle, sys, threading
spec, name, rounds, size = pickle.load(sys.stdin.buffer)
store = spec.open()
won = []
def contend(writer):
    data = (writer.encode().ljust(20, b".") * (size // 20))[:size]
    for number in range(rounds):
        if store.put_if_absent(f"log/{number:020}.json", data):
            won.append((number, writer))
threads = [threading.Thread(target=contend, args=(f"{name}-{n}",)) for n in range(4)]
print("ready", flush=True)
sys.stdin.buffer.readline()
[t.start() for t in threads]
[t.join() for t in threads]
print(json.dumps(won), flush=True)
"""


def test_of_8_processes_with_4_threads_each_exactly_one_wins(
    shared_spec: StoreSpec, start: Callable[[str, object], subprocess.Popen[bytes]]
) -> None:
    store = shared_spec.open()
    keys = [f"log/{number:020}.json" for number in range(ROUNDS)]
    processes = [start(CONTENDER, (shared_spec, f"process-{number}", ROUNDS, SIZE)) for number in range(8)]
    failures: list[str] = []
    winners: list[tuple[int, str]] = []
    with readers(store, keys, failures):
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
        for process in processes:
            assert process.stdout is not None
            winners += [(number, writer) for number, writer in json.loads(process.stdout.readline())]
    assert failures == []
    assert sorted(number for number, _ in winners) == list(range(ROUNDS))
    for number, writer in winners:
        assert store.get(keys[number]) == content(writer)
    assert store.list_keys("log/") == keys


def test_a_put_that_replaces_is_seen_whole_while_it_happens_over_and_over(store: Store) -> None:
    failures: list[str] = []
    store.put("k", content("first"))
    with readers(store, ["k"], failures):
        for number in range(80):
            store.put("k", content(f"writer-{number}"))
    assert failures == []
    assert store.get("k") == content("writer-79")
