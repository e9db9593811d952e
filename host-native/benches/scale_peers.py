#!/usr/bin/env python3
"""Measures `tidegate run` beside other programs that fill datasets: the same rows, three columns, and mock provider,
64 calls at once.

    cargo build --release
    python3 host-native/benches/scale_peers.py [--rows N] [PEER ...]

The other programs are installed from PyPI, each into an environment of its own below `target/scale-peers`. Wall time
includes the start of each program. Memory is the most resident memory of its process.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import venv

WORKSPACE = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENTS = WORKSPACE / "target" / "scale-peers"
TIDEGATE = WORKSPACE / "target" / "release" / "tidegate"
COLUMNS = ["title", "topic", "mood"]
CALLS_AT_ONCE = 64
PEERS = {"tidegate": None, "data-designer": "data-designer==0.9.7", "curator": "bespokelabs-curator==0.1.31"}


def prompt(column, note):
    return f"Find the {column} of this note: {note}"


def run_tidegate(directory, base_url, rows):
    pipeline = f'[seed]\npath = "notes.jsonl"\n[[models]]\nname = "m"\nprovider = "local"\nmodel = "m"\nbase_url = "{base_url}"\n'
    pipeline += f"max_parallel = {CALLS_AT_ONCE}\n"
    for column in COLUMNS:
        pipeline += f'[[columns]]\nname = "{column}"\nmodel = "m"\nprompt = "{prompt(column, "{{ note }}")}"\n'
    (directory / "pipeline.toml").write_text(pipeline)
    run = subprocess.run(
        [TIDEGATE, "run", directory / "pipeline.toml", "--out", directory / "out", "--json"],
        check=True, stdout=subprocess.PIPE, text=True,
    )
    return json.loads(run.stdout.splitlines()[-1])["rows_out"]


def run_data_designer(directory, base_url, rows):
    import data_designer.config as dd
    from data_designer.interface import DataDesigner

    provider = dd.ModelProvider(name="mock", endpoint=base_url, api_key="none")
    designer = DataDesigner(artifact_path=directory / "artifacts", model_providers=[provider], auto_configure_logging=False)
    parameters = dd.ChatCompletionInferenceParams(max_parallel_requests=CALLS_AT_ONCE)
    model = dd.ModelConfig(alias="m", model="m", provider="mock", inference_parameters=parameters, skip_health_check=True)
    builder = dd.DataDesignerConfigBuilder(model_configs=[model])
    builder.with_seed_dataset(dd.LocalFileSeedSource(path=str(directory / "notes.jsonl")))
    for column in COLUMNS:
        builder.add_column(dd.LLMTextColumnConfig(name=column, model_alias="m", prompt=prompt(column, "{{ note }}")))
    return len(designer.create(builder, num_records=rows).load_dataset())


def run_curator(directory, base_url, rows):
    # Its package has the table of tokens that curator would download otherwise, and says so to `tiktoken`.
    import litellm.litellm_core_utils.default_encoding  # noqa: F401
    from bespokelabs import curator

    class Fill(curator.LLM):
        def __init__(self, column):
            limits = {"max_requests_per_minute": 10**7, "max_tokens_per_minute": 10**10, "max_concurrent_requests": CALLS_AT_ONCE}
            super().__init__(model_name="m", backend="openai", backend_params={"base_url": base_url, "api_key": "none", **limits})
            self.column = column

        def prompt(self, row):
            return prompt(self.column, row["note"])

        def parse(self, row, response):
            return {**row, self.column: response}

    filled = [json.loads(line) for line in (directory / "notes.jsonl").open()]
    for column in COLUMNS:
        filled = Fill(column)(filled, working_dir=str(directory / f"curator-{column}")).dataset.to_list()
    return sum(all(row.get(column) for column in COLUMNS) for row in filled)


RUNS = {"tidegate": run_tidegate, "data-designer": run_data_designer, "curator": run_curator}


def interpreter(peer):
    """The Python of the environment that has the peer, which is made if it is not there."""
    if PEERS[peer] is None:
        return sys.executable
    directory = ENVIRONMENTS / peer
    python = directory / "bin" / "python"
    if subprocess.run([python, "-m", "pip", "show", "-q", PEERS[peer].split("==")[0]], capture_output=True).returncode if python.exists() else True:
        print(f"installing {PEERS[peer]} ...", file=sys.stderr)
        venv.create(directory, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PEERS[peer]], check=True)
    return python


def measure_one(peer, directory, base_url, rows):
    """Runs in a process of its own: fills the dataset, and prints the figures."""
    began = time.monotonic()
    out = RUNS[peer](directory, base_url, rows)
    seconds = time.monotonic() - began
    of = resource.RUSAGE_CHILDREN if peer == "tidegate" else resource.RUSAGE_SELF
    print("figures", json.dumps({"rows": out, "seconds": seconds, "memory": resource.getrusage(of).ru_maxrss}))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=2000)
    arguments.add_argument("--measure", help=argparse.SUPPRESS)
    arguments.add_argument("peers", nargs="*", help=f"which programs, of: {', '.join(PEERS)}")
    settings = arguments.parse_args()
    if settings.measure:
        directory, base_url = settings.peers
        return measure_one(settings.measure, pathlib.Path(directory), base_url, settings.rows)
    unknown = set(settings.peers) - set(PEERS)
    if unknown:
        arguments.error(f"unknown: {', '.join(unknown)}; expected some of: {', '.join(PEERS)}")
    mock = subprocess.Popen(
        [TIDEGATE, "mock", "--listen", "127.0.0.1:0", "--quiet", "--model", f"m=slots={2 * CALLS_AT_ONCE},latency_ms=0"],
        stdout=subprocess.PIPE, text=True,
    )
    try:
        base_url = next(line.split()[-1] for line in mock.stdout if line.startswith("listening on "))
        environment = {
            **os.environ, "NEMO_TELEMETRY_ENABLED": "false", "TELEMETRY_ENABLED": "false", "CURATOR_DISABLE_CACHE": "1",
            "CURATOR_DISABLE_RICH_DISPLAY": "1",
        }
        print(f"{settings.rows} rows, {settings.rows * len(COLUMNS)} calls, {CALLS_AT_ONCE} at once")
        print("program          rows/s   seconds   memory (MB)")
        for peer in settings.peers or PEERS:
            python = interpreter(peer)
            with tempfile.TemporaryDirectory() as directory:
                directory = pathlib.Path(directory)
                with (directory / "notes.jsonl").open("w") as notes:
                    for row in range(settings.rows):
                        notes.write(json.dumps({"id": row, "note": f"the lamp of breakwater {row} failed at low tide"}) + "\n")
                run = subprocess.run(
                    [python, __file__, "--rows", str(settings.rows), "--measure", peer, directory, base_url],
                    env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
            lines = [line for line in run.stdout.splitlines() if line.startswith("figures ")]
            if run.returncode or not lines:
                sys.exit(f"{peer} failed:\n{run.stdout[-2000:]}\n{run.stderr[-4000:]}")
            figures = json.loads(lines[-1].removeprefix("figures "))
            if figures["rows"] != settings.rows:
                sys.exit(f"{peer} made {figures['rows']} of {settings.rows} rows")
            print(f"{peer:15} {settings.rows / figures['seconds']:7.0f} {figures['seconds']:9.1f} {figures['memory'] / 1024:13.0f}", flush=True)
    finally:
        mock.kill()


if __name__ == "__main__":
    main()
