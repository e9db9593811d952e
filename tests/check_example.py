#!/usr/bin/env python3
"""Checks the bundled example's output row by row: `check_example.py OUT`.

Written apart from the program: it reads the dataset and the pipeline file itself, renders every prompt itself, works out
what the mock models must have answered, and compares every cell of every row. Exits 1 at the first difference.
"""

import csv
import json
import re
import sys
import tomllib
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "host-native" / "example"
OPENINGS = ["Noted:", "In short:", "Main point:", "Worth a look:", "For the record:", "Keep in mind:"]
CLOSINGS = [
    "and nothing else out of the ordinary.",
    "with no delay expected.",
    "to be checked again at the next watch.",
    "as already passed on to the harbour office.",
    "until the tide turns.",
]


def render(template: str, row: dict) -> str:
    """A template with nothing but variables and the `upper` filter."""

    def value(match: re.Match) -> str:
        name, _, how = (part.strip() for part in match.group(1).partition("|"))
        assert how in ("", "upper"), f"this check does not know the filter {how!r}"
        return row[name].upper() if how else row[name]

    return re.sub(r"\{\{(.*?)\}\}", value, template)


def hash_of(text: str) -> int:
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state ^ (state >> 29)


def answer(prompt: str) -> str:
    """What a mock model says to a prompt."""
    seed = hash_of(prompt)
    if "one of:" in prompt:
        line = prompt.rsplit("one of:", 1)[1].splitlines()[0]
        choices = [word for word in (re.sub(r"^\W+|\W+$", "", part) for part in line.split(",")) if word]
        return choices[seed % len(choices)]
    last = [line for line in prompt.splitlines() if line.strip()][-1]
    words = re.split(r"[.,;:?!]", last)[0].split()[-7:]
    start = next((at for at, word in enumerate(words) if len(word) > 3), 0)
    topic = " ".join(words[start:]) or "nothing to tell"
    return f"{OPENINGS[seed % len(OPENINGS)]} {topic}, {CLOSINGS[(seed >> 32) % len(CLOSINGS)]}"


def expected_rows(pipeline: dict) -> list[dict]:
    with open(EXAMPLE / pipeline["seed"]["path"], newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        pending = list(pipeline["columns"])
        while pending:
            column = pending.pop(0)
            template = column.get("prompt") or column["template"]
            needed = {name.split("|")[0].strip() for name in re.findall(r"\{\{(.*?)\}\}", template)}
            if not needed <= row.keys():
                pending.append(column)
                continue
            text = render(template, row)
            if column.get("kind") != "expression":
                text = answer("\n".join(filter(None, [column.get("system"), text])))
            row[column["name"]] = text
    return rows


def main() -> None:
    out = Path(sys.argv[1])
    pipeline = tomllib.loads((EXAMPLE / "harbour_log.toml").read_text())
    wanted = expected_rows(pipeline)
    assert len(wanted) >= 200 and len(pipeline["columns"]) >= 4, "the example is smaller than promised"
    manifest = json.loads((out / "manifest.json").read_text())
    files = sorted(path for path in (out / "rows").iterdir() if path.name.endswith(".jsonl"))
    assert not [path for path in files if "dropped" in path.name], "the example drops no row"
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    size = pipeline["run"]["row_group_size"]
    assert len(files) == -(-len(wanted) // size), f"{len(files)} row groups"
    assert len(rows) == len(wanted), f"{len(rows)} rows out, {len(wanted)} in"
    for number, (row, want) in enumerate(zip(rows, wanted)):
        assert row.pop(manifest["row_key"]) == number, f"row {number} is not in its place: {row}"
        for name, value in want.items():
            assert row.pop(name) == value, f"row {number}, column {name}: expected {value!r}"
        assert not row, f"row {number} has more than was asked for: {row}"
    cells = len(wanted) * len(pipeline["columns"])
    print(f"{len(rows)} rows in {len(files)} files, {cells} generated cells, every one as expected")


if __name__ == "__main__":
    main()
