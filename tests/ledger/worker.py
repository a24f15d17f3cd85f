"""What the tests run in processes of their own: `worker.py function '[arguments]'`."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import pwd
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from lakeseal import ledger
from lakeseal.errors import LakesealError
from lakeseal.ledger import Ledger, Tx
from lakeseal.ledger.schema import leases


def add_one(tx: Tx) -> int:
    row = tx.get(leases, name="counter")
    assert row is not None
    tx.update(leases, {"name": "counter"}, {"epoch": row.epoch + 1})
    return int(row.epoch) + 1


def lease(name: str, epoch: int = 0) -> dict[str, Any]:
    return {"name": name, "holder": "nobody", "epoch": epoch, "expires": 0, "info": {}}


def increment(url: str, times: int) -> None:
    with ledger.open(url) as book:
        for _ in range(times):
            book.write(add_one)


def open_when_told(url: str) -> None:
    importlib.import_module("alembic.command")  # so that the race is about the database
    say("ready")
    sys.stdin.readline()
    with ledger.open(url) as book:
        say(book.read(lambda tx: len(tx.rows(leases.select()))))


def write_and_die(url: str, name: str) -> None:
    """Dies by its own hand right after the acknowledgement: no handler runs, nothing is flushed."""
    book = ledger.open(url)
    book.write(lambda tx: tx.insert(leases, **lease(name)))
    os.kill(os.getpid(), signal.SIGKILL)


def die_inside(url: str, name: str) -> None:
    book = ledger.open(url)

    def do(tx: Tx) -> None:
        tx.insert(leases, **lease(name))
        os.kill(os.getpid(), signal.SIGKILL)

    book.write(do)


def hold(url: str, name: str) -> None:
    """Locks a row until it is told to go on."""
    with ledger.open(url) as book:

        def do(tx: Tx) -> None:
            tx.put(leases, **lease(name, epoch=7))
            say("holding")
            sys.stdin.readline()

        book.write(do)
    say("done")


def toggle(url: str, times: int) -> None:
    """Keeps two rows equal."""
    with ledger.open(url) as book:
        for number in range(times):

            def do(tx: Tx, number: int = number) -> None:
                tx.put(leases, **lease("left", number))
                tx.put(leases, **lease("right", number))

            book.write(do)


def unpickled(pickled: str) -> None:
    book: Ledger = pickle.loads(bytes.fromhex(pickled))
    say([book.write(add_one), repr(book)])
    book.close()


def fork_and_count(url: str, children: int, times: int) -> None:
    """Parent and children all use the ledger that the parent opened, while another thread of the parent writes."""
    book = ledger.open(url)
    book.write(lambda tx: tx.insert(leases, **lease("counter")))
    beside = threading.Thread(target=lambda: [book.write(add_one) for _ in range(times)])
    beside.start()
    pids = []
    for _ in range(children):
        pid = os.fork()
        if pid == 0:
            for _ in range(times):
                book.write(add_one)
            book.close()
            os._exit(0)
        pids.append(pid)
    for _ in range(times):
        book.write(add_one)
    beside.join()
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    row = book.read(lambda tx: tx.get(leases, name="counter"))
    assert row is not None
    say([codes, row.epoch])
    book.close()


def fork_and_close(url: str) -> None:
    """The parent closes the ledger between two writes of its child."""
    book = ledger.open(url)
    book.write(lambda tx: tx.insert(leases, **lease("parent")))
    to_child, to_parent = os.pipe(), os.pipe()
    if os.fork() == 0:
        book.write(lambda tx: tx.insert(leases, **lease("first")))
        os.write(to_parent[1], b"!")
        os.read(to_child[0], 1)
        book.write(lambda tx: tx.insert(leases, **lease("second")))
        os._exit(0)
    os.read(to_parent[0], 1)
    book.close()
    os.write(to_child[1], b"!")
    os.wait()
    with ledger.open(url) as again:
        say(sorted(row.name for row in again.read(lambda tx: tx.rows(leases.select()))))


def fork_and_report(url: str) -> None:
    book = ledger.open(url)
    forked_error(lambda: book.read(lambda tx: tx.get(leases, name="x")))


def fork_inside(url: str) -> None:
    book = ledger.open(url)
    book.write(lambda tx: fork_then_report(tx, book))


def fork_then_report(tx: Tx, book: Ledger) -> None:
    tx.insert(leases, **lease("mine"))
    if os.fork() == 0:
        # The child has the parent's transaction in its memory; only a new one may be tried.
        threading.Thread(target=child_reads, args=(book,)).start()
        threading.Event().wait(30)
    os.wait()


def child_reads(book: Ledger) -> None:
    report(lambda: book.read(lambda tx: tx.get(leases, name="x")))
    sys.stdout.flush()
    os._exit(0)


def forked_error(ask: Callable[[], object]) -> None:
    if os.fork() == 0:
        report(ask)
        sys.stdout.flush()
        os._exit(0)
    os.wait()


def report(ask: Callable[[], object]) -> None:
    try:
        say(repr(ask()))
    except LakesealError as error:
        say(error.kind)


def write_on_a_full_disk(url: str) -> None:
    """The file system refuses to let any file grow: COMMIT is what finds out."""
    with ledger.open(url) as book:
        book.write(lambda tx: tx.insert(leases, **lease("before")))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        report(lambda: book.write(lambda tx: tx.insert(leases, **lease("during"))))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        report(lambda: book.write(lambda tx: tx.insert(leases, **lease("after"))))


def open_without_privileges(url: str) -> None:
    if os.geteuid() == 0:  # root may read and write every file
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
        os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)
    report(lambda: ledger.open(url))


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*json.loads(sys.argv[2]))
