"""The names that our walk over Delta's properties goes by are all that Delta Spark has."""

from __future__ import annotations

from typing import Any

import pytest

from table.delta_properties import FEATURES, PROPERTIES

pytestmark = pytest.mark.peers


def test_the_properties_that_delta_spark_knows_are_those_of_our_list(delta_spark: Any) -> None:
    found = delta_spark.run(
        """
        configs = getattr(getattr(spark._jvm.org.apache.spark.sql.delta, "DeltaConfigs$"), "MODULE$")
        kind, entries = configs.getClass(), None
        while kind is not None and entries is None:
            entries = next((f for f in kind.getDeclaredFields() if "entries" in f.getName()), None)
            kind = kind.getSuperclass()
        entries.setAccessible(True)
        result = sorted(str(name) for name in entries.get(configs).keySet())
        """
    )
    assert found == sorted(PROPERTIES)


def test_the_features_that_delta_spark_knows_are_those_of_our_list(delta_spark: Any) -> None:
    found = delta_spark.run(
        """
        features = getattr(getattr(spark._jvm.org.apache.spark.sql.delta, "TableFeature$"), "MODULE$")
        names, result = features.allSupportedFeaturesMap().keys().iterator(), []
        while names.hasNext():
            result.append(names.next())
        result.sort()
        """
    )
    assert found == sorted(FEATURES)
