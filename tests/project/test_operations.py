"""What runs it elsewhere: the dashboard, systemd's unit, the image, compose's file. As far as that can be seen here."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import httpx
import pytest
import yaml

from lakeseal.ingest.metrics import ENDED, GAUGES
from lakeseal.testing.service import service_inside
from support.command_lines import check

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def test_the_dashboard_asks_for_numbers_that_there_are(tmp_path: Path) -> None:
    with service_inside(ledger=f"sqlite:///{tmp_path}/ledger.db", insecure=True) as (url, _):
        shown = httpx.get(f"{url}/metrics", trust_env=False).text
    kinds = dict(re.findall(r"^# TYPE (lakeseal_\w+) (\w+)$", shown, re.MULTILINE))
    there = {ENDED[0], *(f"lakeseal_ingest_{name}" for name, _, _ in GAUGES)}
    for name, kind in kinds.items():
        there |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    text = (DEPLOY / "grafana.json").read_text(encoding="utf-8")
    asked = set(re.findall(r"lakeseal_\w+", text))
    assert asked <= there
    assert {name for name in there if not name.endswith(("_sum", "_count"))} - asked <= {
        "lakeseal_ingest_rows_read",
        "lakeseal_ingest_bytes",
        "lakeseal_ingest_seconds",
    }
    board = json.loads(text)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 10
    places = [panel["gridPos"] for panel in board["panels"]]
    for number, one in enumerate(places):
        assert one["x"] + one["w"] <= 24
        for other in places[:number]:
            beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            assert beside or one["y"] >= other["y"] + other["h"] or other["y"] >= one["y"] + one["h"]


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    text = (DEPLOY / "lakeseal.service").read_text(encoding="utf-8")
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    check([*words, "--ledger", "sqlite:///ledger.db"])
    judge = shutil.which("systemd-analyze")
    if judge is None:
        pytest.skip("there is no systemd-analyze here; the unit was parsed, and its command checked")
    beside = tmp_path / "lakeseal.service"
    beside.write_text(text.replace(program, "/bin/true"), encoding="utf-8")
    ended = subprocess.run([judge, "verify", str(beside)], capture_output=True, text=True, check=False)
    assert [line for line in ended.stderr.splitlines() if "lakeseal" in line] == []


def test_the_image_has_what_it_starts() -> None:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "COPY", "RUN", "USER", "WORKDIR", "ENV", "EXPOSE"}
    known |= {"STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert [words[0] for words in lines if words[0] not in known] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (asked,) = re.findall(r"/src\[([\w,]+)\]", text)
    assert set(asked.split(",")) <= set(extras)
    said = dict(lines)
    (program,) = json.loads(said["ENTRYPOINT"])
    assert program == "lakeseal"
    check([*json.loads(said["CMD"]), "--ledger", "sqlite:///ledger.db"])
    compile(json.loads(said["HEALTHCHECK"].partition("CMD ")[2])[2], "HEALTHCHECK", "exec")
    assert "USER lakeseal" in text, "not as root"
    volumes = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["lakeseal"]["volumes"]
    for volume in volumes:
        assert f"install --directory --owner=lakeseal {volume.partition(':')[2]}\n" in text, "or it is root's"


def test_the_image_is_built_from_what_the_project_names_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    told = [line for line in lines if not line.startswith("#")]
    let_in = {line[1:] for line in told if line.startswith("!")}
    assert told[0] == "*"
    assert [name for name in let_in if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hatch = project["tool"]["hatch"]
    named = {"pyproject.toml", "README.md", "constraints.txt", *project["project"]["license-files"]}
    named |= {hatch["metadata"]["hooks"]["custom"]["path"]}
    named |= {package.partition("/")[0] for package in hatch["build"]["targets"]["wheel"]["packages"]}
    assert let_in == named


def test_compose_starts_the_service_behind_its_database() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    told = yaml.safe_load(text)
    services = told["services"]
    build = services["lakeseal"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    assert services["lakeseal"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert services["database"]["healthcheck"]["test"]
    check([*services["lakeseal"]["command"], "--ledger", services["lakeseal"]["environment"]["LAKESEAL_LEDGER"]])
    named = {volume.partition(":")[0] for one in services.values() for volume in one["volumes"]}
    assert named == set(told["volumes"])
    (token,) = re.findall(r"exec lakeseal lakeseal (.*)", text)
    check([*shlex.split(token), "--ledger", "sqlite:///ledger.db"])
    prometheus = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text(encoding="utf-8"))
    assert {one["job_name"] for one in prometheus["scrape_configs"]} == {"lakeseal", "pipelines"}
