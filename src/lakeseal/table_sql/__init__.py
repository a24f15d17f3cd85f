"""`lakeseal.sql`: statements done to tables, by Lakeseal where it knows how, and by Spark or DuckDB otherwise."""
