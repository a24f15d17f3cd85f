"""Simulation: owner, publishers, clients and store in one thread, and a seed that says who is next and what fails.

What decides is the product's own code: routing and the loop of attempts with its conflict check, the owner's client,
take-over and release, transactions over several tables; the owner's admission, queue, ratification and publisher; the
ledger on SQLite in memory. What is simulated is what they stand on: time, the order of all that is done (each call of
the store, each ledger transaction, each message is a step), messages that are lost, late or doubled, puts that land
late, ledgers that lose the answer to a commit, processes that are killed and started again, clocks that jump.

INVARIANTS.md is looked at after each put and each ledger transaction, and at the end of each run: each log, one order
of all that was done over all tables, no lost update, every numbered write once. A seed is a run: `python trust/run.py
simulation --case seed=123` makes it again, shrinks it if it fails, and tells its steps.
"""

from __future__ import annotations

from children import AT_ONCE
from report import Report

from simulated.worker import Sums, start, sums

SEEDS = 100_000
_TOGETHER = 2_500
"""Runs of one process, whose start costs as much as many of them."""


def main(report: Report) -> None:
    name, _, seed = report.only.partition("=")
    if name == "seed":
        look(report, int(seed))
        return
    count = int(seed) if name == "seeds" else SEEDS
    found = simulate(count, say=report.say)
    for what in ("runs", "steps", "operations", "commits", "faults", "kills"):
        report.count(what, getattr(found, what))
    for failed, reason in sorted(found.failed.items()):
        report.violation(f"seed={failed}: {reason}")


def simulate(count: int, *, say: object = None, first: int = 0) -> Sums:
    """Runs of `count` seeds from `first` on, several at a time."""
    found = Sums()
    todo = [(one, min(_TOGETHER, first + count - one)) for one in range(first, first + count, _TOGETHER)][::-1]
    running = [start(*todo.pop()) for _ in range(min(AT_ONCE, len(todo)))]
    while running:
        # In their order: all take about as long.
        found.add(sums(running.pop(0)))
        if todo:
            running.append(start(*todo.pop()))
        if callable(say) and found.runs % 5_000 < _TOGETHER:
            say(f"{found.runs} of {count} runs, {len(found.failed)} failed")
    return found


def look(report: Report, seed: int) -> None:
    found = sums(start(seed, 1))
    for line in found.told:
        report.say(line)
    report.count("steps", found.steps)
    for reason in found.failed.values():
        report.violation(f"seed={seed}: {reason}")
