"""An Airflow DAG: every hour what has landed is taken in, looked at, and once a day kept in shape.

The pipeline's ledger knows what was published, so a task that Airflow starts again takes nothing twice.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.decorators import dag, task

LAKE = os.environ.get("LAKE", "/srv/lake")
LEDGER = f"sqlite:///{LAKE}/ledger.db"


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def clicks():
    @task(retries=3, retry_delay=timedelta(minutes=1))
    def ingest() -> int:
        import lakeseal  # when the task runs, not when Airflow reads this file

        return lakeseal.Pipeline.from_yaml(f"{LAKE}/clicks.yaml").run().rows

    @task
    def check(rows: int) -> int:
        import lakeseal

        nameless = (
            lakeseal.Table(f"{LAKE}/clicks", owner=LEDGER).to_arrow(where="page IS NULL", columns=["id"]).num_rows
        )
        if nameless:
            raise ValueError(f"{nameless} clicks have no page")
        return rows

    @task
    def keep_in_shape(rows: int) -> None:
        import lakeseal

        table = lakeseal.Table(f"{LAKE}/clicks", owner=LEDGER)
        if rows:
            table.optimize()
        table.vacuum()

    keep_in_shape(check(ingest()))


clicks()
