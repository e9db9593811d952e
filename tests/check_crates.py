"""Checks what is in the packages of the crates: `tests/check_crates.py PACKAGE.crate ...`.

A package has its README and both licences. Each file that its code names, by `include_str!`, `include_bytes!`, `#[path]` or
`CARGO_MANIFEST_DIR`, is in it, too: a path that leaves the folder of the crate builds in the repository only.
"""

import posixpath
import re
import sys
import tarfile

NEEDED = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"]
BESIDE = re.compile(r'(?:include_str!\(|include_bytes!\(|include!\(|#!?\[path = )"([^"]+)"')
BELOW_ROOT = re.compile(r'env!\("CARGO_MANIFEST_DIR"\),\s*"/([^"]+)"')


def missing(package):
    """Yields what is wrong with one package."""
    with tarfile.open(package) as archive:
        files = {member.name: member for member in archive.getmembers()}
        root = next(iter(files)).split("/")[0]
        for name in NEEDED:
            if f"{root}/{name}" not in files:
                yield f"{name} is not in the package"
        for name, member in files.items():
            if not name.endswith(".rs"):
                continue
            text = archive.extractfile(member).read().decode()
            named = [posixpath.join(posixpath.dirname(name), path) for path in BESIDE.findall(text)]
            named += [posixpath.join(root, path) for path in BELOW_ROOT.findall(text)]
            for path in map(posixpath.normpath, named):
                if path not in files:
                    yield f"{name} names {path}, which is not in the package"
    print(f"{root}: {len(files)} files")


faults = [f"{package}: {fault}" for package in sys.argv[1:] for fault in missing(package)]
for fault in faults:
    print(fault, file=sys.stderr)
sys.exit(1 if faults or len(sys.argv) == 1 else 0)
