"""Alembic's entry: runs migrations inside the transaction and the lock that `migrate` holds already."""

from alembic import context

from lakeseal.ledger.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # SQLite can roll DDL back as well, now that BEGIN is ours.
    transactional_ddl=True,
)
context.run_migrations()
