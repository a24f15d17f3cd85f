"""The six examples, run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakeseal

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_page_names_every_example_and_no_other() -> None:
    told = set(re.findall(r"\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    there = {one.name for one in EXAMPLES.iterdir() if one.suffix in (".py", ".ipynb")}
    assert told == there
    assert len(there) == 6


@pytest.mark.spark
def test_a_nightly_job_that_is_started_twice_has_each_row_once(spark: Any, tmp_path: Path) -> None:
    job = example("spark_job")
    assert job.run(spark, str(tmp_path), "2026-03-01") == 0
    assert job.run(spark, str(tmp_path), "2026-03-02") == 1
    job.run(spark, str(tmp_path), "2026-03-02")
    rows = lakeseal.Table(tmp_path / "orders").to_arrow()
    assert rows.num_rows == 2000
    assert len(set(zip(rows["id"].to_pylist(), rows["day"].to_pylist(), strict=True))) == 2000


@pytest.mark.spark
def test_a_stream_takes_every_file_once(spark: Any, tmp_path: Path) -> None:
    lakeseal.register(spark)
    job = example("streaming_job")
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "1.json").write_text('{"id": 1, "page": "a"}\n{"id": 2, "page": "b"}\n')
    assert job.run(spark, str(tmp_path)) == 2
    (landing / "2.json").write_text('{"id": 3, "page": "c"}\n')
    assert job.run(spark, str(tmp_path)) == 3


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads((EXAMPLES / "write_audit_publish.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile(cell["source"], f"cell {number}", "exec"), names)
    names["repo"].store.close()


@pytest.mark.parametrize(
    "name",
    [
        "cdc_pipeline",
        *(
            pytest.param(name, marks=[pytest.mark.stress, pytest.mark.own_spark, pytest.mark.spark])
            for name in ("spark_job", "streaming_job", "duckdb_and_spark_team")
        ),
    ],
)
def test_an_example_is_started_by_its_name_alone(name: str, tmp_path: Path) -> None:
    asks = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    for _ in range(1 if name != "spark_job" else 2):
        call = [sys.executable, str(EXAMPLES / f"{name}.py")]
        ended = subprocess.run(call, cwd=tmp_path, env=asks, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.strip()
    assert (tmp_path / "lake").is_dir()


def test_changes_arrive_in_the_copy(tmp_path: Path) -> None:
    assert example("cdc_pipeline").run(str(tmp_path)) == [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bea"}]


@pytest.mark.spark
def test_duckdb_counts_what_spark_wrote(spark: Any, tmp_path: Path) -> None:
    assert example("duckdb_and_spark_team").run(spark, str(tmp_path)) == [("north", 2), ("south", 1)]


def test_the_dag_ingests_checks_and_keeps_in_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Airflow's two decorators alone: they call what they decorate."""

    def decorated(*given: Any, **_: Any) -> Any:
        return given[0] if given else lambda function: function

    airflow = types.ModuleType("airflow")
    decorators = types.ModuleType("airflow.decorators")
    task: Callable[..., Any] = decorated
    decorators.__dict__.update(dag=decorated, task=task)
    monkeypatch.setitem(sys.modules, "airflow", airflow)
    monkeypatch.setitem(sys.modules, "airflow.decorators", decorators)
    monkeypatch.setenv("LAKE", str(tmp_path))
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.json").write_text('{"id": 1, "page": "a"}\n')
    source = f'{{type: files, path: {tmp_path}/landing, format: json, schema: "id long, page string"}}'
    (tmp_path / "clicks.yaml").write_text(
        f"name: clicks\nledger: sqlite:///{tmp_path}/ledger.db\ndatasets:\n  - name: clicks\n    source: {source}\n"
        f"    target: {{type: table, uri: {tmp_path}/clicks}}\n"
    )
    example("airflow_dag")
    owner = f"sqlite:///{tmp_path}/ledger.db"
    assert lakeseal.Table(tmp_path / "clicks", owner=owner).to_arrow().to_pylist() == [{"id": 1, "page": "a"}]
    (tmp_path / "landing" / "2.json").write_text('{"id": 2, "page": null}\n')
    with pytest.raises(ValueError, match="1 clicks have no page"):
        example("airflow_dag")
