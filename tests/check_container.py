"""Checks the container file and the systemd unit of docs/proxy.md without either: `tests/check_container.py TARGET/debug/tidegate.d`.

The argument is the list of files that the program was built from, which cargo writes. What `.dockerignore` lets through must have all of
them, and the manifests of the workspace. The image has the Rust version of the workspace, and both stages have the same libraries. The unit starts a
command that the program has, and leaves calls in flight the time to end.
"""

import configparser
import fnmatch
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).parent.parent
# The configuration of the user: it is not in the repository.
OWN_FILE = "proxy.toml"


def ignored(path: str, rules: list[str]) -> bool:
    """Returns whether the rules of a `.dockerignore` leave a path out: the last one that matches it, or a folder above, decides."""
    parts = path.split("/")
    above = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    result = False
    for rule in rules:
        pattern = rule.removeprefix("!")
        # `**/` stands for any number of folders.
        if any(fnmatch.fnmatchcase(f"/{name}", f"*/{pattern.removeprefix('**/')}") if pattern.startswith("**/")
               else name.count("/") == pattern.count("/") and fnmatch.fnmatchcase(name, pattern) for name in above):
            result = not rule.startswith("!")
    return result


def faults(dependencies: pathlib.Path, copy: pathlib.Path):
    """Yields what is wrong. `copy` is an empty folder."""
    page = (ROOT / "docs/proxy.md").read_text()
    [file] = re.findall(r"```dockerfile\n(.*?)```", page, re.DOTALL)
    lines = [line.split() for line in file.splitlines()]
    rules = [rule for line in (ROOT / ".dockerignore").read_text().splitlines() if (rule := line.strip()) and rule[0] != "#"]

    images = [line[1] for line in lines if line[:1] == ["FROM"]]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    build, final = (re.fullmatch(pattern, image) for pattern, image in
                    zip([r"rust:([\d.]+)-slim-(\w+)", r"debian:()(\w+)-slim"], images, strict=True))
    if not build or not final:
        yield f"the images are {images}, expected rust:VERSION-slim-RELEASE and debian:RELEASE-slim"
    elif build[1] != version:
        yield f"the image has Rust {build[1]}, and the workspace {version}"
    elif build[2] != final[2]:
        yield f"the program is built on Debian {build[2]} and runs on {final[2]}, which may have older libraries"

    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    context = [name for name in listed.split("\0") if name and not ignored(name, rules)]
    for rule in rules:
        kept = rule.removeprefix("!")
        if rule.startswith("!") and kept != OWN_FILE and not (ROOT / kept).exists():
            yield f".dockerignore keeps {kept}, which does not exist"
    copied = [line[1:-1] for line in lines if line[:1] == ["COPY"] and not line[1].startswith("--")]
    for source in sum(copied, []):
        if source not in (".", OWN_FILE) and source not in context:
            yield f"COPY names {source}, which does not exist or is in .dockerignore"
        if source == OWN_FILE and ignored(source, rules):
            yield f"{OWN_FILE} is in .dockerignore"

    for name in context:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name, follow_symlinks=False)
    built, sources = dependencies.read_text().split(":", 1)
    sources = [pathlib.Path(source.replace("\\ ", " ")) for source in re.split(r"(?<!\\)\s+", sources.strip())]
    sources = [source.relative_to(ROOT) for source in sources if source.is_relative_to(ROOT)]
    if len(sources) < 100:
        yield f"{dependencies} names only {len(sources)} files of the workspace"
    for source in sources:
        if not (copy / source).is_file():
            yield f"{source} is needed to build the program, and is left out by .dockerignore"

    command = next(line for line in lines if line[:3] == ["RUN", "cargo", "build"])
    if "Cargo.lock" not in context:
        yield "Cargo.lock is left out by .dockerignore, and cargo would choose other versions"
    package, program = command[command.index("-p") + 1], command[command.index("--bin") + 1]
    metadata = subprocess.run(["cargo", "metadata", "--offline", "--locked", "--no-deps", "--format-version", "1"], cwd=copy,
                              capture_output=True, text=True, check=False)
    if metadata.returncode:
        yield f"cargo cannot read the workspace: {metadata.stderr.strip()}"
        return
    found = [target["name"] for member in json.loads(metadata.stdout)["packages"] if member["name"] == package
             for target in member["targets"] if "bin" in target["kind"]]
    if program not in found or pathlib.Path(built).name != program:
        yield f"{package} has no program {program}: {found}"
    if not any(line[:1] == ["COPY"] and line[1] == "--from=build" and line[2].endswith(f"/target/release/{program}") for line in lines):
        yield f"the final image has no copy of {program}"
    print(f"{len(context)} files are in the build, {len(sources)} of them are what {program} is built from")


def unit_faults(program: pathlib.Path):
    """Yields what is wrong with the systemd unit."""
    page = (ROOT / "docs/proxy.md").read_text()
    [text] = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(text)
    if unit.sections() != ["Unit", "Service", "Install"]:
        yield f"the unit has the sections {unit.sections()}"
        return
    service = unit["Service"]
    name, command, *files = service["ExecStart"].split()
    usage = subprocess.run([program, command, "--help"], capture_output=True, text=True, check=False)
    if pathlib.Path(name).name != program.name or usage.returncode or len(files) != 1:
        yield f"the unit starts `{service['ExecStart']}`: {usage.stderr.strip()}"
    [drain] = re.findall(r'^\| `drain` \| `"(\d+)s"`', page, re.MULTILINE)
    [stop] = re.findall(r"^(\d+)s$", service["TimeoutStopSec"])
    if int(stop) <= int(drain):
        yield f"the unit kills the proxy after {stop} s, and calls have {drain} s to end"
    if service["KillSignal"] != "SIGTERM":
        yield f"the unit stops the proxy by {service['KillSignal']}, which does not drain"


if len(sys.argv) != 2:
    sys.exit(__doc__)
with tempfile.TemporaryDirectory() as scratch:
    found = list(faults(pathlib.Path(sys.argv[1]), pathlib.Path(scratch)))
found += unit_faults(pathlib.Path(sys.argv[1]).with_suffix(""))
for fault in found:
    print(fault, file=sys.stderr)
sys.exit(1 if found else 0)
