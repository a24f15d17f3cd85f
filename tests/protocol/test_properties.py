from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import InvalidArgument, InvalidMetadata
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.properties import Property, TableProperties, settings

DAY = 86_400_000
ALL = {name: value for name, value in vars(TableProperties).items() if isinstance(value, Property)}


def properties(**configuration: str | None) -> TableProperties:
    return TableProperties(configuration={f"delta.{key}": value for key, value in configuration.items()})


def test_a_table_that_sets_nothing_has_deltas_defaults() -> None:
    defaults = TableProperties.of(Metadata(id="x"))

    assert {name: getattr(defaults, name) for name in ALL} == {
        "append_only": False,
        "auto_compact": "false",
        "optimize_write": False,
        "change_data_feed": False,
        "deletion_vectors": False,
        "isolation_level": "Serializable",
        "set_transaction_retention_ms": None,
        "checkpoint_interval": 10,
        "checkpoint_policy": "classic",
        "checkpoint_stats_as_json": True,
        "checkpoint_stats_as_struct": True,
        "checkpoint_protection_before_version": 0,
        "log_retention_ms": 30 * DAY,
        "deleted_file_retention_ms": 7 * DAY,
        "drop_feature_retention_ms": DAY,
        "expired_log_cleanup": True,
        "column_mapping_mode": "none",
        "column_mapping_max_id": 0,
        "data_skipping_num_indexed_cols": 32,
        "data_skipping_stats_columns": None,
        "data_skipping_string_prefix_length": 32,
        "target_file_size": None,
        "randomize_file_prefixes": False,
        "random_prefix_length": 2,
        "parquet_compression_codec": None,
        "in_commit_timestamps": False,
        "in_commit_timestamp_enablement_version": None,
        "in_commit_timestamp_enablement_timestamp": None,
        "row_tracking": False,
        "row_tracking_suspended": False,
        "row_id_column": None,
        "row_commit_version_column": None,
        "type_widening": False,
        "variant_shredding": False,
        "iceberg_compat_v1": False,
        "iceberg_compat_v2": False,
        "iceberg_compat_v3": False,
        "managed_commit_owner_name": None,
        "managed_commit_owner_conf": None,
        "commit_coordinator": None,
        "commit_coordinator_conf": "",
        "coordinated_table_conf": "",
        "catalog_owner_name": None,
        "catalog_owner_conf": None,
        "catalog_table_id": None,
    }
    assert defaults.constraints == {}


@pytest.mark.parametrize(
    ("key", "text", "attribute", "value"),
    [
        ("appendOnly", "TRUE", "append_only", True),
        ("enableChangeDataFeed", "false", "change_data_feed", False),
        ("enableChangeDataCapture", "true", "change_data_feed", True),
        ("checkpointInterval", "1", "checkpoint_interval", 1),
        ("checkpointPolicy", "V2", "checkpoint_policy", "v2"),
        ("columnMapping.mode", "Name", "column_mapping_mode", "name"),
        ("isolationLevel", "writeserializable", "isolation_level", "WriteSerializable"),
        ("dataSkippingNumIndexedCols", "-1", "data_skipping_num_indexed_cols", -1),
        ("targetFileSize", "1048576", "target_file_size", 2**20),
        ("targetFileSize", "128 MB", "target_file_size", 2**27),
        ("targetFileSize", "1g", "target_file_size", 2**30),
        ("targetFileSize", "3KiB", "target_file_size", 3072),
        ("logRetentionDuration", "interval 1 week 2 days", "log_retention_ms", 9 * DAY),
        ("dataSkippingStatsColumns", "a", "data_skipping_stats_columns", (("a",),)),
        (
            "dataSkippingStatsColumns",
            "a , b.c,`d.e`.f, `g,``h`",
            "data_skipping_stats_columns",
            (("a",), ("b", "c"), ("d.e", "f"), ("g,`h",)),
        ),
        ("managedCommitOwnerConf", '{"a":"b"}', "managed_commit_owner_conf", {"a": "b"}),
        ("inCommitTimestampEnablementVersion", "12", "in_commit_timestamp_enablement_version", 12),
    ],
)
def test_a_value_is_parsed(key: str, text: str, attribute: str, value: Any) -> None:
    assert getattr(properties(**{key: text}), attribute) == value


def test_null_is_as_good_as_absent() -> None:
    assert properties(appendOnly=None).append_only is False


@pytest.mark.parametrize(
    ("key", "text", "attribute"),
    [
        ("appendOnly", "yes", "append_only"),
        ("checkpointInterval", "0", "checkpoint_interval"),
        ("checkpointInterval", "ten", "checkpoint_interval"),
        ("checkpointInterval", "1_0", "checkpoint_interval"),
        ("checkpointInterval", "٣", "checkpoint_interval"),
        ("checkpointInterval", "9" * 19, "checkpoint_interval"),
        ("checkpointInterval", "9" * 5000, "checkpoint_interval"),
        ("checkpointPolicy", "v3", "checkpoint_policy"),
        ("logRetentionDuration", "soon", "log_retention_ms"),
        ("dataSkippingStatsColumns", "", "data_skipping_stats_columns"),
        ("dataSkippingStatsColumns", "a,", "data_skipping_stats_columns"),
        ("dataSkippingStatsColumns", "a..b", "data_skipping_stats_columns"),
        ("dataSkippingStatsColumns", "`a", "data_skipping_stats_columns"),
        ("targetFileSize", "0", "target_file_size"),
        ("targetFileSize", "big", "target_file_size"),
    ],
)
def test_a_malformed_value_is_refused_with_the_propertys_name(key: str, text: str, attribute: str) -> None:
    table = properties(**{key: text, "randomPrefixLength": "3"})

    with pytest.raises(InvalidMetadata, match=f"delta.{key}"):
        getattr(table, attribute)
    assert table.random_prefix_length == 3


@pytest.mark.parametrize("text", ["password=hunter2", '{"password":["hunter2"]}', "[" * 100_000])
def test_an_owners_configuration_never_appears_in_an_error(text: str) -> None:
    with pytest.raises(InvalidMetadata) as caught:
        _ = properties(managedCommitOwnerConf=text).managed_commit_owner_conf

    assert "hunter2" not in str(caught.value)


def test_constraints_are_found_by_their_prefix() -> None:
    table = TableProperties(configuration={"delta.constraints.positive": "x > 0", "delta.appendOnly": "true"})

    assert table.constraints == {"positive": "x > 0"}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 30 days", 30 * DAY),
        ("INTERVAL 1 WEEK", 7 * DAY),
        ("168 hours", 7 * DAY),
        ("2 weeks 1 day 3 hours 4 minutes 5 seconds", 15 * DAY + 3 * 3_600_000 + 4 * 60_000 + 5_000),
        ("interval 1.5 seconds", 1_500),
        ("interval 5 milliseconds 1500 microseconds", 6),
        ("interval -1 day 25 hours", 3_600_000),
        ("interval 0 days", 0),
        ("  interval   1    day ", DAY),
        ("interval 999999999 days", 999_999_999 * DAY),
    ],
)
def test_an_interval_is_read_as_spark_reads_it(text: str, milliseconds: int) -> None:
    assert properties(logRetentionDuration=text).log_retention_ms == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interval",
        "interval ",
        "1 month",
        "2 years",
        "-1 day",
        "5",
        "days",
        "1.5 days",
        "1day",
        "1 day 2",
        "1 day2 hours",
        "interval 1 dayss",
        "interval1 day",
        "999999999999999999 weeks",
        "1 day; drop table",
    ],
)
def test_what_is_no_fixed_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidMetadata):
        _ = properties(logRetentionDuration=text).log_retention_ms


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused_with_a_typed_error(text: str) -> None:
    for name, entry in ALL.items():
        with suppress(InvalidMetadata):
            getattr(TableProperties(configuration={entry.key: text}), name)


def test_settings_take_names_in_any_case_and_plain_values() -> None:
    changed = settings(
        {
            "DELTA.APPENDONLY": True,
            "delta.checkpointinterval": 5,
            "my.own": "x",
            "delta.constraints.Positive": "x > 0",
            "delta.logRetentionDuration": None,
            "delta.autoOptimize.optimizeWrite": "false",
        }
    )

    assert changed.configuration == {
        "delta.appendOnly": "true",
        "delta.checkpointInterval": "5",
        "my.own": "x",
        "delta.constraints.Positive": "x > 0",
        "delta.logRetentionDuration": None,
        "delta.autoOptimize.optimizeWrite": "false",
    }


def test_a_feature_can_be_asked_for_as_a_property() -> None:
    changed = settings({"delta.feature.deletionVectors": "supported"})

    assert changed.configuration == {"delta.feature.deletionVectors": "supported"}
    with pytest.raises(InvalidArgument):
        settings({"delta.feature.deletionVectors": "no"})


def test_an_unknown_property_is_refused_with_close_matches() -> None:
    with pytest.raises(InvalidArgument, match=r"Did you mean delta\.appendOnly\?"):
        settings({"delta.apendOnly": "true"})


def test_a_property_like_nothing_is_refused_too() -> None:
    with pytest.raises(InvalidArgument, match=r"must not start with 'delta\.'"):
        settings({"delta.qqq": "true"})


@pytest.mark.parametrize(
    "key", ["delta.columnMapping.maxColumnId", "delta.managedCommitOwnerName", "delta.managedcommitownerconf"]
)
def test_what_lakeseal_keeps_itself_cannot_be_set_or_removed(key: str) -> None:
    for value in ("1", None):
        with pytest.raises(InvalidArgument, match="cannot be set"):
            settings({key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("delta.checkpointInterval", 0), ("delta.appendOnly", "maybe"), ("delta.appendOnly", 1.5), ("x", object())],
)
def test_a_value_that_could_not_be_read_back_cannot_be_set(key: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=key):
        settings({key: value})
