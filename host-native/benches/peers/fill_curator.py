"""Fills three columns with curator, for the notes in `notes.jsonl` of the working directory.

A step of curator makes one call for each row, so there are three steps, one after another. Each reads the dataset
of the step before it, and adds a column. The limits of requests and tokens per minute are so high that they never
apply. To learn the limits of the provider, each step also sends a request without messages, which the mock rejects.
"""

import os
import time

# curator would import it during the fill, for seconds.
import litellm  # noqa: F401
from bespokelabs import curator
from datasets import load_dataset


class Fill(curator.LLM):
    """Adds one column to each row."""

    def __init__(self, column):
        settings = {
            "base_url": os.environ["BASE_URL"],
            "api_key": "test",
            "max_concurrent_requests": int(os.environ["CALLS_AT_ONCE"]),
            "max_requests_per_minute": 10**9,
            "max_tokens_per_minute": 10**12,
        }
        super().__init__(model_name="m", backend="openai", backend_params=settings)
        self.column = column

    def prompt(self, row):
        return f"Find the {self.column} of this note: {row['note']}"

    def parse(self, row, response):
        return {**row, self.column: response}


# For the parent process: the imports are done, and the fill begins.
print("begins", time.monotonic(), time.process_time(), flush=True)

dataset = load_dataset("json", data_files="notes.jsonl", split="train")
for column in ["title", "topic", "mood"]:
    dataset = Fill(column)(dataset, working_dir=f"curator-{column}").dataset
