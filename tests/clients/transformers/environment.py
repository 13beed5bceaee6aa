"""A Python that has torch, transformers and what the tests of moe.transformers need.

    python3 environment.py FOLDER      prints its path: this interpreter if it has all of them, else that of a virtual environment
                                       in FOLDER, which pip fills; exit code 77: pip did not bring them

torch's wheels for the CPU alone are smaller by gigabytes than those that pip takes by default; an index of theirs is for pip's
own configuration to name. Any build of torch will do."""
import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys

PACKAGES = ["torch==2.15.0", "transformers==5.24.0", "numpy", "scipy", "pytest", "jsonschema"]  # scipy: Inkling
OLDEST = (5, 24)  # of transformers: the first that has all models of the tests
NOT_BROUGHT = 77
# A registry that does not answer holds pip for many minutes.
SECONDS = 1500


def has_all():
    names = [package.partition("==")[0] for package in PACKAGES]
    if any(importlib.util.find_spec(name) is None for name in (*names, "tomllib")):
        return False
    return tuple(int(part) for part in importlib.metadata.version("transformers").split(".")[:2]) >= OLDEST


def check(python):
    """Whether that interpreter has all of them."""
    return python.exists() and subprocess.run([python, __file__, "--check"]).returncode == 0


def main(folder):
    python = pathlib.Path(folder).resolve() / "bin/python"
    if has_all():
        print(sys.executable)
        return 0
    try:
        if not check(python):
            subprocess.run([sys.executable, "-m", "venv", folder], check=True, stdout=sys.stderr, timeout=SECONDS)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
            subprocess.run(pip, check=True, stdout=sys.stderr, timeout=SECONDS)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError, OSError) as error:
        print(error, file=sys.stderr)
        return NOT_BROUGHT
    if not check(python):
        return NOT_BROUGHT
    print(python)
    return 0


if __name__ == "__main__":
    sys.exit((0 if has_all() else 1) if sys.argv[1] == "--check" else main(sys.argv[1]))
