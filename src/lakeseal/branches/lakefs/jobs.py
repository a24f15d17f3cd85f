"""Jobs in flight on a lakeFS server: a hidden branch each, and a small file in the store that says who writes where.

The file is made first, by put-if-absent, so of several that begin a job one decides where it starts; a job is in flight
while it has both.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from lakeseal import typed_json
from lakeseal.branches.lakefs.repository import JOB_PREFIX, SCRATCH_PREFIX, LakeFSRepository
from lakeseal.branches.paths import check_job_id, data_prefix, directory, overlap
from lakeseal.branches.values import Job, job_branch
from lakeseal.clock import now_ms
from lakeseal.errors import InvalidArgument, ObjectNotFound, RefNotFound

_FILES = "_lakeseal/jobs/"
_unnameable = re.compile(r"[^A-Za-z0-9]+")
_made_ms = re.compile(re.escape(SCRATCH_PREFIX) + r"(\d+)-")


def branch_name(path: str, job_id: str) -> str:
    """Predictable, as `values.job_branch`, in letters that lakeFS allows."""
    readable = _unnameable.sub("-", path.strip("/"))[:40].strip("-")
    unique = hashlib.sha256(job_branch(path, job_id).encode()).hexdigest()[:24]
    return f"{JOB_PREFIX}{readable}-{unique}" if readable else f"{JOB_PREFIX}{unique}"


def begin(repository: LakeFSRepository, job_id: str, *, dest: str, path: str, who: str) -> Job:
    stem = _stem(job_id, path)
    base = repository.head(dest)
    new = Job(
        id=job_id,
        branch=branch_name(stem, job_id),
        dest=dest,
        path=stem,
        base=base,
        data_prefix=data_prefix(stem, job_id),
        who=who,
        since_ms=now_ms(),
        head=base,
    )
    key = f"{_FILES}{new.branch}.json"
    made = repository.store.put_if_absent(key, msgspec.json.encode(new))
    job = new if made else _read(repository, key)
    if job is None:
        raise RefNotFound(f"the job {job_id} on {path!r} ended while it was begun", table=repository.server.uri)
    if job.dest != dest:
        raise InvalidArgument(
            f"the job {job_id} on {path!r} has begun for the branch {job.dest!r}, not {dest!r}",
            hint="Give each job an id of its own",
        )
    repository.server.make_branch(job.branch, job.base, hidden=True)
    return msgspec.structs.replace(job, head=repository.head(job.branch))


def find(repository: LakeFSRepository, job_id: str, path: str) -> Job:
    name = branch_name(_stem(job_id, path), job_id)
    found = _in_flight(repository, f"{_FILES}{name}.json")
    if found is None:
        raise RefNotFound(
            f"the job {job_id} on {path!r} is not in flight",
            table=repository.server.uri,
            hint="It ended, it was given up, or it took longer than the grace period and was collected",
        )
    return found


def in_flight(repository: LakeFSRepository, *, dest: str | None, path: str | None) -> list[Job]:
    keys = [meta.key for meta in repository.store.list(_FILES)]
    found = [
        job for job in repository.server.side_by_side(lambda key: _in_flight(repository, key), keys) if job is not None
    ]
    wanted = [job for job in found if (dest is None or job.dest == dest) and (path is None or overlap(job.path, path))]
    return sorted(wanted, key=lambda job: (job.since_ms, job.branch))


def end(repository: LakeFSRepository, branch: str) -> None:
    # The branch goes first: a file alone is taken up again by the next to begin the job.
    repository.server.drop_branch(branch)
    repository.store.delete([f"{_FILES}{branch}.json"])


def collect(repository: LakeFSRepository, *, grace_ms: int, dry_run: bool) -> list[str]:
    """Ends jobs that began longer ago, and removes branches that crashes left. Objects are the server's to collect."""
    oldest = now_ms() - grace_ms
    old = [job.branch for job in in_flight(repository, dest=None, path=None) if job.since_ms < oldest]
    left = [name for name, _ in repository.server.branch_names(SCRATCH_PREFIX, hidden=True)]
    left = [name for name in left if (made := _made_ms.match(name)) and int(made[1]) < oldest]
    if not dry_run:
        for branch in old:
            end(repository, branch)
        for branch in left:
            repository.server.drop_branch(branch)
    return [*old, *left]


def _in_flight(repository: LakeFSRepository, key: str) -> Job | None:
    job = _read(repository, key)
    head = None if job is None else repository.server.branch(job.branch)
    return None if job is None or head is None else msgspec.structs.replace(job, head=head)


def _read(repository: LakeFSRepository, key: str) -> Job | None:
    try:
        return typed_json.decode(repository.store.get(key), Job)
    except ObjectNotFound:
        return None


def _stem(job_id: str, path: str) -> str:
    check_job_id(job_id)
    return directory(path).removesuffix("/")
