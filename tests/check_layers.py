"""Checks that modules form layers: no cycle between two modules of the core, none between two folders of a host.

A module uses another if a line of its code names it in a path that begins with `crate::`. Comments, documentation and tests do not
count: a link may point upwards, and a test may use anything.
"""

import graphlib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
# The sources of a crate, and the folders whose modules are layers of their own.
CRATES = {"core/src": [], "host-native/src": ["app"]}
USE = re.compile(r"\bcrate::((?:\w+::)*\w+)")
GROUP = re.compile(r"\bcrate::((?:\w+::)*)\{([^;]*)\};")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\n]*\]\s*)*mod \w+ \{.*", re.DOTALL)
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def layer(path: list[str], split: list[str]) -> str:
    """Returns the layer that a module belongs to."""
    return "::".join(path[:2] if path[0] in split else path[:1])


def uses(source: str):
    """Yields the paths that the code of a file names."""
    code = COMMENT.sub("", TESTS.sub("", source))
    for match in USE.finditer(code):
        yield match[1].split("::")
    for match in GROUP.finditer(code):
        # The depth-one items of a group: `crate::{a::b, c::{d, e}}` names `a` and `c`.
        depth, item = 0, ""
        for char in match[2] + ",":
            depth += (char == "{") - (char == "}")
            if char == "," and depth == 0:
                if name := re.match(r"\s*(\w+(?:::\w+)*)", item):
                    yield (match[1] + name[1]).split("::")
                item = ""
            else:
                item += char


def check(crate: str, split: list[str]) -> int:
    """Prints a cycle of the crate, if there is one. Returns the number of layers, or 0 if there is a cycle."""
    root = ROOT / crate
    modules = {file.stem for file in root.glob("*.rs")} | {folder.name for folder in root.iterdir() if folder.is_dir()}
    graph: dict[str, set[str]] = {}
    where: dict[tuple[str, str], str] = {}
    for file in sorted(root.rglob("*.rs")):
        path = list(file.relative_to(root).with_suffix("").parts)
        if any(part.startswith(("test", "fuzz")) for part in path) or path[0] in ("lib", "main"):
            continue
        own = layer(path if path[-1] != "mod" else path[:-1], split)
        for used in uses(file.read_text()):
            if used[0] in modules and (other := layer(used, split)) not in (own, *split):
                graph.setdefault(own, set()).add(other)
                where.setdefault((own, other), str(file.relative_to(ROOT)))
    try:
        order = list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        cycle = error.args[1][::-1]
        print(f"{crate}: modules use each other in a cycle:")
        for own, other in zip(cycle, cycle[1:]):
            print(f"  {own} uses {other} in {where[own, other]}")
        return 0
    return len(order)


layers = [check(crate, split) for crate, split in CRATES.items()]
if 0 in layers:
    sys.exit(1)
print(f"no cycle among {sum(layers)} modules")
