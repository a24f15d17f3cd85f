"""Which dataset is made of which, and in what order that goes: pure functions.

`ordered` has inputs before what is made of them, and otherwise the order in which they were written; names that are not
there and cycles are refused. `waves` says which of them can be published together: a derived dataset is in the wave of
an input if one transaction can have both, and in a later one otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakeseal.errors import InvalidArgument
from lakeseal.ingest.config import BranchTarget, Dataset, DirectoryTarget, TableTarget
from lakeseal.ingest.sources.datasets import DatasetsSource


def inputs_of(dataset: Dataset) -> tuple[str, ...]:
    return dataset.source.inputs if isinstance(dataset.source, DatasetsSource) else ()


def check(dataset: Dataset, known: Mapping[str, Dataset]) -> None:
    """Raises if it can't be made of what it names."""
    names = inputs_of(dataset)
    if not names:
        return
    for name in names:
        if name not in known:
            raise InvalidArgument(
                f"{dataset.name!r} is made of {name!r}, and there is no such dataset",
                hint=f"There are {', '.join(other for other in known if other != dataset.name) or 'no others'}",
            )
        if not isinstance(known[name].target, TableTarget):
            raise InvalidArgument(
                f"{dataset.name!r} is made of {name!r}, which goes to no table", hint="Give it a target of type: table"
            )
    if dataset.transform is None:
        raise InvalidArgument(
            f"{dataset.name!r} does not say how it is made of {', '.join(names)}",
            hint=f"Give it a transform, a query over {names[0]}",
        )
    target = dataset.target
    if isinstance(target, DirectoryTarget) or (
        isinstance(target, TableTarget | BranchTarget) and target.mode == "append"
    ):
        raise InvalidArgument(
            f"{dataset.name!r} is worked out from all rows of {', '.join(names)}: what it was before must not stay",
            hint="Give it a table or a branch with mode: replace, or a table with mode: upsert",
        )


def ordered(datasets: Sequence[Dataset], beside: Iterable[Dataset] = ()) -> tuple[Dataset, ...]:
    """`beside` are others that may be named, and are not among these."""
    known = {one.name: one for one in (*beside, *datasets)}
    wanted = {one.name for one in datasets}
    done: dict[str, Dataset] = {}

    def visit(dataset: Dataset, path: tuple[str, ...]) -> None:
        if dataset.name in done:
            return
        if dataset.name in path:
            circle = (*path[path.index(dataset.name) :], dataset.name)
            raise InvalidArgument(f"These datasets are made of each other: {' ← '.join(circle)}")
        check(dataset, known)
        for name in inputs_of(dataset):
            visit(known[name], (*path, dataset.name))
        done[dataset.name] = dataset

    for one in datasets:
        visit(one, ())
    return tuple(one for one in done.values() if one.name in wanted)


def waves(datasets: Sequence[Dataset], joint: Mapping[str, bool]) -> list[list[Dataset]]:
    """`datasets` as `ordered` has them; `joint` says, by name, whether the ledger's transaction can have one."""
    number: dict[str, int] = {}
    for one in datasets:
        behind = [
            number[name] + (0 if joint[name] and joint[one.name] else 1) for name in inputs_of(one) if name in number
        ]
        number[one.name] = max(behind, default=0)
    found: list[list[Dataset]] = [[] for _ in range(max(number.values(), default=-1) + 1)]
    for one in datasets:
        found[number[one.name]].append(one)
    return found
