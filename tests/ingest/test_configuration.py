from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lakeseal.errors import InvalidArgument
from lakeseal.expr.schema_text import parse_schema
from lakeseal.ingest import Dataset, Pipeline, Source
from lakeseal.ingest.config import DirectoryTarget, TableTarget
from lakeseal.ingest.pipeline_schema import pipeline_schema
from lakeseal.ingest.sources.files import FilesSource
from lakeseal.ingest.targets import place_of
from lakeseal.ingest.yaml_file import Given, parse_pipeline

CLICKS = """\
name: clicks
ledger: sqlite:///ledger.db
datasets:
  - name: events
    source: {type: files, path: landing/, format: json, schema: "id long, at timestamp, g long"}
    transform: "SELECT *, date(at) AS day FROM input"
    quality: [{rule: "id IS NOT NULL", on_fail: error_table}, {rows: {min: 1}, on_fail: fail}]
    target: {type: table, uri: lake/events, partition_by: [day]}
  - name: orders
    source: {type: kafka, brokers: "127.0.0.1:9092", topic: orders, schema: "id long", on_lost_offsets: fail}
    target: {type: directory, path: out/orders, format: parquet}
"""


def test_a_pipeline_is_read_from_yaml() -> None:
    config = parse_pipeline(CLICKS)
    assert config.name == "clicks"
    assert [dataset.name for dataset in config.datasets] == ["events", "orders"]
    assert config.datasets[0].source.row_schema().names == ("id", "at", "g")
    assert config.datasets[0].target.partition_by == ("day",)
    assert config.delivery == "exactly_once"
    assert [dataset.commit for dataset in config.datasets] == ["full", "full"]


@pytest.mark.parametrize(
    ("before", "after", "place", "words"),
    [
        ("format: json", "format: jsn", "5:43", "jsn"),
        ("min: 1", "min: x", "7:71", "int"),
        ("on_fail: fail", "on_fial: fail", "7:80", "on_fial"),
        ("type: kafka", "type: kafak", "10:14", "files, kafka, postgres, rest, sql, table"),
        ("id long, at timestamp", "id lng", "5:5", "not a schema"),
        ("id long, at timestamp", "id long, ID long", "5:5", "two columns"),
        ("name: orders", "name: events", "1:1", "Two datasets"),
        ("path: out/orders", "path: lake/events", "1:1", "Two datasets go to"),
        ("topic: orders, ", "", "10:5", "topic"),
        ("sqlite:///ledger.db", "${NOT_SET_ANYWHERE}", "2:9", "NOT_SET_ANYWHERE"),
        ("ledger: sqlite:///ledger.db", "token: t\nledger: sqlite:///ledger.db", "1:1", "service"),
        ("name: clicks", "name: clicks\nname: again", "2:1", "twice"),
        ("name: clicks", "name: [clicks", "2:7", "not YAML"),
        ("{rows: {min: 1}, on_fail: fail}", "{rows: {min: 1}, on_fail: error_table}", "7:63", "error table"),
        ("{rows: {min: 1}, on_fail: fail}", "{on_fail: fail}", "7:63", "one of rule, rows"),
        ("ledger: sql", "leger: sql", "2:1", "leger"),
    ],
)
def test_what_is_wrong_in_yaml_is_told_with_its_line(before: str, after: str, place: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_pipeline(CLICKS.replace(before, after), "clicks.yaml")
    assert str(caught.value).startswith(f"clicks.yaml:{place}: ")
    assert words in str(caught.value)


OWN = "{type: files, path: landing/, format: json, schema: 'id long'}"
TABLE = "{type: table, uri: lake/one}"
KAFKA = "type: kafka, brokers: '127.0.0.1:9092', topic: t"
REST = "type: rest, url: 'https://example.com/x', schema: 'id long'"
SQL = "type: sql, url: 'sqlite:///d.db', table: t, column: id"


@pytest.mark.parametrize(
    ("option", "source", "target", "beside"),
    [
        ("csv", OWN.replace("}", ", csv: {header: true}}"), TABLE, ""),
        ("on_rewritten", OWN.replace("}", ", ordered: true, on_rewritten: fail}"), TABLE, ""),
        ("settle_seconds", OWN.replace("}", ", settle_seconds: -1}"), TABLE, ""),
        ("commit: successful", OWN.replace("}", ", ordered: true}"), TABLE, "commit: successful"),
        ("schema", f"{{{KAFKA}, value: bytes, schema: 'id long'}}", TABLE, ""),
        (
            "schema",
            f"{{{KAFKA}, value: avro, schema: 'id long', avro_schema: {{type: record, name: r, fields: []}}}}",
            TABLE,
            "",
        ),
        ("avro_schema", f"{{{KAFKA}, schema: 'id long', avro_schema: {{type: record}}}}", TABLE, ""),
        ("schema_registry", f"{{{KAFKA}, value: string, schema_registry: 'https://r'}}", TABLE, ""),
        ("registry_auth", f"{{{KAFKA}, schema: 'id long', registry_auth: 'a:b'}}", TABLE, ""),
        ("prefix", f"{{{KAFKA}, schema: 'id long', prefix: _}}", TABLE, ""),
        ("prefix", f"{{{KAFKA}, schema: 'id long', envelope: debezium, prefix: _}}", TABLE, ""),
        (
            "schema_registry",
            f"{{{KAFKA}, schema: 'id long', envelope: debezium, schema_registry: 'https://r'}}",
            TABLE,
            "",
        ),
        ("isolation.level", f"{{{KAFKA}, value: string, options: {{isolation.level: read_uncommitted}}}}", TABLE, ""),
        ("start: latest", f"{{{KAFKA}, value: string, start: latest, span: [0, 5]}}", TABLE, ""),
        ("on_bad_record", f"{{{KAFKA}, value: bytes}}", TABLE, "on_bad_record: skip"),
        ("delay_seconds", f"{{{SQL}, delay_seconds: -5}}", TABLE, ""),
        ("commit: successful", f"{{{SQL}, units: 4}}", TABLE, "commit: successful"),
        ("commit: partial", f"{{{SQL}}}", TABLE, "commit: partial"),
        ("max_pages", f"{{{REST}, max_pages: 5}}", TABLE, ""),
        ("next", f"{{{REST}, pages: {{by: page, next: meta.next}}}}", TABLE, ""),
        ("first", f"{{{REST}, pages: {{by: offset, first: 0}}}}", TABLE, ""),
        ("param", f"{{{REST}, pages: {{by: link, param: p}}}}", TABLE, ""),
        ("size", f"{{{REST}, pages: {{by: page, size: 10}}}}", TABLE, ""),
        ("inclusive", f"{{{REST}, cursor: {{column: id, param: since, inclusive: true}}}}", TABLE, ""),
        ("commit: partial", "{type: postgres, url: 'postgresql://h/d', table: t, slot: s}", TABLE, "commit: partial"),
        ("before", "{type: table, uri: lake/other, before: 5}", TABLE, ""),
        ("on_bad_record", "{type: table, uri: lake/other}", TABLE, "on_bad_record: error_table"),
        ("error_table", OWN, TABLE, "error_table: lake/errors"),
        ("schema", OWN, "{type: directory, path: out}", "quality: [{schema: equal}]"),
        ("at least 5", OWN, TABLE, "quality: [{rows: {min: 5, max: 1}}]"),
        ("max_age_seconds", OWN, TABLE, "quality: [{freshness: {column: at, max_age_seconds: -5}}]"),
        ("keys", OWN, "{type: table, uri: lake/one, keys: [id]}", ""),
        ("partial", OWN, "{type: table, uri: lake/one, mode: scd2, keys: [id], sequence_by: id, partial: true}", ""),
        ("delete_when", OWN, "{type: table, uri: lake/one, mode: cdc, keys: [id], delete_when: gone}", ""),
        (
            "remember_deletes_seconds",
            OWN,
            "{type: table, uri: lake/one, mode: upsert, keys: [id], remember_deletes_seconds: 5}",
            "",
        ),
    ],
)
def test_an_option_that_would_do_nothing_is_refused_by_its_name(
    option: str, source: str, target: str, beside: str
) -> None:
    text = f"""\
name: one
ledger: sqlite:///ledger.db
datasets:
  - name: one
    source: {source}
    target: {target}
"""
    with pytest.raises(InvalidArgument, match=re.escape(option)) as refused:
        parse_pipeline(text + (f"    {beside}\n" if beside else ""), "one.yaml")
    assert re.match(r"one\.yaml:\d+:\d+: ", str(refused.value))
    assert refused.value.hint


@pytest.mark.parametrize(
    ("option", "beside"),
    [
        ("error_table", "commit: full\n    error_table: lake/errors"),
        ("commit: partial", "commit: partial"),
        ("timeout_seconds", "timeout_seconds: 5"),
        ("on_bad_record", "on_bad_record: skip"),
    ],
)
def test_an_option_of_sources_that_are_read_is_refused_of_other_datasets(option: str, beside: str) -> None:
    text = CLICKS.replace("name: orders", "name: made").replace(
        '{type: kafka, brokers: "127.0.0.1:9092", topic: orders, schema: "id long", on_lost_offsets: fail}',
        '{type: datasets, inputs: [events]}\n    transform: "SELECT 1 AS one FROM events"',
    )
    text = text.replace("{type: directory, path: out/orders, format: parquet}", "{type: table, uri: m, mode: replace}")
    parse_pipeline(text)
    with pytest.raises(InvalidArgument, match=option):
        parse_pipeline(f"{text}    {beside}\n")


@pytest.mark.parametrize(
    ("option", "above"),
    [
        ("headers", "lineage: {file: l.json, headers: {a: b}}"),
        ("told on nothing", "alerts: [{webhook: 'https://example.com', on: []}]"),
    ],
)
def test_an_option_of_the_pipeline_that_would_do_nothing_is_refused(option: str, above: str) -> None:
    with pytest.raises(InvalidArgument, match=option):
        parse_pipeline(f"{above}\n{CLICKS}")


def test_a_file_that_is_not_there_or_empty_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no file"):
        Pipeline.from_yaml(tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(InvalidArgument, match="is empty"):
        Pipeline.from_yaml(tmp_path / "empty.yaml")


def test_variables_of_the_environment_are_filled_in_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "s3cret")
    source = '{type: sql, url: "postgresql://me:${DATABASE_PASSWORD}@db/x", table: t, column: id}'
    text = CLICKS.replace(
        '{type: files, path: landing/, format: json, schema: "id long, at timestamp, g long"}', source
    )
    dataset = parse_pipeline(text).datasets[0]
    assert "s3cret" in dataset.source.url  # type: ignore[attr-defined]
    assert "s3cret" not in repr(dataset)
    assert parse_pipeline(CLICKS.replace("clicks", "${NOT_SET:-other} $$5", 1)).name == "other $5"


def test_the_json_schema_takes_the_pipeline_and_refuses_what_reading_refuses() -> None:
    schema = pipeline_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(CLICKS), schema)
    for before, after in (("format: json", "format: jsn"), ("ledger: sql", "leger: sql"), ("topic: orders, ", "")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(CLICKS.replace(before, after)), schema)


def test_the_json_schema_has_words_for_every_field_that_is_no_plain_name() -> None:
    parts = pipeline_schema()["$defs"]
    plain = {"name", "path", "column", "url", "topic"}
    silent = [
        f"{part}.{name}"
        for part, told in parts.items()
        for name, field in told.get("properties", {}).items()
        if name not in plain and not field.get("description")
    ]
    assert silent == []
    assert parts["FilesSource"]["description"] == "`files`: a landing directory whose files are each read once."
    assert parts["Check"]["properties"]["on_fail"]["description"].startswith("fail: nothing of the dataset")


def test_a_pipeline_from_python_is_checked_like_one_from_yaml(lake: Any) -> None:
    dataset = Dataset(name="a", source=lake.files(), target=lake.to_table())
    with pytest.raises(InvalidArgument, match="Two datasets"):
        lake.pipeline(dataset, dataset)
    with pytest.raises(InvalidArgument, match="at least one dataset"):
        lake.pipeline()
    with pytest.raises(InvalidArgument, match="no pipeline"):
        lake.pipeline(dataset, speed="high")
    with pytest.raises(InvalidArgument, match="no dataset 'b'"):
        lake.pipeline(dataset).run(datasets=["b"])


def test_two_sources_cannot_have_the_same_type() -> None:
    from lakeseal.ingest import register_source

    with pytest.raises(InvalidArgument, match="FilesSource"):

        @register_source
        class Other(Source, frozen=True, kw_only=True, tag="files"):
            pass


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("id long, n: int, `a b` string", ["bigint", "int", "string"]),
        ("at timestamp, t timestamp_ntz, d date", ["timestamp", "timestamp_ntz", "date"]),
        ("x decimal(10,2), y decimal", ["decimal(10,2)", "decimal(10,0)"]),
        ("a array<struct<x: int>>, m map<string, double>", ["array<struct<x:int>>", "map<string,double>"]),
    ],
)
def test_a_schema_is_read_as_spark_writes_it(text: str, types: list[str]) -> None:
    assert [str(field.type).replace(", ", ",") for field in parse_schema(text).fields] == types


def test_a_schema_says_what_may_be_null_and_what_it_means() -> None:
    field = parse_schema("id long NOT NULL COMMENT 'the key'").fields[0]
    assert not field.nullable
    assert field.metadata == {"comment": "the key"}


def test_what_travels_to_tasks_names_places_absolutely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks work in another directory than the driver: a relative place would be another one there."""
    monkeypatch.chdir(tmp_path)
    source = FilesSource(path="landing", format="json", schema="id long")
    for target in (TableTarget(uri="lake/t"), DirectoryTarget(path="lake/t")):
        placed = Dataset(name="d", source=source, target=target).by_absolute_uris()
        monkeypatch.chdir(tmp_path.parent)
        assert place_of(placed.target) == f"file://{tmp_path}/lake/t"
        assert placed.errors_uri == f"file://{tmp_path}/lake/t_errors"
        assert placed.by_absolute_uris() == placed
        monkeypatch.chdir(tmp_path)
    named = Dataset(name="d", source=source, target=TableTarget(uri="s3://b/t"), error_table="e").by_absolute_uris()
    assert (place_of(named.target), named.errors_uri) == ("s3://b/t", f"file://{tmp_path}/e")


PARAMS = """
name: "orders of ${who}"
ledger: sqlite:///${root}/ledger.db
params: {root: /tmp/lake, who: nobody, day: }
environments:
  prod: {root: /srv/lake, secret: "${ONLY_IN_PROD}"}
  test: {root: "${TEST_ROOT:-/tmp/test}", n: 5}
datasets:
  - name: d
    source: {type: files, path: "${root}/in", format: json, schema: "id long"}
    target: {type: table, uri: "${root}/d"}
"""


def test_parameters_come_from_the_caller_the_environment_and_the_file_in_this_order() -> None:
    plain = parse_pipeline(PARAMS)
    assert (plain.name, place_of(plain.datasets[0].target)) == ("orders of nobody", "/tmp/lake/d")
    tested = parse_pipeline(PARAMS, given=Given(env="test", params={"who": "Ada"}))
    assert (tested.name, tested.ledger) == ("orders of Ada", "sqlite:////tmp/test/ledger.db")
    told = parse_pipeline(PARAMS, given=Given(env="test", params={"root": "/else"}))
    assert place_of(told.datasets[0].target) == "/else/d"


@pytest.mark.parametrize(
    ("text", "given", "reason"),
    [
        (PARAMS, Given(env="dev"), "no environment 'dev': known are prod, test"),
        (PARAMS, Given(params={"rot": "x"}), "no parameter 'rot': known are day, n, root, secret, who"),
        (PARAMS.replace("${who}", "${day}"), Given(), "the parameter day is not given"),
        (PARAMS, Given(env="prod"), "the environment variable ONLY_IN_PROD is not set"),
        (PARAMS.replace("who: nobody", "who: [1]"), Given(), "params"),
    ],
)
def test_a_parameter_that_is_wrong_is_told_with_its_line(text: str, given: Given, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=f"pipeline.yaml:[0-9]+:.*{reason}"):
        parse_pipeline(text, given=given)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name: !!python/name:os.system ''", "1:7: name: this cannot be read as os.system"),
        ("name: !!int abc", "1:7: name: this cannot be read as int"),
        ("name: 2024-13-45", "1:7: name: this cannot be read as timestamp"),
        ("name: !!binary 'é'", "1:7: name: this cannot be read as binary"),
        ("name: !!bool x", "1:7: name: this cannot be read as bool"),
        (f"name: {'9' * 5000}", "1:7: name: this cannot be read as int"),
        ("a: &a [*a]", "more than 50 levels"),
        ("a: &a {x: *a}", "more than 50 levels"),
        (f"a: {'[' * 900}{']' * 900}", "nested too deeply|more than 50 levels"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcde", "bcdef", strict=True)
            ),
            "more than 100,000 values",
        ),
    ],
)
def test_what_yaml_can_do_and_a_pipeline_does_not_need_is_refused_in_its_place(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        parse_pipeline(text)
