#!/usr/bin/env python3
"""Checks that the tests notice the faults of tests/mutations.toml: puts one at a time into a scratch copy and expects a test to fail.

    python3 tests/mutations.py               all faults
    python3 tests/mutations.py borrow        the faults whose file or name contains "borrow"
    python3 tests/mutations.py --check       builds nothing: only checks that the list fits the code

The list fits the code if the old text of each fault occurs exactly once in its file and differs from the new text.
Exits with 1 if a fault does not fit, does not compile or survives. A fault that does not fit or does not compile must
be updated in the list.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/mutations.toml"
TESTS = ["cargo", "test", "-q", "-p", "tidegate-core", "--features", "std,sim", "--lib"]
# A fault can make a test run for ever. It counts as noticed then.
TEST_SECONDS = 600


class Fault(NamedTuple):
    name: str
    file: str
    old: str
    new: str


def read_faults() -> list[Fault]:
    with LIST.open("rb") as file:
        return [Fault(**fault) for fault in tomllib.load(file)["fault"]]


def run(command: list[str], where: Path) -> str:
    """Returns "passed", "failed" or, after the time limit, "no end"."""
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, timeout=TEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "no end"
    return "passed" if done.returncode == 0 else "failed"


def misfit(fault: Fault, root: Path) -> str | None:
    """Returns why a fault does not fit the code below `root`, or `None` if it fits."""
    file = root / "core/src" / fault.file
    if not file.is_file():
        return "its file does not exist"
    count = file.read_text().count(fault.old)
    if count != 1:
        return f"its old text occurs {count} times"
    return "its texts are equal" if fault.old == fault.new else None


def judge(fault: Fault, copy: Path) -> tuple[bool, str]:
    if why := misfit(fault, copy):
        return False, why
    file = copy / "core/src" / fault.file
    text = file.read_text()
    file.write_text(text.replace(fault.old, fault.new))
    try:
        # No test has run yet, so a failure here is the compiler's.
        if subprocess.run([*TESTS, "--no-run"], cwd=copy, capture_output=True, check=False).returncode != 0:
            return False, "does not compile"
        outcome = run(TESTS, copy)
        return (False, "SURVIVES") if outcome == "passed" else (True, f"noticed: {outcome}")
    finally:
        file.write_text(text)


def check(faults: list[Fault]) -> int:
    """Lists the faults that do not fit the code."""
    misfits = [(fault, why) for fault in faults if (why := misfit(fault, ROOT))]
    for fault, why in misfits:
        print(f"{fault.name} (core/src/{fault.file}): {why}")
    print(f"{len(faults) - len(misfits)} of {len(faults)} faults fit the code")
    return 1 if misfits else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Puts one fault at a time into a copy and expects the tests to fail.")
    parser.add_argument("words", nargs="*", help="use only the faults whose file or name contains these words")
    parser.add_argument("--check", action="store_true", help="only check that the list of faults fits the code")
    arguments = parser.parse_args()
    word = " ".join(arguments.words)
    faults = [fault for fault in read_faults() if word in fault.file or word in fault.name]
    if not faults:
        sys.exit(f"no fault has {word!r} in its file or name")
    if arguments.check:
        return check(faults)
    with tempfile.TemporaryDirectory(prefix="tidegate-mutations-") as scratch:
        copy = Path(scratch) / "copy"
        # Only files that are tracked or could be: build output is not copied.
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, check=True)
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, copy / name)
        # A separate target folder, so that no build with a fault is in the cache of another.
        TESTS.extend(["--target-dir", f"{scratch}/target"])
        if subprocess.run([*TESTS, "--no-run"], cwd=copy, check=False).returncode or run(TESTS, copy) != "passed":
            sys.exit("the tests fail without any fault")
        wrong = 0
        for fault in faults:
            start = time.monotonic()
            noticed, verdict = judge(fault, copy)
            wrong += not noticed
            seconds = time.monotonic() - start
            print(f"{fault.name:<76} {fault.file:<34} {verdict:<20} {seconds:>5.1f}s", flush=True)
    print(f"{len(faults) - wrong} of {len(faults)} faults noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
