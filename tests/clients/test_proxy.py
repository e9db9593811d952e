"""The official OpenAI client for Python through `tidegate proxy`, before a provider that pushes back (`tidegate mock`).

Run by ./run, which sets TIDEGATE to the program. Every test names what a user of the proxy may rely on.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

import openai
from openai import AsyncOpenAI, OpenAI
from patience import PATIENCE_S, until

HERE = Path(__file__).resolve().parent
PROMPT = [{"role": "user", "content": "the breakwater lamp failed"}]
CLIENTS = 200


class Program:
    """A subcommand of tidegate that serves, as a child process."""

    def __init__(self, *arguments: str):
        command = [os.environ["TIDEGATE"], *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.base_url = line.removeprefix("listening on ").strip()
                return
        raise RuntimeError(f"{command} did not listen")

    def page(self, path: str) -> dict:
        with urllib.request.urlopen(self.base_url.removesuffix("/v1") + path) as answer:
            return json.load(answer)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE_S)


class Proxy(Program):
    def __init__(self, mock: Program, provider: str = "", rest: str = ""):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(
                f'listen = "127.0.0.1:0"\n[[providers]]\nname = "mock"\nbase_url = "{mock.base_url}"\n{provider}\n{rest}\n'
            )
            file.flush()
            super().__init__("proxy", file.name)

    def standing(self) -> tuple[int, int]:
        health = self.page("/healthz")
        return health["waiting"], health["in_flight"]

    def wait_for(self, wanted: tuple[int, int]) -> None:
        until(self.standing, lambda standing: standing == wanted)

    def client(self, kind, **settings):
        # By itself a client waits five seconds for a connection.
        return kind(**{"base_url": self.base_url, "api_key": "sk-people", "max_retries": 0, "timeout": PATIENCE_S, **settings})


class WithMock(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.mock = Program("mock", str(HERE / "pushes_back.toml"), "--listen", "127.0.0.1:0")

    @classmethod
    def tearDownClass(cls):
        cls.mock.stop()

    def refused(self, model: str = "narrow") -> int:
        return self.mock.page("/mock/stats")["models"][model]["refused"]

    def proxy(self, *settings: str) -> Proxy:
        proxy = Proxy(self.mock, *settings)
        self.addCleanup(proxy.stop)
        return proxy


class Crowds(WithMock):
    def test_two_hundred_clients_of_a_provider_that_pushes_back_see_no_429(self):
        proxy = self.proxy("max_parallel = 100")
        before = self.refused()

        async def crowd():
            async with proxy.client(AsyncOpenAI) as client:
                calls = [client.chat.completions.create(model="narrow", messages=PROMPT) for _ in range(CLIENTS)]
                return await asyncio.gather(*calls)

        answers = asyncio.run(crowd())
        self.assertEqual(len(answers), CLIENTS)
        self.assertTrue(all("lamp failed" in answer.choices[0].message.content for answer in answers))
        self.assertGreater(self.refused(), before, "it never pushed back")
        proxy.wait_for((0, 0))

    def test_tenants_share_by_weight(self):
        known = '[[tenants.known]]\nname = "people"\nweight = 3\n[[tenants.known]]\nname = "batch"'
        tenants = f'[tenants]\nby = "header:x-tenant"\n{known}'
        proxy = self.proxy("max_parallel = 64", tenants)
        before = self.refused("slow")
        done = {"people": 0, "batch": 0}

        async def ask(client, tenant):
            await client.chat.completions.create(model="slow", messages=PROMPT, extra_headers={"x-tenant": tenant})
            done[tenant] += 1

        def served():
            return sum(done.values())

        def arrived():
            return served() + sum(proxy.standing())

        async def crowd():
            async with proxy.client(AsyncOpenAI) as client:
                asking = [asyncio.create_task(ask(client, tenant)) for _ in range(CLIENTS) for tenant in done]
                # However slow the clients are to send them: from here on all calls of both tenants wait.
                await asyncio.to_thread(until, arrived, lambda count: count >= len(asking))
                first = dict(done)
                await asyncio.to_thread(until, served, lambda count: count >= sum(first.values()) + 160)
                last = dict(done)
                for task in asking:
                    task.cancel()
                await asyncio.gather(*asking, return_exceptions=True)
                return first, last

        first, last = asyncio.run(crowd())
        self.assertLess(last["people"], CLIENTS, "some of its calls wait to the end")
        share = (last["people"] - first["people"]) / (sum(last.values()) - sum(first.values()))
        self.assertAlmostEqual(share, 0.75, delta=0.04, msg=f"{first} {last}")
        self.assertGreater(self.refused("slow"), before, "it never pushed back")
        # Who was cancelled holds nothing.
        proxy.wait_for((0, 0))

    def test_a_client_that_is_killed_leaves_nothing_behind(self):
        proxy = self.proxy('max_parallel = 8\nlimit = "fixed"')
        script = (
            "import asyncio, sys\nfrom openai import AsyncOpenAI\n"
            "async def crowd():\n"
            "    client = AsyncOpenAI(base_url=sys.argv[1], api_key='none', max_retries=0, timeout=600)\n"
            f"    calls = [client.chat.completions.create(model='silent', messages={PROMPT!r}) for _ in range({CLIENTS})]\n"
            "    await asyncio.gather(*calls)\n"
            "asyncio.run(crowd())\n"
        )
        client = subprocess.Popen([sys.executable, "-c", script, proxy.base_url])
        proxy.wait_for((CLIENTS - 8, 8))
        client.send_signal(signal.SIGKILL)
        client.wait(PATIENCE_S)
        proxy.wait_for((0, 0))
        standing = proxy.page("/why")
        self.assertEqual([(group["waiting"], group["in_flight"]) for group in standing["tenants"]], [(0, 0)])


class Answers(WithMock):
    def test_an_answer_and_a_stream_are_those_of_the_provider(self):
        proxy = self.proxy()
        direct = OpenAI(base_url=self.mock.base_url, api_key="none")
        through = proxy.client(OpenAI)
        ask = {"model": "chat", "messages": PROMPT}
        expected = direct.chat.completions.create(**ask)
        answer = through.chat.completions.create(**ask)
        self.assertEqual((answer.choices, answer.usage), (expected.choices, expected.usage))
        said, pieces = "", 0
        for chunk in through.chat.completions.create(**ask, stream=True):
            for choice in chunk.choices:
                said += choice.delta.content or ""
                pieces += bool(choice.delta.content)
        self.assertEqual(said, expected.choices[0].message.content)
        self.assertGreaterEqual(pieces, len(said.split()), "the words come one after another")
        self.assertEqual({model.id for model in through.models.list()}, {model.id for model in direct.models.list()})

    def test_what_goes_wrong_is_one_of_the_clients_own_errors(self):
        proxy = self.proxy('serves = ["s*"]\nmax_parallel = 1', "[queue]\nmax_waiting = 1")
        client = proxy.client(OpenAI)

        def ask(model, **headers):
            return client.chat.completions.create(model=model, messages=PROMPT, extra_headers=headers, timeout=PATIENCE_S)

        with self.assertRaises(openai.NotFoundError) as unknown:
            ask("chat")
        self.assertEqual(unknown.exception.code, "model_not_found")
        with self.assertRaises(openai.APITimeoutError):
            client.chat.completions.create(model="silent", messages=PROMPT, timeout=0.05)
        proxy.wait_for((0, 0))

        async def full():
            async with proxy.client(AsyncOpenAI) as crowd:
                calls = [asyncio.create_task(crowd.chat.completions.create(model="silent", messages=PROMPT)) for _ in "ab"]
                await asyncio.to_thread(proxy.wait_for, (1, 1))
                try:
                    with self.assertRaises(openai.RateLimitError) as refused:
                        await crowd.chat.completions.create(model="silent", messages=PROMPT)
                    self.assertEqual(refused.exception.code, "tidegate_queue_full")
                    self.assertGreaterEqual(int(refused.exception.response.headers["retry-after"]), 1)
                finally:
                    for call in calls:
                        call.cancel()
                    await asyncio.gather(*calls, return_exceptions=True)

        asyncio.run(full())
        proxy.wait_for((0, 0))

    def test_a_deadline_of_the_clients_own_is_kept_and_says_what_it_waited_for(self):
        proxy = self.proxy("max_parallel = 1")

        async def late():
            async with proxy.client(AsyncOpenAI) as client:
                ask = client.chat.completions.create
                held = asyncio.create_task(ask(model="silent", messages=PROMPT))
                await asyncio.to_thread(proxy.wait_for, (0, 1))
                with self.assertRaises(openai.InternalServerError) as error:
                    await ask(model="silent", messages=PROMPT, extra_headers={"x-tidegate-timeout": "100ms"})
                held.cancel()
                await asyncio.gather(held, return_exceptions=True)
                return error.exception

        error = asyncio.run(late())
        self.assertEqual((error.status_code, error.code), (503, "tidegate_deadline"))
        self.assertIn("the maximum of 1 concurrent calls is reached", error.message)


if __name__ == "__main__":
    unittest.main()
