"""The official OpenAI client for Python, against `tidegate mock` over real sockets.

Run by ./run, which sets TIDEGATE to the program. Every test names what a user of the client may rely on.
"""

import asyncio
import json
import os
import signal
import subprocess
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from typing import Literal, Optional

import openai
from openai import AsyncOpenAI, OpenAI
from patience import PATIENCE_S, until
from pydantic import BaseModel, Field

HERE = Path(__file__).resolve().parent
PROMPT = [{"role": "user", "content": "the breakwater lamp failed"}]


class Mock:
    """`tidegate mock` as a child process."""

    def __init__(self, *arguments: str):
        command = [os.environ["TIDEGATE"], "mock", *arguments, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.base_url = line.removeprefix("listening on ").strip()
                return
        raise RuntimeError(f"{command} did not listen")

    def client(self, **settings) -> OpenAI:
        return OpenAI(**{"base_url": self.base_url, "api_key": "none", "timeout": PATIENCE_S, **settings})

    def async_client(self, **settings) -> AsyncOpenAI:
        # By itself a client waits five seconds for a connection.
        return AsyncOpenAI(**{"base_url": self.base_url, "api_key": "none", "timeout": PATIENCE_S, **settings})

    def stats(self, model: str) -> dict:
        address = self.base_url.removesuffix("/v1") + "/mock/stats"
        with urllib.request.urlopen(address) as answer:
            return json.load(answer)["models"][model]

    def wait_until_in_flight(self, model: str, wanted: int) -> None:
        until(lambda: self.stats(model), lambda stats: stats["in_flight"] == wanted)

    def stop(self) -> str:
        """Ends it as a shell would, and gives the rest of what it wrote."""
        self.process.send_signal(signal.SIGTERM)
        rest, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, self.process.returncode
        return rest


class WithMock(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.mock = Mock(str(HERE / "models.toml"))
        cls.client = cls.mock.client()

    @classmethod
    def tearDownClass(cls):
        cls.mock.stop()


class Answers(WithMock):
    def chat(self, **more):
        return self.client.chat.completions.create(**{"model": "chat", "messages": PROMPT, **more})

    def test_an_answer_is_a_function_of_the_prompt(self):
        first, second = self.chat(), self.chat()
        self.assertIn("lamp failed", first.choices[0].message.content)
        self.assertEqual(first.choices[0].message.content, second.choices[0].message.content)
        self.assertEqual(first.choices[0].finish_reason, "stop")
        self.assertEqual(first.usage.total_tokens, first.usage.prompt_tokens + first.usage.completion_tokens)
        self.assertNotEqual(first.id, second.id)

    def test_several_choices_and_a_token_limit_are_honoured(self):
        answer = self.chat(n=3, max_completion_tokens=2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        self.assertEqual({choice.finish_reason for choice in answer.choices}, {"length"})

    def test_a_stream_says_what_the_whole_answer_says_and_tells_the_usage(self):
        whole = self.chat()
        said, usage, finish, pieces = "", None, None, 0
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                said += choice.delta.content or ""
                finish = choice.finish_reason or finish
                pieces += bool(choice.delta.content)
        self.assertEqual((said, usage, finish), (whole.choices[0].message.content, whole.usage, "stop"))
        self.assertGreaterEqual(pieces, len(said.split()), "the words come one after another")

    def test_what_a_mock_has_no_use_for_is_accepted(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
        answer = self.chat(
            messages=[
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "the breakwater lamp failed"}]},
            ],
            temperature=0.2,
            stop=["\n"],
            seed=3,
            user="someone",
            tools=[tool],
            tool_choice="none",
        )
        self.assertIn("lamp failed", answer.choices[0].message.content)

    def test_plain_completions_are_answered_whole_and_streamed(self):
        whole = self.client.completions.create(model="chat", prompt="the lamp failed")
        chunks = self.client.completions.create(model="chat", prompt="the lamp failed", stream=True)
        said = "".join(choice.text for chunk in chunks for choice in chunk.choices)
        self.assertEqual(said, whole.choices[0].text)

    def test_models_are_listed(self):
        self.assertIn("chat", [model.id for model in self.client.models.list()])
        self.assertEqual(self.client.models.retrieve("narrow").id, "narrow")

    def test_headers_tell_the_rates(self):
        raw = self.client.chat.completions.with_raw_response.create(model="chat", messages=PROMPT)
        self.assertEqual(raw.headers["x-ratelimit-limit-requests"], "600000")
        self.assertLess(int(raw.headers["x-ratelimit-remaining-tokens"]), 60_000_000)
        self.assertRegex(raw.headers["x-ratelimit-reset-tokens"], r"^\d+ms$")
        self.assertEqual(raw.parse()._request_id, raw.headers["x-request-id"])


class Tools(WithMock):
    TOOL = {
        "type": "function",
        "function": {
            "name": "close_berth",
            "parameters": {"type": "object", "properties": {"berth": {"type": "integer"}}, "required": ["berth"]},
        },
    }

    def test_a_tool_that_has_to_be_called_is_called_with_arguments_that_fit(self):
        ask = {"model": "chat", "messages": PROMPT, "tools": [self.TOOL], "tool_choice": "required"}
        choice = self.client.chat.completions.create(**ask).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        call = choice.message.tool_calls[0].function
        self.assertEqual(call.name, "close_berth")
        self.assertIsInstance(json.loads(call.arguments)["berth"], int)
        with self.client.chat.completions.stream(**ask) as stream:
            streamed = stream.get_final_completion().choices[0].message.tool_calls[0].function
        self.assertEqual((streamed.name, streamed.arguments), (call.name, call.arguments))


class Berth(BaseModel):
    name: str
    depth: float = Field(gt=2, lt=12)


class Report(BaseModel):
    title: str = Field(min_length=5)
    severity: Literal["low", "high"]
    berths: list[Berth] = Field(min_length=3)
    count: int = Field(ge=1, le=9)
    note: Optional[str]
    closed: bool


class StructuredAnswers(WithMock):
    def test_an_answer_fits_the_model_class_it_was_asked_for(self):
        parse = self.client.chat.completions.parse
        answer = parse(model="chat", messages=PROMPT, response_format=Report).choices[0].message.parsed
        self.assertIsInstance(answer, Report)
        self.assertGreaterEqual(len(answer.berths), 3)
        again = parse(model="chat", messages=PROMPT, response_format=Report).choices[0].message.parsed
        self.assertEqual(answer, again)

    def test_a_streamed_one_fits_too(self):
        with self.client.chat.completions.stream(model="chat", messages=PROMPT, response_format=Report) as stream:
            answer = stream.get_final_completion().choices[0].message.parsed
        self.assertIsInstance(answer, Report)

    def test_any_json_object_will_do_if_no_schema_is_given(self):
        answer = self.client.chat.completions.create(
            model="chat", messages=PROMPT, response_format={"type": "json_object"}
        )
        self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)


class Embeddings(WithMock):
    def vector(self, text, **more):
        return self.client.embeddings.create(model="chat", input=text, **more).data[0].embedding

    def test_the_default_encoding_and_floats_are_the_same_vector(self):
        default, floats = self.vector("the north buoy"), self.vector("the north buoy", encoding_format="float")
        self.assertEqual(len(default), 1536)
        for one, other in zip(default, floats, strict=True):
            self.assertAlmostEqual(one, other, places=6)
        self.assertAlmostEqual(sum(value * value for value in default), 1, places=4)

    def test_texts_that_share_words_are_nearer(self):
        def near(one, other):
            return sum(a * b for a, b in zip(self.vector(one), self.vector(other), strict=True))

        self.assertGreater(near("the north buoy", "the north buoy adrift"), near("the north buoy", "lamp failed"))

    def test_many_texts_tokens_and_dimensions_are_understood(self):
        answer = self.client.embeddings.create(model="chat", input=["a", "b", "c"], dimensions=64)
        self.assertEqual([(item.index, len(item.embedding)) for item in answer.data], [(0, 64), (1, 64), (2, 64)])
        self.assertEqual(self.client.embeddings.create(model="chat", input=[1, 2, 3]).usage.prompt_tokens, 3)


class PushBack(WithMock):
    def test_the_clients_own_retry_obeys_retry_after(self):
        self.client.chat.completions.create(model="paced", messages=PROMPT)
        self.client.chat.completions.create(model="paced", messages=PROMPT)
        # A retry before the time that Retry-After states would be refused, too.
        stats = self.mock.stats("paced")
        self.assertEqual((stats["accepted"], stats["refused"], stats["refused_by_rate"]), (2, 1, 1))

    def test_a_refusal_is_a_rate_limit_error_with_the_wait_in_its_headers(self):
        with self.assertRaises(openai.RateLimitError) as caught:
            self.mock.client(max_retries=0).chat.completions.create(model="full", messages=PROMPT)
        headers = caught.exception.response.headers
        self.assertEqual((headers["retry-after"], headers["retry-after-ms"]), ("2", "1500"))
        self.assertEqual(caught.exception.code, "rate_limit_exceeded")

    def test_a_crowd_is_served_all_at_once(self):
        async def crowd():
            async with self.mock.async_client(max_retries=0) as client:
                return await asyncio.gather(*(one(client, number) for number in range(200)))

        async def one(client, number):
            messages = [{"role": "user", "content": f"berth {number} is closed"}]
            if number % 2:
                return (await client.chat.completions.create(model="chat", messages=messages)).choices[0].message.content
            stream = await client.chat.completions.create(model="chat", messages=messages, stream=True)
            return "".join([choice.delta.content or "" async for chunk in stream for choice in chunk.choices])

        answers = asyncio.run(crowd())
        self.assertTrue(all(f"berth {number}" in answer for number, answer in enumerate(answers)), answers[:3])
        stats = self.mock.stats("chat")
        self.assertEqual((stats["in_flight"], stats["accepted"] - stats["finished"]), (0, 0))
        self.assertGreater(stats["most_in_flight"], 20)

    def test_a_crowd_before_a_narrow_gate_gets_through_by_retries(self):
        async def crowd():
            async with self.mock.async_client(max_retries=100) as client:
                calls = [client.chat.completions.create(model="narrow", messages=PROMPT) for _ in range(200)]
                return await asyncio.gather(*calls)

        self.assertEqual(len(asyncio.run(crowd())), 200)
        stats = self.mock.stats("narrow")
        self.assertEqual((stats["answered"], stats["in_flight"]), (200, 0))
        self.assertLessEqual(stats["most_in_flight"], 40)


class Faults(WithMock):
    def call(self, model, **more):
        client = self.mock.client(max_retries=0, timeout=more.pop("timeout", PATIENCE_S))
        return client.chat.completions.create(model=model, messages=PROMPT, **more)

    def test_each_fault_is_the_clients_own_kind_of_error(self):
        with self.assertRaises(openai.InternalServerError) as caught:
            self.call("broken")
        self.assertEqual(caught.exception.status_code, 502)
        with self.assertRaises(openai.APITimeoutError):
            self.call("silent", timeout=0.3)
        for model, error in [("cut", openai.APIConnectionError), ("garbled", json.JSONDecodeError)]:
            with self.assertRaises(error):
                self.call(model)
            with self.assertRaises(error):
                list(self.call(model, stream=True))
            self.mock.wait_until_in_flight(model, 0)

    def test_what_is_wrong_with_a_call_is_the_clients_own_kind_of_error(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.call("nobody")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.call("chat", n=0)
        self.assertEqual(caught.exception.param, "n")

    def test_a_client_that_goes_away_frees_its_slot_at_once(self):
        stream = self.call("slow", stream=True)
        self.mock.wait_until_in_flight("slow", 1)
        stream.close()
        self.mock.wait_until_in_flight("slow", 0)

        async def give_up():
            async with self.mock.async_client(max_retries=0) as client:
                call = asyncio.ensure_future(client.chat.completions.create(model="slow", messages=PROMPT))
                await asyncio.to_thread(self.mock.wait_until_in_flight, "slow", 1)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                await asyncio.to_thread(self.mock.wait_until_in_flight, "slow", 0)

        asyncio.run(give_up())
        stats = self.mock.stats("slow")
        self.assertEqual((stats["accepted"], stats["finished"], stats["answered"]), (2, 2, 0))


class Program(unittest.TestCase):
    def test_a_key_is_asked_for_and_control_is_allowed_where_the_flags_say_so(self):
        mock = Mock("--model", "m", "--require-key", "tide", "--allow-control")
        mock.client(api_key="tide").chat.completions.create(model="m", messages=PROMPT)
        with self.assertRaises(openai.AuthenticationError):
            mock.client(api_key="ebb").chat.completions.create(model="m", messages=PROMPT)
        address = mock.base_url.removesuffix("/v1") + "/mock/models/m"
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address, data=b'{"slots": 0}')
        self.assertEqual(refused.exception.code, 401)
        refused.exception.close()
        change = urllib.request.Request(address, data=b'{"slots": 0}', headers={"authorization": "Bearer tide"})
        urllib.request.urlopen(change).close()
        with self.assertRaises(openai.RateLimitError):
            mock.client(api_key="tide", max_retries=0).chat.completions.create(model="m", messages=PROMPT)
        summary = mock.stop()
        self.assertIn("5 requests, 2 of them", summary)

    def test_an_address_that_is_taken_is_told(self):
        mock = Mock()
        address = mock.base_url.removeprefix("http://").removesuffix("/v1")
        second = subprocess.run(
            [os.environ["TIDEGATE"], "mock", "--listen", address], capture_output=True, text=True, timeout=PATIENCE_S
        )
        self.assertEqual(second.returncode, 2)
        self.assertIn(f"cannot listen on {address}", second.stderr)
        mock.stop()


if __name__ == "__main__":
    unittest.main()
