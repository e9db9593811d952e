#!/usr/bin/env python3
"""Checks that the tests notice the faults of tests/mutations.toml: puts one at a time into a scratch copy and expects a test to fail.

    python3 tests/mutations.py               all faults
    python3 tests/mutations.py borrow        the faults whose file or name contains "borrow"
    python3 tests/mutations.py --check       builds nothing: only checks that the list fits the code

The list fits the code if the old text of each fault occurs exactly once in its file and differs from the new text, and
its test, if it names one, is there. A fault of the core is to be noticed by any unit test of the core, and one of the
native host by the test that it names.
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
CORE_TESTS = ["cargo", "test", "-q", "-p", "tidegate-core", "--features", "std,sim", "--lib"]
NATIVE_TESTS = ["cargo", "test", "-q", "-p", "tidegate-native", "--all-features"]
NATIVE = "host-native/"
# A fault can make a test run for ever. It counts as noticed then.
TEST_SECONDS = 600


class Fault(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    # For the native host: a unit test by its whole name, or a test of `host-native/tests/integration`.
    test: str = ""

    @property
    def path(self) -> str:
        """The file, below the root."""
        return self.file if self.file.startswith(NATIVE) else f"core/src/{self.file}"

    @property
    def target(self) -> list[str]:
        """The command that builds the test, and runs it if a filter follows."""
        if not self.test:
            return CORE_TESTS
        is_unit = self.test.startswith("app::")
        return [*NATIVE_TESTS, *(["--lib"] if is_unit else ["--test", "integration"])]


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
    file = root / fault.path
    if not file.is_file():
        return "its file does not exist"
    if fault.file.startswith(NATIVE) != bool(fault.test):
        return "a fault of the native host, and no other, names its test"
    if fault.test and not has_test(fault.test, root):
        return f"its test {fault.test} does not exist"
    count = file.read_text().count(fault.old)
    if count != 1:
        return f"its old text occurs {count} times"
    return "its texts are equal" if fault.old == fault.new else None


def has_test(test: str, root: Path) -> bool:
    """Returns whether a test of the native host exists: in the module that its name begins with, or in its tests."""
    *modules, name = test.split("::")
    folder = root / NATIVE / ("src" if modules[0] == "app" else "tests/integration")
    modules = [module for module in modules if module != "tests"]
    directory = folder.joinpath(*modules)
    files = [directory.with_suffix(".rs"), directory / "mod.rs", directory / "tests.rs"]
    return any(file.is_file() and f"fn {name}(" in file.read_text() for file in files)


def judge(fault: Fault, copy: Path, flags: list[str]) -> tuple[bool, str]:
    if why := misfit(fault, copy):
        return False, why
    file = copy / fault.path
    text = file.read_text()
    file.write_text(text.replace(fault.old, fault.new))
    try:
        # No test has run yet, so a failure here is the compiler's.
        if subprocess.run([*fault.target, *flags, "--no-run"], cwd=copy, capture_output=True, check=False).returncode != 0:
            return False, "does not compile"
        outcome = run([*fault.target, *flags, *exactly([fault])], copy)
        return (False, "SURVIVES") if outcome == "passed" else (True, f"noticed: {outcome}")
    finally:
        file.write_text(text)


def exactly(faults: list[Fault]) -> list[str]:
    """Returns the arguments that run the tests of faults, or all tests for faults that name none."""
    tests = sorted({fault.test for fault in faults if fault.test})
    return ["--", "--exact", *tests] if tests else []


def fail_without_fault(faults: list[Fault], copy: Path, flags: list[str]) -> bool:
    targets = {tuple(fault.target): [] for fault in faults}
    for fault in faults:
        targets[tuple(fault.target)].append(fault)
    return any(subprocess.run([*target, *flags, "--no-run"], cwd=copy, check=False).returncode
               or run([*target, *flags, *exactly(noticing)], copy) != "passed"
               for target, noticing in targets.items())


def check(faults: list[Fault]) -> int:
    """Lists the faults that do not fit the code."""
    misfits = [(fault, why) for fault in faults if (why := misfit(fault, ROOT))]
    for fault, why in misfits:
        print(f"{fault.name} ({fault.path}): {why}")
    print(f"{len(faults) - len(misfits)} of {len(faults)} faults fit the code")
    return 1 if misfits else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Puts one fault at a time into a copy and expects the tests to fail.")
    parser.add_argument("words", nargs="*", help="use only the faults whose file or name contains these words")
    parser.add_argument("--check", action="store_true", help="only check that the list of faults fits the code")
    parser.add_argument("--target-dir", help="build there, and so only once for several calls; by default in a scratch folder")
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
        flags = ["--target-dir", arguments.target_dir or f"{scratch}/target"]
        if fail_without_fault(faults, copy, flags):
            sys.exit("the tests fail without any fault")
        wrong = 0
        for fault in faults:
            start = time.monotonic()
            noticed, verdict = judge(fault, copy, flags)
            wrong += not noticed
            seconds = time.monotonic() - start
            print(f"{fault.name:<76} {fault.file:<34} {verdict:<20} {seconds:>5.1f}s", flush=True)
    print(f"{len(faults) - wrong} of {len(faults)} faults noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
