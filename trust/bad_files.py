"""Bad files: bytes of what Lakeseal keeps that were damaged or made up, and each is right or a typed error.

Logs, checkpoints, sidecars, deletion vectors, commits and ranges of branches, and recorded sequences are changed in one
or two places, and opened by a process that may take 10 s and 512 MB more than before for each. "Right" is what the
undamaged files give; where a change means something else by the rules of the format, it is what the plainest reader of
the same bytes finds (as in tests/table/test_damage.py). Files that grow when they are opened are among them.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from children import in_child, side_by_side
from pyroaring import BitMap64
from report import Report

import support.loaded  # noqa: F401  for all children
from lakeseal import Repository, Table
from lakeseal.branches import embedded
from lakeseal.branches.tree.ranges import TreeShape
from lakeseal.branches.tree.writer import TreeWriter
from lakeseal.clock import now_ms
from lakeseal.commit import post_commit
from lakeseal.errors import LakesealError
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.delta_log import DeltaLog
from lakeseal.protocol.deletion_vectors import PORTABLE_MAGIC, inline_descriptor
from lakeseal.steps.file_store import FileStepStore
from lakeseal.storage import open_store
from support.published_rows import stage

MUTANTS = 50_000
SECONDS = 10
MEGABYTES = 512

_JUNK = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    2**64,
    1e308,
    "",
    "x",
    "\u0000",
    "a" * 5000,
    [],
    {},
    [[]],
    {"a": {"b": []}},
    "NaN",
)


class Ground(NamedTuple):
    """One kind of files, something that has them, and what reads them."""

    name: str
    share: int
    """How many of a hundred mutants are of this kind."""
    make: Callable[[Path], object]
    files: tuple[str, ...]
    """Patterns of what is damaged."""
    read: Callable[[Path], Any]
    plain: Callable[[Path], Iterator[Any]] = lambda _: iter(())
    """What the plainest readers find."""


class Hit(NamedTuple):
    how: str
    file: str


def main(report: Report) -> None:
    wanted = [ground for ground in GROUNDS if report.only in ground.name]
    jobs = [(number, seed) for number in range(len(wanted)) for seed in range(4)]
    made = {}

    def do(job: tuple[int, int]) -> Any:
        ground, seed = wanted[job[0]], job[1]
        return mutants(ground, seed, MUTANTS * ground.share // 400)

    for (number, _), answer in side_by_side(jobs, do):
        ground = wanted[number]
        made[ground.name] = made.get(ground.name, 0) + answer["mutants"]
        report.count(f"mutants of {ground.name}", answer["mutants"])
        report.count("mutants", answer["mutants"])
        for what in ("right", "as the plainest reader finds", "a typed error"):
            report.count(what, answer["outcomes"].get(what, 0))
        for one in answer["violations"]:
            report.violation(f"{ground.name}: {one}")
        report.say(f"{ground.name}: {made[ground.name]} so far, {answer['outcomes']}")
    if report.only in "files that grow":
        for name, wrong in grown():
            report.count("files that grow when they are opened", 1)
            if wrong:
                report.violation(f"{name}: {wrong}")


def mutants(ground: Ground, seed: int, count: int) -> dict[str, Any]:
    """In workers, each of which goes on until one mutant ends it."""
    root = Path(tempfile.mkdtemp(prefix="lakeseal-bad-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        made = in_child(lambda: ground.make(root / "sound"))
        if made.code != 0:
            raise RuntimeError(f"{ground.name} could not be made:\n{made.said}")
        outcomes: Counter[str] = Counter()
        violations: list[str] = []
        number = 0
        while number < count:
            shutil.rmtree(root / "copy", ignore_errors=True)
            shutil.copytree(root / "sound", root / "copy")
            noted = root / "at"
            noted.write_text(str(number))
            ended = in_child(lambda: _work(ground, root, seed, number, count, noted), seconds=100_000)  # noqa: B023
            if ended.code == 0:
                outcomes.update(ended.said["outcomes"])
                violations += ended.said["violations"]
                number = ended.said["next"]
                continue
            # Nobody told what became of those before it; they were not ended by it.
            number = int(noted.read_text()) + 1
            violations.append(f"mutant {seed}/{number - 1} ends its reader: {ended.said or ended.code}")
        return {"mutants": count, "outcomes": dict(outcomes), "violations": violations}
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _work(ground: Ground, root: Path, seed: int, first: int, count: int, noted: Path) -> dict[str, Any]:
    """Up to the first that takes too much memory, since what was taken once stays the most."""
    sound, copy = root / "sound", root / "copy"
    expected = ground.read(sound)
    outcomes: Counter[str] = Counter()
    violations = []
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    number = first
    for number in range(first, count):
        noted.write_text(str(number))
        dice = random.Random(f"{ground.name} {seed} {number}")
        hits = [damage(ground, copy, dice) for _ in range(dice.choice((1, 1, 2)))]
        most = _most_megabytes()
        # Of the processor, so that it says the same beside others; and much longer for one that waits for ever.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(SECONDS * 12)
        try:
            outcome = _outcome(ground, copy, expected)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        took = _most_megabytes() - most
        if outcome.startswith("WRONG"):
            violations.append(f"mutant {seed}/{number}, {hits}: {outcome}")
        else:
            outcomes[outcome] += 1
        if took > MEGABYTES:
            violations.append(f"mutant {seed}/{number}, {hits}: takes {took} MB")
        for path in {file for hit in hits for file in hit.file.split(" and ")}:
            shutil.copyfile(sound / path, copy / path)
        if took > MEGABYTES // 8 or len(violations) > 50:
            break
    return {"outcomes": dict(outcomes), "violations": violations, "next": number + 1}


def _outcome(ground: Ground, copy: Path, expected: Any) -> str:
    try:
        found = ground.read(copy)
    except LakesealError as error:
        return "a typed error" if error.kind and str(error) else f"WRONG: an error without a kind: {error!r}"
    except BaseException:
        return f"WRONG: {traceback.format_exc()[-1500:]}"
    if found == expected:
        return "right"
    if any(found == one for one in ground.plain(copy)):
        return "as the plainest reader finds"
    return f"WRONG: {str(found)[:300]}"


def _most_megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def damage(ground: Ground, copy: Path, dice: random.Random) -> Hit:
    files = sorted({path for pattern in ground.files for path in copy.glob(pattern) if path.is_file()})
    file = dice.choice(files)
    content = file.read_bytes()
    if not content:
        content = b"\n"
    at = dice.randrange(len(content))
    size = dice.choice((1, 2, 4, 8, 64))
    lines = content.split(b"\n")
    line = dice.randrange(len(lines))
    name = file.relative_to(copy).as_posix()
    how = dice.choice(
        (
            "flip",
            "flip",
            "byte",
            "zeros",
            "ones",
            "noise",
            "cut",
            "empty",
            "insert",
            "double",
            "drop",
            "again",
            "swap",
            "value",
            "value",
            "value",
            "tail",
        )
    )
    match how:
        case "flip":
            content = content[:at] + bytes([content[at] ^ (1 << dice.randrange(8))]) + content[at + 1 :]
        case "byte":
            content = content[:at] + bytes([dice.randrange(256)]) + content[at + 1 :]
        case "zeros":
            content = content[:at] + bytes(size) + content[at + size :]
        case "ones":
            content = content[:at] + b"\xff" * size + content[at + size :]
        case "noise":
            content = content[:at] + dice.randbytes(size) + content[at + size :]
        case "cut":
            content = content[:at]
        case "empty":
            content = b""
        case "insert":
            content = content[:at] + dice.randbytes(size) + content[at:]
        case "double":
            content = b"\n".join([*lines[: line + 1], *lines[line:]])
        case "drop":
            content = b"\n".join([*lines[:line], *lines[line + 1 :]])
        case "again":
            content += content
        case "tail":
            place = max(0, len(content) - dice.randrange(1, 64))
            content = content[:place] + dice.randbytes(1) + content[place + 1 :]
        case "swap":
            other = dice.choice(files)
            content, swapped = other.read_bytes(), content
            other.write_bytes(swapped)
            file.write_bytes(content)
            return Hit(how, f"{name} and {other.relative_to(copy).as_posix()}")
        case "value":
            with suppress(ValueError):
                lines[line] = json.dumps(_with_junk(json.loads(lines[line]), dice)).encode()
                content = b"\n".join(lines)
    file.write_bytes(content)
    return Hit(how, name)


def _with_junk(value: Any, dice: random.Random) -> Any:
    """One value somewhere inside is another one, or gone."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        name = dice.choice(sorted(value))
        if dice.random() < 0.1:
            return {other: one for other, one in value.items() if other != name}
        return {**value, name: _with_junk(value[name], dice)}
    if isinstance(value, list) and value and dice.random() < 0.85:
        place = dice.randrange(len(value))
        return [*value[:place], _with_junk(value[place], dice), *value[place + 1 :]]
    return dice.choice(_JUNK)


# What is damaged


def _rows(folder: Path) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in Table(folder).to_arrow().to_pylist())


def _batch(number: int) -> pa.Table:
    ids = range(number * 4, number * 4 + 4)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{n}" for n in ids], "day": ["a", "b"] * 2})


def _make_log(folder: Path) -> None:
    table = Table(folder)
    for number in range(4):
        table.write(_batch(number), partition_by="day", properties={"delta.checkpointInterval": "100"})
    table.write(_batch(9), mode="overwrite", replace_where="day = 'a' OR day = 'b'")
    table.write(_batch(5))
    post_commit.flush()


def _make_checked(folder: Path) -> None:
    for number in range(5):
        kept = {"delta.checkpointInterval": "2", "delta.enableInCommitTimestamps": "true"}
        Table(folder).write(_batch(number), partition_by="day", properties=kept)
        post_commit.flush()


def _make_checkpoint(folder: Path) -> None:
    _make_log(folder)
    Table(folder).checkpoint()
    Table(folder).write(_batch(6))
    post_commit.flush()
    for version in range(5):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()


def _make_sidecars(folder: Path) -> None:
    table = Table(folder)
    for number in range(4):
        kept = {"delta.checkpointInterval": "100", "delta.checkpointPolicy": "v2"}
        table.write(_batch(number), partition_by="day", properties=kept)
    post_commit.flush()
    write_checkpoint(DeltaLog(open_store(folder)), 3, now_ms=now_ms(), sidecar_rows=3)
    table.write(_batch(6))
    post_commit.flush()
    for version in range(3):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()


def _make_vectors(folder: Path) -> None:
    table = Table(folder)
    many = pa.table({"id": range(2000), "v": ["v"] * 2000, "day": ["a"] * 2000})
    table.write(many, properties={"delta.enableDeletionVectors": "true"})
    table.delete("id % 3 = 1 OR id BETWEEN 100 AND 900")
    table.delete("id = 1500")
    post_commit.flush()


def _make_compacted(folder: Path) -> None:
    _make_log(folder)
    Table(folder).compact_log(1, 4)


def _plain_log(folder: Path) -> Iterator[Counter[Any]]:
    """All commits in turn; or those above a checkpoint, with what its files and its sidecars add."""
    log = folder / "_delta_log"
    for start in [None, *sorted(log.glob("*.checkpoint*.parquet")), *sorted(log.glob("*.checkpoint*.json"))]:
        with suppress(Exception):
            yield _plain_rows(folder, start)
    for compacted in sorted(log.glob("*.compacted.json")):
        with suppress(Exception):
            yield _plain_rows(folder, None, compacted)


def _plain_rows(folder: Path, start: Path | None, compacted: Path | None = None) -> Counter[Any]:
    live: dict[str, dict[str, Any]] = {}
    about: dict[str, Any] = {}
    version = 0
    if start is not None:
        version = int(start.name.partition(".")[0]) + 1
        sidecars = []
        if start.suffix == ".json":
            for action in _actions(start):
                sidecars += [action["sidecar"]["path"]] if action.get("sidecar") else []
                live |= {action["add"]["path"]: action["add"]} if action.get("add") else {}
                about = action.get("metaData") or about
        for part in [start, *(start.parent / "_sidecars" / name for name in sidecars)]:
            if part.suffix == ".parquet":
                found = pq.read_table(part)
                if "sidecar" in found.column_names:
                    for one in found["sidecar"].drop_null().to_pylist():
                        more = pq.read_table(start.parent / "_sidecars" / one["path"])
                        live |= _adds(more)
                live |= _adds(found)
                if "metaData" in found.column_names:
                    about = next(iter(found["metaData"].drop_null().to_pylist()), about)
    skip_to = -1
    low, high = (int(text) for text in compacted.name.split(".")[:2]) if compacted is not None else (-1, -1)
    while True:
        commit = folder / "_delta_log" / f"{version:020d}.json"
        if compacted is not None and version == low:
            commit, skip_to = compacted, high
        if not commit.exists():
            break
        for action in _actions(commit):
            if action.get("add"):
                live[action["add"]["path"]] = action["add"]
            elif action.get("remove"):
                live.pop(action["remove"]["path"], None)
            about = action.get("metaData") or about
        version = max(version, skip_to) + 1
        skip_to = -1
    found_rows: Counter[Any] = Counter()
    names = sorted(field["name"] for field in json.loads(about["schemaString"])["fields"])
    for path, add in live.items():
        part = pq.ParquetFile(folder / unquote(path)).read()
        columns = []
        for name in names:
            value = (add.get("partitionValues") or {}).get(name) or None
            is_there = name in part.column_names and name not in about["partitionColumns"]
            columns.append(part[name].to_pylist() if is_there else [value] * part.num_rows)
        found_rows.update(tuple(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    return found_rows


def _actions(file: Path) -> Iterator[dict[str, Any]]:
    for text in filter(str.strip, file.read_text().splitlines()):
        yield json.loads(text)


def _adds(part: pa.Table) -> dict[str, Any]:
    if "add" not in part.column_names:
        return {}
    return {add["path"]: add for add in part["add"].drop_null().to_pylist(maps_as_pydicts="lossy")}


def _make_repository(folder: Path) -> None:
    TreeWriter.largest = 1000  # so that commits have further files
    repo = Repository(embedded.create(folder, shape=TreeShape(cut=3, longest=5, node_cut=2, node_longest=2)))
    for number in range(6):
        repo.put("main", f"a/{number}", b"%d" % number)
    repo.create_branch("exp")
    repo.write(pa.table({"id": [1, 2, 3]}), "exp", "out")
    repo.merge("exp", "main")


def _read_repository(folder: Path) -> Any:
    repo = Repository.open(folder)
    try:
        files = {entry.path: repo.read("main", entry.path).hex() for entry in repo.list("main")}
        return [files, [(commit.id, commit.message, commit.parents) for commit in repo.log("main")]]
    finally:
        del repo


def _make_sequences(folder: Path) -> None:
    data, steps = open_store(folder / "data"), FileStepStore(open_store(folder / "steps"))
    for dataset in ("one", "two"):
        steps.put(stage(data, 0, 9, dataset=dataset))
    status = steps.status("clicks", "one")
    assert status is not None
    steps.note("clicks", "one", checksum=status.checksum, epoch=0, reason="tried", tries=1)


def _read_sequences(folder: Path) -> Any:
    steps = FileStepStore(open_store(folder / "steps"))
    found: list[Any] = [steps.stores()]
    for dataset in ("one", "two"):
        sequence = steps.get_commit_sequence("clicks", dataset)
        status = steps.status("clicks", dataset)
        told = (
            None if status is None else (status.state.value, status.epoch, status.tries, status.reason, status.checksum)
        )
        found.append([None if sequence is None else sequence.record().checksum, told])
    return found


def _plain_sequences(folder: Path) -> Iterator[Any]:
    """Where an entry says something else in the words of an entry, that is what there is."""
    from lakeseal.ledger import key as hashed

    with suppress(Exception):
        found: list[Any] = [
            sorted(json.loads(path.read_text())["name"] for path in (folder / "steps").glob("*/name.json"))
        ]
        for dataset in ("one", "two"):
            place = folder / "steps" / hashed("clicks") / hashed(dataset)
            newest = max(place.glob("*.entry"), default=None)
            if newest is None:
                found.append([None, None])
                continue
            entry = json.loads(newest.read_text(errors="replace").split("\n", 1)[0])
            told = (
                entry["state"],
                entry["epoch"],
                entry.get("tries", 0),
                entry.get("reason"),
                entry.get("checksum", ""),
            )
            found.append([entry.get("checksum"), told] if entry["state"] else [None, None])
        yield found


GROUNDS = (
    Ground("commits", 20, _make_log, ("_delta_log/*.json",), _rows, _plain_log),
    Ground("compacted commits", 8, _make_compacted, ("_delta_log/*.compacted.json",), _rows, _plain_log),
    Ground("checksums", 4, _make_checked, ("_delta_log/*.crc",), _rows),
    Ground(
        "checkpoints",
        18,
        _make_checkpoint,
        ("_delta_log/*.checkpoint.parquet", "_delta_log/_last_checkpoint"),
        _rows,
        _plain_log,
    ),
    Ground("sidecars", 15, _make_sidecars, ("_delta_log/_sidecars/*", "_delta_log/*.checkpoint.*"), _rows, _plain_log),
    Ground("deletion vectors", 10, _make_vectors, ("*.bin",), _rows),
    Ground("commits and ranges of branches", 15, _make_repository, ("_lakeseal/*/**/*",), _read_repository),
    Ground("sequences", 10, _make_sequences, ("steps/**/*",), _read_sequences, _plain_sequences),
)


# Files that grow when they are opened


def grown() -> Iterator[tuple[str, str]]:
    """By name; and what is wrong, if anything is."""
    for name, (make, read) in BOMBS.items():
        root = Path(tempfile.mkdtemp(prefix="lakeseal-bad-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        try:
            made = in_child(lambda: make(root / "it"), seconds=300)  # noqa: B023
            if made.code != 0:
                raise RuntimeError(f"{name} could not be made:\n{made.said or made.code}")
            began = time.monotonic()
            ended = in_child(lambda: _opened(read, root / "it"), seconds=SECONDS * 6)  # noqa: B023
            wrong = ended.said if ended.code == 0 else f"it ends its reader: {ended.said or ended.code}"
            yield name, wrong or ("" if time.monotonic() - began < SECONDS * 6 else "it takes too long")
        finally:
            shutil.rmtree(root, ignore_errors=True)


def _opened(read: Callable[[Path], Any], folder: Path) -> str:
    most, began = _most_megabytes(), time.process_time()
    try:
        read(folder)
    except LakesealError as error:
        if not error.kind:
            return f"an error without a kind: {error!r}"
    except BaseException:
        return traceback.format_exc()[-1500:]
    took, seconds = _most_megabytes() - most, time.process_time() - began
    if took > MEGABYTES:
        return f"it takes {took} MB"
    # Of the processor, so that it says the same beside others.
    return f"it takes {seconds:.0f} s" if seconds > SECONDS else ""


def _repeated(value: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))


def _data_of(column: Callable[[], pa.Array], kind: Any = "string") -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        log = folder / "_delta_log"
        log.mkdir(parents=True)
        values = column()
        is_coded = pa.types.is_dictionary(values.type) or not pa.types.is_string(values.type)
        pq.write_table(
            pa.table({"x": values}),
            folder / "a.parquet",
            compression="zstd",
            use_dictionary=is_coded,
            row_group_size=len(values),
            data_page_size=2**30,
            store_schema=False,
            write_statistics=False,
        )
        size = (folder / "a.parquet").stat().st_size
        _write_log(folder, kind, {"path": "a.parquet", "size": size})

    return make


def _write_log(folder: Path, kind: Any, add: dict[str, Any], features: tuple[str, ...] = ()) -> None:
    (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
    fields = [{"name": "x", "type": kind, "nullable": True, "metadata": {}}]
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if features:
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    metadata = {
        "id": "0",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
    }
    whole = {"partitionValues": {}, "modificationTime": 1, "dataChange": True, **add}
    lines = [{"protocol": protocol}, {"metaData": metadata}, {"add": whole}]
    (folder / "_delta_log" / f"{0:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _line(text: str) -> Callable[[Path], None]:
    """A commit with one line more."""

    def make(folder: Path) -> None:
        _make_log(folder)
        file = folder / "_delta_log" / f"{5:020d}.json"
        file.write_text(file.read_text() + text + "\n")

    return make


def _written(
    pattern: str, text: Callable[[str], str], make: Callable[[Path], object] = _make_checked
) -> Callable[[Path], None]:
    """All files of a pattern, with another text."""

    def do(folder: Path) -> None:
        make(folder)
        files = [path for path in folder.glob(pattern) if path.is_file()]
        assert files, pattern
        for file in files:
            file.write_text(text(file.read_text(errors="replace")))

    return do


def _long_paths(make: Callable[[Path], object], pattern: str) -> Callable[[Path], None]:
    """A checkpoint, or a sidecar of one, of 30,000 files that have one path of 40,000 characters."""

    def do(folder: Path) -> None:
        make(folder)
        file = next(path for path in sorted(folder.glob(pattern)) if "add" in pq.read_schema(path).names)
        whole = pq.read_table(file)
        kind = whole.schema.field("add").type
        rows, one = 30_000, pa.array([0] * 30_000)
        fields = {
            "path": _repeated("p" * 40_000, rows),
            "partitionValues": pa.array([[("day", "a")]], kind.field("partitionValues").type).take(one),
            "size": pa.array([1], pa.int64()).take(one),
            "modificationTime": pa.array([1], pa.int64()).take(one),
            "dataChange": pa.array([True]).take(one),
        }
        add = pa.StructArray.from_arrays(list(fields.values()), list(fields))
        others = [name for name in whole.column_names if name != "add"]
        head = whole.select(others).append_column("add", pa.nulls(whole.num_rows, add.type))
        nulls = {name: pa.nulls(rows, whole.schema.field(name).type) for name in others}
        body = pa.table({**nulls, "add": add}).cast(head.schema) if not others else pa.table({**nulls, "add": add})
        with pq.ParquetWriter(file, head.schema, compression="zstd", store_schema=False) as writer:
            writer.write_table(head)
            writer.write_table(body, row_group_size=rows)

    return do


def _vector(bitmap: Callable[[], BitMap64], cardinality: int | None = None) -> Callable[[Path], None]:
    """Three rows, and a vector in the log of which some of many are gone."""

    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": ["a", "b", "c"]}), folder / "a.parquet", store_schema=False)
        rows = bitmap()
        data = PORTABLE_MAGIC.to_bytes(4, "little") + rows.serialize()
        told = inline_descriptor(data, len(rows) if cardinality is None else cardinality)
        vector = {
            "storageType": told.storage_type,
            "pathOrInlineDv": told.path_or_inline_dv,
            "sizeInBytes": told.size_in_bytes,
            "cardinality": told.cardinality,
        }
        size = (folder / "a.parquet").stat().st_size
        stats = json.dumps({"numRecords": 3})
        add = {"path": "a.parquet", "size": size, "deletionVector": vector, "stats": stats}
        _write_log(folder, "string", add, ("deletionVectors",))

    return make


def _runs(first: int, last: int) -> BitMap64:
    rows = BitMap64()
    rows.add_range(first, last)
    rows.run_optimize()
    return rows


def _any_rows(folder: Path) -> Any:
    return Table(folder).to_arrow().num_rows


_DEEP = "[" * 1_000_000 + "]" * 1_000_000
_DEEP_OBJECT = '{"a":' * 500_000 + "1" + "}" * 500_000
_LONGS = {"type": "array", "elementType": "long", "containsNull": True}

BOMBS: dict[str, tuple[Callable[[Path], object], Callable[[Path], Any]]] = {
    "one long value for every row": (_data_of(lambda: _repeated("a" * 8192, 65_536)), _any_rows),
    "a longer one": (_data_of(lambda: _repeated("a" * 2**20, 10_000)), _any_rows),
    "one long page": (_data_of(lambda: pa.array(["a" * 2**20] * 200)), _any_rows),
    "one row of many values": (_data_of(lambda: pa.array([[7] * 20_000_000], pa.list_(pa.int64())), _LONGS), _any_rows),
    "a checkpoint of long paths": (_long_paths(_make_checkpoint, "_delta_log/*.checkpoint.parquet"), _any_rows),
    "a sidecar of long paths": (_long_paths(_make_sidecars, "_delta_log/_sidecars/*.parquet"), _any_rows),
    "a commit's list in lists": (_line(f'{{"commitInfo": {_DEEP}}}'), _any_rows),
    "a commit's object in objects": (_line(f'{{"add": {_DEEP_OBJECT}}}'), _any_rows),
    "a commit's number of a million digits": (
        _line('{"txn": {"appId": "a", "version": ' + "9" * 1_000_000 + "}}"),
        _any_rows,
    ),
    "a commit's exponent": (_line('{"txn": {"appId": "a", "version": 1e999999999}}'), _any_rows),
    "a commit that nobody knows, of 10 MB": (_line('{"later": "' + "x" * 10_000_000 + '"}'), _any_rows),
    "a schema in schemas": (
        _line(
            '{"metaData": {"id": "0", "format": {"provider": "parquet"}, "partitionColumns": [], "configuration": {}, '
            '"schemaString": '
            + json.dumps('{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":' * 20_000)
            + "}}"
        ),
        _any_rows,
    ),
    "statistics in statistics": (
        _line(
            '{"add": {"path": "x", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": true, '
            '"stats": ' + json.dumps(_DEEP_OBJECT) + "}}"
        ),
        lambda folder: Table(folder).to_arrow(where="id > 3").num_rows,
    ),
    "a hint of 2^62 parts": (
        _written("_delta_log/_last_checkpoint", lambda _: json.dumps({"version": 4, "size": 2**62, "parts": 2**62})),
        _any_rows,
    ),
    "a hint in hints": (_written("_delta_log/_last_checkpoint", lambda _: _DEEP_OBJECT), _any_rows),
    "checksums in checksums": (_written("_delta_log/*.crc", lambda _: _DEEP_OBJECT), _any_rows),
    "a vector of 2^33 rows": (_vector(lambda: _runs(0, 2**33)), _any_rows),
    "a vector that tells 3 rows of 2^33": (_vector(lambda: _runs(0, 2**33), 3), _any_rows),
    "a vector with rows far apart": (_vector(lambda: BitMap64(n << 40 for n in range(3))), _any_rows),
    "a sequence in sequences": (_written("steps/**/*.entry", lambda _: _DEEP_OBJECT, _make_sequences), _read_sequences),
    "a sequence of 2^62 steps": (
        _written("steps/**/*.entry", lambda text: text.replace('"count":3', f'"count":{2**62}'), _make_sequences),
        _read_sequences,
    ),
    "a commit of a branch in itself": (
        _written("_lakeseal/commits/*", lambda _: _DEEP_OBJECT, _make_repository),
        _read_repository,
    ),
}
