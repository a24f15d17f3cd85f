"""Functions that Spark and DuckDB both know by one name, and what is to be done about each.

A name that only DuckDB knows cannot be meant otherwise by Spark, and is left to it. What is in none of these lists and
known to both is found by `tests/table_sql/test_shared_functions.py`.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The same answers, or an error of DuckDB's where Spark has an answer.
SAME = _names(
    """
    abs acos acosh asin asinh ascii atan atan2 atanh bit_length cbrt char_length character_length cos cosh cot count
    count_if current_date degrees dense_rank exp first_value instr lag last_day last_value lead len length ln log10
    log2 lpad make_date max md5 min mod now nth_value ntile nullif octet_length percent_rank cume_dist pi pow power
    radians random range rank repeat replace row_number rpad sha1 sin sinh sqrt sum tan tanh trunc stddev
    stddev_pop stddev_samp var_pop var_samp variance bit_and bit_or bit_xor bool_and bool_or avg mean greatest least
    round ceil ceiling floor concat concat_ws contains date_add date_diff date_part datepart date_sub date_trunc
    datediff day dayofmonth dayofweek dayofyear hour lcase left lower ltrim minute month quarter right rtrim second
    substr substring trim ucase upper weekday weekofyear year
    """
)

# Another answer, or one that depends on what is not the same in both.
DIFFERENT = _names(
    """
    aggregate any_value apply approx_count_distinct approx_top_k array_agg array_append array_contains array_distinct
    array_intersect array_position array_prepend array_sort base64 bin bit_count cardinality chr collations corr
    covar_pop covar_samp current_catalog current_database current_schema current_user dayname decode element_at encode
    factorial fill filter first flatten from_json hash hex isnan jaro_winkler_similarity json_array_length kurtosis last
    levenshtein listagg log make_time make_timestamp map map_concat map_entries map_from_entries map_keys map_values
    max_by median min_by mode monthname position printf product reduce regexp_extract regexp_extract_all regexp_replace
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy reverse session_user
    sign skewness split split_part st_asbinary st_geomfromwkb string_agg time_bucket to_binary to_json to_timestamp
    translate typeof unhex url_decode url_encode user uuid version
    """
)

# Only over a window do these mean the same: as aggregates they take any row.
ONLY_WINDOWS = frozenset(("first_value", "last_value", "nth_value"))

# By these names DuckDB writes what Spark calls percentile_cont, mode and the like WITHIN GROUP.
ORDERED = frozenset(("quantile_cont", "quantile_disc", "mode"))

INSTEAD = {
    "log": "ln or log10",
    "position": "instr",
    "typeof": "DESCRIBE",
    "isnan": "x = 'NaN'::DOUBLE",
    "map": "spark=…",
}
