"""Names of tables: `catalog.schema.table` and what each means, wherever the names are kept."""
