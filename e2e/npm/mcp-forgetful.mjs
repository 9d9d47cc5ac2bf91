// An MCP host on the official SDK that forgets its servers: it opens one after the other and closes none, as hosts do on a
// retry, an edited configuration, a subagent's end or a reconnect. It does what the lines on its stdin say. Each fact is a
// line on stdout, a word and what belongs to it.
//
//	node mcp-forgetful.mjs ENV COMMAND [ARG...]
//
// ENV is a JSON object: the SDK hands on few variables of its own, and these.

import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [env, command, ...args] = process.argv.slice(2);
const say = (word, fact) => console.log(word, typeof fact === 'object' ? JSON.stringify(fact) : fact);
const always = { timeout: 2 ** 31 - 1 };
let servers = 0;
let live; // the one that this host remembers

async function open() {
  const name = ++servers;
  const transport = new StdioClientTransport({ command, args, env: JSON.parse(env) });
  const client = new Client({ name: 'fini-e2e', version: '0' });
  await client.connect(transport, always);
  transport._process.on('close', (code, signal) => say('ended', `${name} ${code ?? signal}`));
  live = client;
  if (name === 1) say('started', transport.pid);
  const { tools } = await client.listTools();
  await client.callTool({ name: 'echo', arguments: { message: 'hello' } }, undefined, always);
  return tools.map(tool => tool.name);
}

const words = {
  open: async () => {
    await open();
    say('opened', servers);
  },
  // A call that the host gives up.
  abort: async () => {
    const call = new AbortController();
    const long = { name: 'trigger-long-running-operation', arguments: { duration: 1, steps: 1 } };
    const given = live.callTool(long, undefined, { ...always, signal: call.signal }).catch(() => say('aborted', servers));
    await live.ping(always);
    call.abort();
    await given;
  },
  // Pings in turn, each after up to pause ms. The gap is the time in which the server may have had nothing to do.
  ping: async ({ count, pause }) => {
    let last = performance.now();
    for (let i = 0; i < count; i++) {
      await sleep(Math.random() * pause);
      const before = performance.now();
      try {
        await live.ping(always);
      } catch (error) {
        return say('cut', { ping: i, gap: performance.now() - last });
      }
      last = before;
    }
    say('pinged', count);
  },
  close: async () => {
    await live.close();
    say('closed', servers);
  },
};

const input = createInterface({ input: process.stdin });
let turn = Promise.resolve();
input.on('line', line => {
  const [, word, params] = /^(\w+) ?(.*)$/.exec(line);
  turn = turn.then(() => words[word](params && JSON.parse(params))).catch(error => say('failed', error.message));
});
input.on('close', () => process.exit()); // the test is gone

say('ready', { tools: await open() });
