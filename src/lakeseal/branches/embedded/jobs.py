"""Jobs in flight: a branch each, and hints of who writes where since when."""

from __future__ import annotations

from lakeseal.branches.embedded.heads import JOB, Head, Heads
from lakeseal.branches.paths import check_job_id, data_prefix, directory, overlap
from lakeseal.branches.values import Job, job_branch
from lakeseal.errors import InvalidArgument, RefNotFound


def begin(heads: Heads, job_id: str, *, dest: str, path: str, who: str) -> Job:
    stem = _stem(job_id, path)
    name = job_branch(stem, job_id)
    info = {"job": job_id, "dest": dest, "path": stem, "who": who, "data": data_prefix(stem, job_id)}
    made = from_head(heads.begin_job(name, dest, info))
    if made.dest != dest:
        raise InvalidArgument(
            f"the job {job_id} on {path!r} has begun for the branch {made.dest!r}, not {dest!r}",
            hint="Give each job an id of its own",
        )
    return made


def find(heads: Heads, job_id: str, path: str) -> Job:
    name = job_branch(_stem(job_id, path), job_id)
    for head in heads.look(name).heads:
        return from_head(head)
    raise RefNotFound(
        f"the job {job_id} on {path!r} is not in flight",
        hint="It ended, it was given up, or it took longer than the grace period and was collected",
    )


def in_flight(heads: Heads, *, dest: str | None, path: str | None) -> list[Job]:
    found = [from_head(head) for head in heads.all().heads if head.kind == JOB]
    wanted = [job for job in found if (dest is None or job.dest == dest) and (path is None or overlap(job.path, path))]
    return sorted(wanted, key=lambda job: (job.since_ms, job.branch))


def end(heads: Heads, job: Job) -> None:
    while True:
        there = heads.look(job.branch).heads
        if not there or there[0].kind != JOB or heads.delete_branch(there[0]):
            return


def from_head(head: Head) -> Job:
    info = head.info
    return Job(
        id=info["job"],
        branch=head.name,
        dest=info["dest"],
        path=info["path"],
        base=info["base"],
        data_prefix=info["data"],
        who=info.get("who", ""),
        since_ms=head.created_ms,
        head=head.commit,
    )


def _stem(job_id: str, path: str) -> str:
    check_job_id(job_id)
    return directory(path).removesuffix("/")
