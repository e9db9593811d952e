"""Prints the rows in files of the peers as JSON lines: Parquet of DataDesigner, or Arrow of curator.

rows.py FILE ...
"""

import json
import sys

import pyarrow.ipc
import pyarrow.parquet

for path in sys.argv[1:]:
    if path.endswith(".parquet"):
        table = pyarrow.parquet.read_table(path)
    else:
        table = pyarrow.ipc.open_stream(path).read_all()
    for row in table.to_pylist():
        print(json.dumps(row))
