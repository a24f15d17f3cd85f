"""Set up what the commands of the Makefile need, once.

    python3 scripts/setup.py [--extras spark,server] [--no-java]

Makes `.venv`, installs Lakeseal in it (editable) with plain pip, so that the user's own pip configuration counts, and
finds a Java for Spark. Where root on Debian or Ubuntu asks, what the system lacks is installed from its packages;
otherwise one sentence says what to install. A second run finds the stamp that the first one left, keyed on everything
that decides what is installed, and returns at once.

Runs before anything is installed, on Python 3.6 too, so that a Python that is too old gets a sentence, not a traceback.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "lakeseal-setup.json"
ENV = VENV / "lakeseal-env.sh"
PYTHON = VENV / "bin" / "python"
ALL_EXTRAS = "spark,server,kafka,lakefs,docs,dev"


def main():
    parser = argparse.ArgumentParser(description="Set up what the commands of the Makefile need, once.")
    parser.add_argument("--extras", default=ALL_EXTRAS, help="of pyproject.toml, separated by commas")
    parser.add_argument("--no-java", action="store_true", help="for commands that never start Spark")
    wanted = parser.parse_args()
    check_python()
    set_up_packages(set(wanted.extras.split(",")))
    if not wanted.no_java:
        set_up_java()


def check_python():
    found = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = (int(found.group(1)), int(found.group(2)))
    if sys.version_info[:2] < oldest:
        stop(
            f"Lakeseal needs Python {oldest[0]}.{oldest[1]} or newer, and {sys.executable} is {sys.version.split()[0]}."
            " Install a newer one and name it, as in `make demo PYTHON=python3.12`."
        )


def set_up_packages(extras):
    key = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        key.update((ROOT / name).read_bytes())
    key.update(str(ROOT).encode())
    done = read_stamp()
    if done.get("key") == key.hexdigest():
        if extras <= set(done["extras"]):
            return
        extras |= set(done["extras"])
    if not works([PYTHON, "-m", "pip", "--version"]):
        say("making .venv with " + sys.executable)
        make_venv()
    say("installing Lakeseal and its packages in .venv (once; a few minutes on a slow line)")
    target = "{}[{}]".format(ROOT, ",".join(sorted(extras)))
    # The pip that comes with an older Python knows fewer kinds of wheels.
    pip_install("--upgrade", "pip")
    pip_install("--constraint", str(ROOT / "constraints.txt"), "--editable", target)
    compile_all()
    STAMP.write_text(json.dumps({"key": key.hexdigest(), "extras": sorted(extras)}), encoding="utf-8")


def pip_install(*arguments):
    if subprocess.run(
        [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-compile", *arguments], cwd=str(ROOT)
    ).returncode:
        stop("pip could not install the packages; its reason is above. When it is mended, run this again.")


def compile_all():
    # On all cores, which pip does not use; and ours as well, as hundreds of short processes import it.
    code = "import compileall, sys; [compileall.compile_dir(folder, quiet=2, workers=0) for folder in sys.argv[1:]]"
    subprocess.run([str(PYTHON), "-c", code, str(VENV / "lib"), str(ROOT / "src")], cwd=str(ROOT))


def read_stamp():
    try:
        return json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def make_venv():
    if importlib.util.find_spec("ensurepip") is None:
        # Debian splits venv from python3, one package for each version.
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        if not install_from_debian(version, "python3-venv"):
            stop(
                f"{sys.executable} has no complete `venv` module: install it (on Debian and Ubuntu: "
                f"`apt-get install {version}`) and run this again."
            )
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    if made.returncode:
        stop(f"`{sys.executable} -m venv .venv` failed; its reason is above.")


def set_up_java():
    spec = importlib.util.spec_from_file_location("java", str(ROOT / "src" / "lakeseal" / "cli" / "java.py"))
    java = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(java)
    found = java.find_java()
    if found is None:
        install_from_debian(f"openjdk-{java.OLDEST}-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
        found = java.find_java()
    if found is None:
        stop(
            f"Spark needs Java {java.OLDEST} or newer, and none was found: install one (on Debian and Ubuntu: "
            "`apt-get install default-jre-headless`), or point JAVA_HOME at it, and run this again."
        )
    line = f"export JAVA_HOME={shlex.quote(str(found.home))}\n"
    if not ENV.exists() or ENV.read_text(encoding="utf-8") != line:
        ENV.write_text(line, encoding="utf-8")


def install_from_debian(*candidates):
    """Install the first of the packages that this Debian has; False where that is not ours to do."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    subprocess.run(["apt-get", "update", "-qq"], env=quiet, stdout=subprocess.DEVNULL)
    for package in candidates:
        if works(["apt-cache", "show", package]):
            say(f"installing {package} from Debian")
            install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", package]
            if subprocess.run(install, env=quiet, stdout=subprocess.DEVNULL).returncode == 0:
                return True
    return False


def works(command):
    try:
        return (
            subprocess.run(
                [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ).returncode
            == 0
        )
    except OSError:
        return False


def say(text):
    print("setup: " + text, flush=True)


def stop(text):
    sys.exit("setup: " + text)


if __name__ == "__main__":
    main()
