"""What is installed: all files, and a word of what is missing where an extra was not asked for."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import types
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = {
    "pyspark": "spark",
    "pandas": "pandas",
    "polars": "polars",
    "duckdb": "duckdb",
    "uvicorn": "server",
    "jinja2": "server",
    "starlette": "server",
    "httpx": "server",
    "psycopg": "server",
    "confluent_kafka": "kafka",
    "fastavro": "kafka",
    "jsonschema": "kafka",
    "google": "kafka",
    "prometheus_client": "server",
    "httptools": "server",
    "opentelemetry": "otel",
    "lakefs": "lakefs",
    "lakefs_sdk": "lakefs",
}
WITHOUT = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
BARE = """
import pyarrow as pa
import lakeseal
table = lakeseal.Table("t")
table.write(pa.table({"id": [1, 2]}))
table.merge(pa.table({"id": [3]}), "t.id = s.id").when_not_matched_insert("*").execute()
assert table.to_arrow(where="id > 1").num_rows == 2
assert lakeseal.Catalog("sqlite:///names.db").register("a.t", "t").version() == 1
lakeseal.Repository.create("repo").store.close()
from lakeseal.cli import main
assert main(["read", "t", "--json"]) == 0
for words in (["serve", "--ledger", "sqlite:///l.db"], ["ui"]):
    assert main(words) == 1
for name, extra in (("register", "spark"),):
    try:
        getattr(lakeseal, name)
    except ModuleNotFoundError as error:
        assert f"lakeseal[{extra}]" in str(error), error
    else:
        raise AssertionError(name)
for name, extra in (("to_pandas", "pandas"), ("to_polars", "polars"), ("to_duckdb", "duckdb")):
    try:
        getattr(table, name)()
    except lakeseal.LakesealError as error:
        assert f"lakeseal[{extra}]" in str(error), error
    else:
        raise AssertionError(name)
try:
    lakeseal.Repository.open("lakefs://host/repo")
except lakeseal.LakesealError as error:
    assert "lakeseal[lakefs]" in str(error), error
else:
    raise AssertionError("lakefs")

import contextlib, importlib, io, json, pathlib
for name, extra in (
    ("lakeseal.testing.service", "server"), ("lakeseal.testing.postgres", "server"),
    ("lakeseal.testing.cluster", "spark"), ("pyspark_lakeseal", "spark"),
):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert f"lakeseal[{extra}]" in str(error), error
    else:
        raise AssertionError(name)

def said_of(call, extra):
    try:
        call()
    except lakeseal.LakesealError as error:
        assert f"lakeseal[{extra}]" in str(error), error
    else:
        raise AssertionError(extra)

sources = (
    ("{type: kafka, brokers: 'localhost:9', topic: a, schema: 'id long'}", "kafka"),
    ("{type: files, path: ., pattern: '*.avro', format: avro, schema: 'id long'}", "kafka"),
    ("{type: rest, url: 'http://localhost:9/', schema: 'id long'}", "server"),
    ("{type: postgres, url: 'postgresql://localhost:9/db', slot: s, table: a}", "server"),
    ("{type: sql, url: 'postgresql+psycopg://localhost:9/db', table: a, column: id}", "server"),
    ("{type: sql, url: 'postgresql://localhost:9/db', table: a, column: id}", "server"),
)
FILE = '''{name: p, ledger: "sqlite:///l.db", datasets: [
  {name: one, source: %s, target: {type: table, uri: one}}]}'''
def ran(source, ledger="sqlite:///l.db"):
    pathlib.Path("p.yaml").write_text((FILE % source).replace("sqlite:///l.db", ledger))
    return lakeseal.Pipeline.from_yaml("p.yaml").run()

FILES = "{type: files, path: ., pattern: 'rows.json', format: json, schema: 'id long'}"
for url in ("https://lake.example.org", "postgresql://lake.example.org/ledger"):
    said_of(lambda: lakeseal.Table("t", owner=url).enable_commits(), "server")
    said_of(lambda: lakeseal.Catalog(url).tables(), "server")
    said_of(lambda: ran(FILES, url), "server")
pathlib.Path("rows.avro").write_bytes(b"Obj")
for source, extra in sources:
    said_of(lambda: ran(source), extra)
pathlib.Path("rows.json").write_text('{"id": 1}')
pathlib.Path("p.yaml").write_text(FILE % FILES)
with contextlib.redirect_stdout(io.StringIO()) as out:
    assert main(["ingest", "run", "p.yaml", "--json"]) == 1
hint = json.loads(out.getvalue())["datasets"][0]["error"]["hint"]
assert "lakeseal[spark]" in hint and "--no-spark" in hint, hint
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["ingest", "run", "p.yaml", "--no-spark"]) == 0
print("fine")
"""


def test_without_any_extra_tables_work_and_the_rest_says_which_extra_it_needs(tmp_path: Path) -> None:
    call = [sys.executable, "-c", WITHOUT + BARE]
    ended = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("fine\n")
    assert ended.stderr.count("lakeseal[server]") == 2


def test_the_bill_of_materials_has_what_is_installed(tmp_path: Path) -> None:
    call = [sys.executable, str(ROOT / "scripts" / "sbom.py"), "sbom.json"]
    ended = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    made = json.loads((tmp_path / "sbom.json").read_text(encoding="utf-8"))
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    versions = {one["name"]: one["version"] for one in made["components"]}
    assert versions["pyarrow"] == metadata.version("pyarrow")
    assert {"sqlalchemy", "obstore", "pyspark", "starlette"} <= set(versions)
    assert not {"pytest", "mkdocs", "mypy"} & set(versions)
    known = {made["metadata"]["component"]["bom-ref"], *(one["bom-ref"] for one in made["components"])}
    assert {one for told in made["dependencies"] for one in (told["ref"], *told["dependsOn"])} == known


def _image_context(folder: Path) -> Path:
    """What `.dockerignore` lets a build of the image see."""
    context = folder / "context"
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if not line.startswith("!"):
            continue
        there, copy = ROOT / line[1:], context / line[1:]
        copy.parent.mkdir(parents=True, exist_ok=True)
        if there.is_dir():
            shutil.copytree(there, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(there, copy)
    return context


def test_what_an_index_shows_leads_to_files_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hatch is where packages are built, and not here: it brings nothing but the class."""
    interface = types.ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object  # type: ignore[attr-defined]
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    hook = runpy.run_path(str(ROOT / "scripts" / "long_description.py"))["get_metadata_hook"]()()
    hook.root = str(ROOT)
    monkeypatch.setenv("LAKESEAL_ADDRESS", "https://example.org/lakeseal/")
    told: dict[str, Any] = {}
    hook.update(told)
    assert {"Homepage", "Documentation", "Source", "Changelog"} <= set(told["urls"])
    links = re.findall(r"https://example\.org/lakeseal/([^)#\s]*)", told["readme"]["text"])
    assert "docs/tutorial.md" in links
    for address in told["urls"].values():
        links.append(address.removeprefix("https://example.org/lakeseal/"))
    assert [link for link in links if not (ROOT / link).exists()] == []
    monkeypatch.delenv("LAKESEAL_ADDRESS")
    hook.update(told)
    assert told["urls"] == {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(told) == set(project["dynamic"])


INSTALLED = """
import importlib.metadata as metadata, sys
asked = sys.argv[1]
told = metadata.metadata("lakeseal")
assert "](docs/" not in told["Description"] and "](https://example.org/lakeseal/docs/" in told["Description"]
there = dict(one.split(", ") for one in told.get_all("Project-URL"))
assert there["Documentation"] == "https://example.org/lakeseal/docs/index.md", there
assert {"Homepage", "Source", "Changelog"} <= set(there), there
assert "Typing :: Typed" in told.get_all("Classifier")
import lakeseal, pyarrow as pa
assert lakeseal.__version__ == told["Version"]
table = lakeseal.Table("with-" + asked)
table.write(pa.table({"id": [1, 2]}))
if asked in ("pandas", "polars", "duckdb"):
    getattr(table, "to_" + asked)()
if asked == "duckdb":
    query = "SELECT upper('a') || 'b' AS x, count(*) AS n, sum(id) AS s FROM delta.`with-duckdb` WHERE id IN (1, 2)"
    assert lakeseal.sql(query).to_pylist() == [{"x": "Ab", "n": 2, "s": 3}]
if asked == "spark":
    import lakeseal.spark.datasource, pyspark
if asked == "server":
    import lakeseal.service.server, lakeseal.console.app
if asked == "kafka":
    import lakeseal.ingest.sources.kafka, confluent_kafka
if asked == "lakefs":
    import lakeseal.branches.lakefs.store
if asked == "otel":
    import opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http.trace_exporter
"""


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_the_wheel_and_the_source_install_into_an_empty_environment(tmp_path: Path) -> None:
    """With nothing but what they ask for, and with each extra; what PyPI has now, as users get it, and not what
    constraints.txt pins. LAKESEAL_PYTHON names another interpreter."""
    python = os.environ.get("LAKESEAL_PYTHON", sys.executable)

    def run(*words: str, cwd: Path = tmp_path) -> str:
        asks = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        asks["LAKESEAL_ADDRESS"] = "https://example.org/lakeseal"
        ended = subprocess.run(words, cwd=cwd, env=asks, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def installed(name: str, what: str) -> str:
        run(python, "-m", "venv", name)
        pip = str(tmp_path / name / "bin" / "python")
        run(pip, "-m", "pip", "install", "-q", what)
        return pip

    run(python, "-m", "venv", "build-env")
    run("build-env/bin/python", "-m", "pip", "install", "-q", "build")
    run("build-env/bin/python", "-m", "build", "-q", "--outdir", "dist", str(ROOT))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (source,) = (tmp_path / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    for name in ("py.typed", "console/templates/table.html", "console/static/console.js", "ledger/migrations/env.py"):
        assert f"lakeseal/{name}" in names, name
    run("build-env/bin/python", "-m", "build", "-q", "--wheel", "--outdir", "image", str(_image_context(tmp_path)))
    (in_image,) = (tmp_path / "image").glob("*.whl")
    with zipfile.ZipFile(in_image) as opened:
        assert names == set(opened.namelist()), "what the image has is what is released"
    with tarfile.open(source) as packed:
        assert any(name.endswith("/README.md") for name in packed.getnames())
    for number, what in enumerate((wheel, source)):
        there = tmp_path / f"work{number}"
        there.mkdir()
        (there / "bare.py").write_text(BARE)
        assert run(installed(f"env{number}", str(what)), "bare.py", cwd=there).endswith("fine\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in sorted({*project["optional-dependencies"]} - {"dev", "docs"}):
        run(installed(f"env-{extra}", f"{wheel}[{extra}]"), "-c", INSTALLED, extra)
        shutil.rmtree(tmp_path / f"env-{extra}")
