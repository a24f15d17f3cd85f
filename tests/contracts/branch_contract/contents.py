"""What tests put into a repository, and what they find there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from lakeseal.branches.store import BranchStore
from lakeseal.branches.values import Changes, Commit, Entry, Job


def checksum(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def write(repo: BranchStore, job: Job, files: Mapping[str, bytes]) -> tuple[Entry, ...]:
    """Objects of a job's task, and the entries for them."""
    store = repo.objects.open()
    entries = []
    for number, (path, data) in enumerate(files.items()):
        address = f"{job.data_prefix}/{number}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"
        store.put(address, data)
        entries.append(Entry(path=path, address=address, size=len(data), checksum=checksum(data)))
    return tuple(entries)


def run_job(
    repo: BranchStore,
    job_id: str,
    path: str,
    files: Mapping[str, bytes],
    *,
    overwrite: bool,
    dest: str = "main",
) -> Job:
    """A job up to its merge, which is left to the caller."""
    job = repo.begin_job(job_id, dest=dest, path=path, who=job_id)
    puts = write(repo, job, {f"{path}/{name}": data for name, data in files.items()})
    directories = (path,) if overwrite else ()
    done = repo.commit(job.branch, Changes(puts=puts, directories=directories), message=job_id, job=job_id)
    assert isinstance(done, Commit)
    return job


def content(repo: BranchStore, ref: str, directory: str = "") -> dict[str, bytes]:
    """All files of one commit: the ref is looked up once."""
    found = {}
    for entry in repo.list(ref, directory):
        with repo.open_entry(entry) as file:
            found[entry.path] = file.read()
    return found
