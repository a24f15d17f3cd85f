"""What is installed: all files, and a word of what is missing where an extra was not asked for."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = {
    "pyspark": "spark",
    "pandas": "pandas",
    "polars": "polars",
    "duckdb": "duckdb",
    "fastapi": "server",
    "uvicorn": "server",
    "jinja2": "server",
    "starlette": "server",
    "httpx": "server",
    "psycopg": "server",
    "confluent_kafka": "kafka",
    "fastavro": "kafka",
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
print("fine")
"""


def test_without_any_extra_tables_work_and_the_rest_says_which_extra_it_needs(tmp_path: Path) -> None:
    call = [sys.executable, "-c", WITHOUT + BARE]
    ended = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("fine\n")
    assert ended.stderr.count("lakeseal[server]") == 2


@pytest.mark.stress
def test_the_wheel_and_the_source_install_into_an_empty_environment(tmp_path: Path) -> None:
    """With nothing but what they ask for; from PyPI."""

    def run(*words: str) -> str:
        ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    run(sys.executable, "-m", "venv", "build-env")
    run("build-env/bin/python", "-m", "pip", "install", "-q", "build")
    run("build-env/bin/python", "-m", "build", "-q", "--outdir", "dist", str(ROOT))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (source,) = (tmp_path / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    for name in ("py.typed", "console/templates/table.html", "console/static/console.js", "ledger/migrations/env.py"):
        assert f"lakeseal/{name}" in names, name
    with tarfile.open(source) as packed:
        assert any(name.endswith("/README.md") for name in packed.getnames())
    for number, what in enumerate((wheel, source)):
        run(sys.executable, "-m", "venv", f"env{number}")
        run(
            f"env{number}/bin/python",
            "-m",
            "pip",
            "install",
            "-q",
            "--constraint",
            str(ROOT / "constraints.txt"),
            str(what),
        )
        (tmp_path / f"work{number}").mkdir()
        script = tmp_path / f"work{number}" / "bare.py"
        script.write_text(BARE)
        ended = subprocess.run(
            [f"../env{number}/bin/python", str(script)], cwd=script.parent, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
