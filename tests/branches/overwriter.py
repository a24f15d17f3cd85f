"""A process with several threads, each of which overwrites one directory once per round:
`python overwriter.py <ledger> <repository> <name> <rounds> <threads>`.

A round begins with a line on standard input and ends with the ids of the jobs that were acknowledged.
"""

from __future__ import annotations

import sys
import threading

from contracts.branch_contract import run_job
from lakeseal.branches import embedded
from lakeseal.branches.values import HeadMoved


def main(ledger: str, place: str, name: str, rounds: str, threads: str) -> None:
    repo = embedded.open(place, ledger=ledger)

    def publish(job_id: str, done: list[str]) -> None:
        job = run_job(repo, job_id, "out", {f"{job_id}.{part}": job_id.encode() for part in range(3)}, overwrite=True)
        expected = job.base
        while isinstance(outcome := repo.merge_if(job.branch, "main", expected), HeadMoved):
            expected = outcome.actual
        repo.end_job(job)
        done.append(job_id)

    for number in range(int(rounds)):
        sys.stdin.readline()
        done: list[str] = []
        running = [
            threading.Thread(target=publish, args=(f"{name}-{number}-{thread}", done)) for thread in range(int(threads))
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        print(*done, flush=True)
    repo.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
