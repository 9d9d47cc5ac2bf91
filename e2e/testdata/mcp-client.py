"""An MCP host that ends its server as the Python SDK does. It is told by lines on its
stdin what to do, and each fact is a line on stdout, a word and what belongs to it.

    python3 mcp-client.py FORM ENV COMMAND [ARG...]

FORM is what the server's stdin and stdout are: "asyncio" makes them, a "pipe" each, or a
"socketpair" each, as uvloop has it. ENV is a JSON object of further variables.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time

LIMIT = 1 << 24  # of a line
PATIENCE = 2.0  # the SDK's, for the end of stdin and for SIGTERM
tasks = set()  # the loop itself holds no task


def task(work):
    async def tell():
        try:
            await work
        except Exception as error:
            say("failed", repr(error))
            raise

    made = asyncio.create_task(tell())
    tasks.add(made)
    return made


def say(word, fact):
    print(word, json.dumps(fact) if isinstance(fact, dict) else fact, flush=True)


async def reader_of(pipe):
    reader = asyncio.StreamReader(limit=LIMIT)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


async def writer_of(pipe):
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def start(form, argv, env):
    options = {"start_new_session": True, "env": env}
    if form == "asyncio":
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, limit=LIMIT, **options)
        return process, process.stdout, process.stdin
    if form == "pipe":
        (stdin, our_stdin), (our_stdout, stdout) = (map(os.fdopen, os.pipe(), ("rb", "wb")) for _ in range(2))
    else:
        (stdin, our_stdin), (our_stdout, stdout) = socket.socketpair(), socket.socketpair()
    process = await asyncio.create_subprocess_exec(*argv, stdin=stdin, stdout=stdout, **options)
    stdin.close()
    stdout.close()
    return process, await reader_of(our_stdout), await writer_of(our_stdin)


class Client:
    def __init__(self, process, reader, writer):
        self.process, self.reader, self.writer = process, reader, writer
        self.calls, self.answers = 0, {}
        self.closing = False
        self.over = task(self.read())

    async def read(self):
        """Reads to the end of the server's stdout."""
        with contextlib.suppress(ConnectionError):
            while line := await self.reader.readline():
                message = json.loads(line)
                if "method" not in message:
                    self.answers.pop(message["id"]).set_result(message)
        if not self.closing:
            await self.end()

    def send(self, **message):
        self.writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def request(self, method, params):
        self.calls += 1
        self.answers[self.calls] = answer = asyncio.get_running_loop().create_future()
        self.send(id=self.calls, method=method, params=params)
        message = await answer
        if "result" not in message:
            raise RuntimeError(f"{method}: {message}")
        return message["result"]

    async def open(self):
        hello = await self.request("initialize", {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "fini-e2e", "version": "0"},
        })
        self.send(method="notifications/initialized")
        listed = await self.request("tools/list", {})
        say("ready", {"server": hello["serverInfo"]["name"], "tools": [tool["name"] for tool in listed["tools"]]})

    async def call(self, params):
        say("result", await self.request("tools/call", params))

    async def close(self, _):
        self.closing = True
        began = time.monotonic()
        self.writer.close()
        try:
            await asyncio.wait_for(self.process.wait(), PATIENCE)
        except asyncio.TimeoutError:
            await self.terminate()
        say("closed", (time.monotonic() - began) * 1000)
        await self.over
        await self.end()

    async def terminate(self):
        """SIGTERM and SIGKILL to the process group, which is the server's alone."""
        with contextlib.suppress(ProcessLookupError):
            group = os.getpgid(self.process.pid)
            os.killpg(group, signal.SIGTERM)
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                os.killpg(group, 0)  # it is there
                await asyncio.sleep(0.1)
            os.killpg(group, signal.SIGKILL)

    async def end(self):
        status = await self.process.wait()
        say("ended", status if status >= 0 else signal.Signals(-status).name)
        os._exit(0)


async def main(form, env, *argv):
    # A Ctrl-C between Python's look for signals and its wait for events would wait for the next event. With any handler of
    # the loop's own, each signal is an event.
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, lambda: None)
    # The SDK hands on few variables of its own, too.
    names = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    process, reader, writer = await start(form, argv, inherited | json.loads(env))
    say("started", process.pid)
    client = Client(process, reader, writer)
    task(client.open())
    commands = await reader_of(sys.stdin)
    while line := await commands.readline():
        word, _, params = line.decode().strip().partition(" ")
        task(getattr(client, word)(json.loads(params) if params else None))
    os._exit(0)  # the test is gone


asyncio.run(main(*sys.argv[1:]))
