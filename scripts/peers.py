"""Set up the peers that need more than PyPI, once: Delta Spark in `.venv-peers`, its JARs from Maven Central.

Delta Spark refuses Spark versions newer than it knows, so it gets an environment of its own. Spark fetches the JARs
itself (`spark.jars.packages`), so whatever the user configured for Spark or Ivy counts. A release is on PyPI before its
JARs are everywhere, so the release before it stands in, and this says so. Where no JARs can be had at all, this says
what is skipped and succeeds: the tests beside Delta Spark then skip themselves.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-peers"
PYTHON = VENV / "bin" / "python"
JARS = VENV / "delta-jars.txt"
PYSPARK = "pyspark==4.2.0"
RELEASES = ["delta-spark==4.4.1", "delta-spark==4.4.0"]
RESOLVE = """
import sys
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
configure_spark_with_delta_pip(builder.config("spark.jars.ivy", sys.argv[1])).getOrCreate().stop()
"""


def main() -> None:
    wanted = " ".join([PYSPARK, *RELEASES])
    if JARS.exists() and JARS.read_text(encoding="utf-8").startswith(wanted + "\n"):
        return
    print(f"peers: making .venv-peers with {PYSPARK}", flush=True)
    run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    run([str(PYTHON), "-m", "pip", "install", "--quiet", PYSPARK])
    for release in RELEASES:
        run([str(PYTHON), "-m", "pip", "install", "--quiet", PYSPARK, release])
        jars = resolve(VENV / "ivy" / release)
        if jars:
            JARS.write_text("\n".join([wanted, *jars]) + "\n", encoding="utf-8")
            print(f"peers: {release} is ready", flush=True)
            return
        print(f"peers: Maven Central did not give the JARs of {release}", flush=True)
    print("peers: SKIPPED all tests and benchmarks beside Delta Spark", flush=True)


def resolve(ivy: Path) -> list[str]:
    try:
        subprocess.run([str(PYTHON), "-c", RESOLVE, str(ivy)], check=True, capture_output=True, timeout=300)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return []
    return sorted(str(jar) for jar in (ivy / "jars").glob("*.jar"))


def run(command: list[str]) -> None:
    if subprocess.run(command).returncode:
        sys.exit(f"peers: `{' '.join(command)}` failed; the reason is above.")


if __name__ == "__main__":
    main()
