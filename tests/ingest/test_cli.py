from __future__ import annotations

import io
import json
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lakeseal.cli import main
from lakeseal.ledger import open as open_ledger
from lakeseal.ledger.schema import task_states

YAML = """
name: clicks
ledger: sqlite:///{place}/ledger.db
datasets:
  - name: events
    source: {{type: files, path: {place}/landing, format: json, schema: "id long, name string"}}
    target: {{type: table, uri: {place}/t}}
"""
MANY = """
  - name: d{n}
    source: {{type: files, path: {place}/in/{n}, format: json, schema: "id long, name string"}}
    target: {target}
    retries: {{times: 1, first_pause_seconds: 0}}
"""
TARGETS = (
    "{{type: table, uri: {}/out/{}}}",
    "{{type: directory, path: {}/out/{}, partition_by: [name]}}",
)


@pytest.fixture
def clicks(lake: Any) -> str:
    lake.land("1.json", [{"id": 1}, {"id": 2}])
    file: Path = lake.place / "clicks.yaml"
    file.write_text(YAML.format(place=lake.place))
    return str(file)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> list[Any]:
    assert main(["ingest", *words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_run_its_history_and_its_watermarks_are_told(clicks: str, capsys: pytest.CaptureFixture[str]) -> None:
    [run] = told(capsys, "run", clicks, "--no-spark")
    assert (run["state"], run["datasets"][0]["rows"]) == ("published", 2)
    [again] = told(capsys, "run", clicks)  # which needs no Spark, as there is nothing new
    assert again["state"] == "nothing_new"
    assert [one["state"] for one in told(capsys, "history", clicks)] == ["nothing_new", "published"]
    [mark] = told(capsys, "watermarks", clicks)
    assert (mark["dataset"], mark["partition"]) == ("events", "1.json")
    [status] = told(capsys, "status", clicks)
    assert (status["newest"]["state"], status["unfinished"]) == ("nothing_new", {})


def test_a_person_gets_tables_and_one_line_per_run(clicks: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["run", clicks, "--no-spark"], ["status", clicks], ["history", clicks], ["watermarks", clicks]):
        assert main(["ingest", *command]) == 0
    shown = capsys.readouterr().out
    assert "clicks: published, 2 rows" in shown
    assert "1.json" in shown


def test_at_a_terminal_a_run_shows_how_far_each_dataset_is(
    clicks: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["ingest", "run", clicks, "--no-spark"]) == 0
    assert "events" in terminal.getvalue()
    assert "published" in terminal.getvalue()


def test_a_reset_is_asked_for_and_then_reads_again(clicks: str, capsys: pytest.CaptureFixture[str], lake: Any) -> None:
    told(capsys, "run", clicks, "--no-spark")
    mark = json.dumps(told(capsys, "watermarks", clicks)[0]["value"])
    told(capsys, "reset", clicks, "events", "--to", f"1.json={mark}")
    assert told(capsys, "run", clicks, "--no-spark")[0]["state"] == "nothing_new"
    told(capsys, "reset", clicks, "events")
    assert told(capsys, "run", clicks, "--no-spark")[0]["datasets"][0]["rows"] == 2
    assert main(["ingest", "reset", clicks, "events", "--to", "nonsense", "--yes"]) == 1
    assert main(["ingest", "reset", clicks, "nothing", "--yes"]) == 1


def test_a_dataset_that_fails_is_shown_and_makes_the_exit_code_1(
    clicks: str, capsys: pytest.CaptureFixture[str], lake: Any
) -> None:
    lake.land("2.json", ["{broken"])
    assert main(["ingest", "run", clicks, "--no-spark"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "2.json, line 1" in told
    assert "{broken" in told, "the record itself"
    assert main(["ingest", "run", str(lake.place / "none.yaml")]) == 1
    assert main(["ingest", "run", clicks, "--every", "soon"]) == 2
    assert main(["ingest", "run", clicks, "--every", "0s"]) == 2
    assert main(["ingest", "run", clicks, "--every", "1d", "--wait"]) == 2


def test_runs_follow_each_other_until_a_signal_and_the_one_at_work_comes_to_its_end(clicks: str, lake: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as database:
        database.settimeout(60)
        # A database that takes a connection and says nothing: whoever asks it is at work until it hangs up.
        url = f"postgresql+psycopg://127.0.0.1:{database.getsockname()[1]}/d?sslmode=disable&gssencmode=disable"
        asks = f"""
  - name: asks
    source: {{type: sql, url: "{url}", table: t, column: id}}
    target: {{type: directory, path: {lake.place}/asks}}
    retries: {{times: 0}}
"""
        with Path(clicks).open("a") as file:
            file.write(asks)
        command = [sys.executable, "-m", "lakeseal", "ingest", "run", clicks, "--every", "0.1s", "--no-spark", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            database.accept()[0].close()
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
            lake.land("2.json", [{"id": 3}])
            at_work, _ = database.accept()
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            at_work.close()
            told, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    [last] = map(json.loads, told.splitlines())
    assert [one["state"] for one in first["datasets"]] == ["published", "failed"]
    assert [one.get("rows") for one in last["datasets"]] == [1, None]


@pytest.mark.spark
@pytest.mark.own_spark
def test_the_command_starts_spark_by_itself_where_there_is_something_new(clicks: str, lake: Any) -> None:
    command = [sys.executable, "-m", "lakeseal", "ingest", "run", clicks, "--master", "local[1]", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["datasets"][0]["rows"] == 2
    assert lake.ids() == Counter([1, 2])


def test_of_200_datasets_3_are_broken_197_are_published_and_a_retry_publishes_the_3(
    lake: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = (7, 77, 177)
    for n in range(200):
        lake.land("1.json", [{"id": n, "name": "x"}], folder=f"in/{n}")
    in_the_way = [lake.place / f"out/{n}/name=x" for n in broken]
    for file in in_the_way:
        file.parent.mkdir(parents=True)
        file.touch()
    many = "".join(
        MANY.format(place=lake.place, n=n, target=TARGETS[n % 5 > 0].format(lake.place, n)) for n in range(200)
    )
    pipeline = lake.place / "many.yaml"
    pipeline.write_text(f"name: many\nledger: {lake.ledger}\ndatasets:\n{many}")

    def states(code: int, *, published_by_tasks: int = 0) -> dict[str, int]:
        assert main(["ingest", "run", str(pipeline), "--no-spark", "--json"]) == code
        [run] = map(json.loads, capsys.readouterr().out.splitlines())
        for n in broken:
            one = run["datasets"][n]
            assert one["state"] != "set_aside" or "name=x" in one["error"]["message"]
        with open_ledger(lake.ledger) as ledger:
            verdicts = task_states.select().where(task_states.c.run_id == f"{run['run_id']}/1 verdict")
            assert len(ledger.read(lambda tx: tx.rows(verdicts, lock=False))) == published_by_tasks
        return Counter(one["state"] for one in run["datasets"])

    # Tables of the ledger are one transaction with all their watermarks; of the others, tasks publish each.
    assert states(1, published_by_tasks=160) == {"published": 197, "set_aside": 3}
    assert states(1) == {"nothing_new": 197, "set_aside": 3}
    for file in in_the_way:
        file.unlink()
    assert main(["steps", "retry", "many", "--ledger", lake.ledger, "--pipeline", str(pipeline), "--json"]) == 0
    retried = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {one["dataset"]: one["outcome"] for one in retried} == {f"d{n}": "finished" for n in broken}
    assert states(0) == {"nothing_new": 200}
    assert all(lake.ids(f"out/{n}") == Counter([n]) for n in (0, *broken, 199))


def test_the_schema_is_printed_for_editors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"FilesSource", "KafkaSource", "SqlSource", "TableSource"} <= schema["$defs"].keys()


def test_a_project_that_init_makes_is_valid_plans_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "my lake"
    assert main(["ingest", "init", str(place)]) == 0
    assert main(["ingest", "init", str(place)]) != 0, "what is there stays"
    monkeypatch.chdir(place)
    assert main(["ingest", "check", "pipeline.yaml"]) == 0
    capsys.readouterr()
    assert main(["ingest", "plan", "pipeline.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["units"] == 1
    assert main(["ingest", "run", "pipeline.yaml", "--no-spark"]) == 0
    capsys.readouterr()
    assert main(["ingest", "history", "pipeline.yaml", "--json"]) == 0
    (newest,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert newest["datasets"][0]["broken"] == {"gone OR name IS NOT NULL": 0}
    assert main(["ingest", "plan", "pipeline.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["units"] == 0


def test_validate_names_what_is_wrong_with_each_dataset(lake: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = YAML.format(place=lake.place).replace("/t}", "/t, mode: upsert, keys: [idd]}")
    (lake.place / "wrong.yaml").write_text(text)
    assert main(["ingest", "validate", str(lake.place / "wrong.yaml"), "--json"]) == 1
    assert "idd" in json.loads(capsys.readouterr().out.splitlines()[0])["reason"]


def test_the_history_has_how_many_rows_broke_each_rule(lake: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = YAML.format(place=lake.place) + "    quality: [{rule: 'id > 1', on_fail: warn}, {rule: 'id > 0'}]\n"
    (lake.place / "counted.yaml").write_text(text)
    lake.land("1.json", [{"id": 1}, {"id": 2}, {"id": 1}])
    assert main(["ingest", "run", str(lake.place / "counted.yaml"), "--no-spark", "--json"]) == 0
    capsys.readouterr()
    main(["ingest", "history", str(lake.place / "counted.yaml"), "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[0])["datasets"][0]["broken"] == {"id > 1": 2, "id > 0": 0}


def test_every_feature_that_the_docs_compare_is_linked_to_a_test_that_is_there() -> None:
    here = Path(__file__).parent.parent
    table = (here.parent / "docs/ingest.md").read_text().partition("## Beside others")[2]
    links = re.findall(r"\[(\w+)\]\(\.\./tests/(\w+/\w+\.py)\)", table)
    assert len(links) > 15
    for name, file in links:
        assert f"def test_{name}(" in (here / file).read_text(), (name, file)
