"""The JSON schema of a pipeline's file, for editors that complete and check it while one types, and for the reference.

What it says of a field is the sentence that stands below the field in the code.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from lakeseal.ingest.config import Dataset, PipelineConfig
from lakeseal.ingest.sources.source import Source, source_types
from lakeseal.ingest.yaml_file import RawDataset, RawPipeline

_ID = "https://json-schema.org/draft/2020-12/schema"
_SAME: dict[type[Struct], type[Struct]] = {RawPipeline: PipelineConfig, RawDataset: Dataset}
"""What stands in a file, and what it becomes, whose fields say more."""
_EVERYWHERE = {
    "storage_options": "How its store is reached; what is not said here comes from the environment.",
    "type": "Of which kind it is.",
    "headers": "Sent with every request; secrets come from the environment: `${NAME}`.",
}


def pipeline_schema() -> dict[str, Any]:
    """With every kind of source that is known in this process."""
    kinds = dict(sorted(source_types().items()))
    (pipeline, dataset, *sources), parts = msgspec.json.schema_components(
        [RawPipeline, RawDataset, *kinds.values()], ref_template="#/$defs/{name}"
    )
    parts["RawPipeline"]["properties"]["datasets"]["items"] = dataset
    parts["RawDataset"]["properties"]["source"] = {"oneOf": sources}
    classes = {one.__name__: one for one in _below(Struct)}
    for name, part in parts.items():
        _describe(part, classes[name])
    for name, title in (("RawPipeline", "pipeline"), ("RawDataset", "dataset")):
        parts[name]["title"] = title
    return {"$schema": _ID, "title": "A Lakeseal pipeline", **pipeline, "$defs": parts}


def _describe(part: dict[str, Any], kind: type[Struct]) -> None:
    if issubclass(kind, Source):
        part["description"] = (inspect.getdoc(inspect.getmodule(kind)) or "").partition("\n")[0]
    becomes = _SAME.get(kind)
    said = {**_EVERYWHERE, **({} if becomes is None else _said(becomes)), **_said(kind)}
    for name, field in part.get("properties", {}).items():
        if name in said:
            field["description"] = said[name]


def _said(kind: type[Struct]) -> dict[str, str]:
    """Below each field: its words, as one line."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except OSError:
        return {}  # a class without a file
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    found = {}
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as words)):
                found[name] = " ".join(words.split())
    return found


def _below(kind: type[Struct]) -> Iterator[type[Struct]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
