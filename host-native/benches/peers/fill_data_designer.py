"""Fills three columns with DataDesigner, for the notes in `notes.jsonl` of the working directory.

One `create` makes all columns. None of them depends on another, and every one uses the same model, so
`max_parallel_requests` limits the calls of all three together. `create` also profiles the finished dataset, which
no setting turns off. The server for metrics is off, and no request tests the model before the run.
"""

import os
import time

import data_designer.config as dd
from data_designer.interface import DataDesigner

base_url, rows = os.environ["BASE_URL"], int(os.environ["ROWS"])
# For the parent process: the imports are done, and the fill begins.
print("begins", time.monotonic(), time.process_time(), flush=True)

provider = dd.ModelProvider(name="mock", endpoint=base_url, api_key="test")
designer = DataDesigner(artifact_path="data-designer", model_providers=[provider])
designer.set_run_config(dd.RunConfig(otel_metrics_port=None))
model = dd.ModelConfig(
    alias="m",
    model="m",
    provider="mock",
    inference_parameters=dd.ChatCompletionInferenceParams(max_parallel_requests=int(os.environ["CALLS_AT_ONCE"])),
    skip_health_check=True,
)
builder = dd.DataDesignerConfigBuilder(model_configs=[model])
builder.with_seed_dataset(dd.LocalFileSeedSource(path="notes.jsonl"))
for column in ["title", "topic", "mood"]:
    prompt = f"Find the {column} of this note: {{{{ note }}}}"
    builder.add_column(dd.LLMTextColumnConfig(name=column, model_alias="m", prompt=prompt))
designer.create(builder, num_records=rows)
