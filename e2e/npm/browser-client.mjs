// An MCP client as its users write it, with the SDK's own transport. The server's command
// line and environment, and the calls to make, come as JSON in the first argument. Each
// thing that happens is a line on stdout; a line on stdin says what to do next.

import childProcess from "node:child_process";
import { closeSync } from "node:fs";
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const { argv, env, calls } = JSON.parse(process.argv[2]);
const say = (...words) => console.log(...words);

// The transport tells neither how the server ended nor what it was sent; its spawn does.
let server;
const spawn = childProcess.spawn;
childProcess.spawn = (...args) => {
  server = spawn(...args);
  const kill = server.kill.bind(server);
  server.kill = (signal) => {
    say("sent", signal);
    return kill(signal);
  };
  server.once("exit", (code, signal) => say("exited", signal ?? code));
  server.once("close", () => say("hung up")); // the SDK's onclose
  return server;
};

// The server's stderr is a pipe of the test's, which this client does not keep.
const stderr = 4;
const transport = new StdioClientTransport({ command: argv[0], args: argv.slice(1), env, stderr });
const client = new Client({ name: "fini-e2e", version: "0" });
const connected = client.connect(transport, { timeout: 2 ** 31 - 1 });
closeSync(stderr);
await connected;
say("connected", transport.pid);

for (const call of calls) {
  const { content, isError } = await client.callTool(call, undefined, { timeout: 2 ** 31 - 1 });
  const text = content.map((part) => part.text ?? "").join("");
  say(isError ? "refused" : "answered", JSON.stringify(text));
}
say("ready");

for await (const line of createInterface({ input: process.stdin })) {
  switch (line) {
    case "close": // ends the server's stdin, and signals it after 2 s and after 4 s
      await client.close();
      say("closed");
      break;
    case "end": // the first of these steps alone
      server.stdin.end();
      break;
    case "exit":
      process.exit();
  }
}
