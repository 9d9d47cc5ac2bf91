// An MCP host on the official SDK: it starts a server, and does what the lines on its stdin
// say. Each fact is a line on stdout, a word and what belongs to it.
//
//	node mcp-client.mjs ENV COMMAND [ARG...]
//
// ENV is a JSON object: the SDK hands on few variables of its own, and these.
//
//	FORGETFUL=1      it can open one server after the other, closes none, and goes on when one ends
//	SERVER_STDERR=4  the descriptor is the servers' standard error, and it keeps no copy

import { closeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [env, command, ...args] = process.argv.slice(2);
const forgetful = process.env.FORGETFUL === '1';
const stderr = process.env.SERVER_STDERR ? Number(process.env.SERVER_STDERR) : 'inherit';
const say = (word, fact) => console.log(word, typeof fact === 'object' ? JSON.stringify(fact) : fact);
const always = { timeout: 2 ** 31 - 1 };
let servers = 0;
let live; // the client of the server that this host remembers

class Transport extends StdioClientTransport {
  async start() {
    await super.start();
    if (stderr !== 'inherit') closeSync(stderr);
    // The SDK keeps to itself what it sends the server, and how that ended. Node says "close" once the process has
    // ended and its stdout has, too.
    const server = this._process;
    const kill = server.kill.bind(server);
    server.kill = signal => {
      say('sent', signal);
      return kill(signal);
    };
    this.ended = new Promise(resolve => server.on('close', (code, signal) => resolve(code ?? signal)));
    if (servers === 1) say('started', this.pid);
  }
}

async function end(transport) {
  say('ended', await transport.ended);
  process.exit();
}

async function open() {
  const name = ++servers;
  const transport = new Transport({ command, args, env: JSON.parse(env), stderr });
  const client = new Client({ name: 'fini-e2e', version: '0' });
  await client.connect(transport, always);
  if (forgetful) transport.ended.then(how => say('ended', `${name} ${how}`));
  else client.onclose = () => end(transport);
  live = client;
  const { tools } = await client.listTools(undefined, always);
  if (forgetful) await client.callTool({ name: 'echo', arguments: { message: 'hello' } }, undefined, always);
  return { server: client.getServerVersion().name, tools: tools.map(tool => tool.name) };
}

const words = {
  call: async params => say('result', await live.callTool(params, undefined, always)),
  // Ends the server's stdin, and signals it after 2 s and after 4 s.
  close: async () => {
    live.onclose = undefined; // the end is what was asked for
    const { transport } = live;
    const start = performance.now();
    await live.close();
    say('closed', performance.now() - start);
    if (!forgetful) await end(transport);
  },
  // The first of these steps alone.
  end: async () => live.transport._process.stdin.end(),
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
  // Pings in turn, each after up to pause ms. A gap is the time in which the server may have had nothing to do. A busy machine
  // may come to end the server only after a ping or two that follow a long one.
  ping: async ({ count, pause }) => {
    let last = performance.now();
    const gaps = [];
    for (let i = 0; i < count; i++) {
      await sleep(Math.random() * pause);
      const before = performance.now();
      gaps.push(before - last);
      try {
        await live.ping(always);
      } catch (error) {
        return say('cut', { ping: i, gap: Math.max(performance.now() - last, ...gaps.slice(-3)) });
      }
      last = before;
    }
    say('pinged', count);
  },
};

const input = createInterface({ input: process.stdin });
let turn = Promise.resolve();
input.on('line', line => {
  const [, word, params] = /^(\w+) ?(.*)$/.exec(line);
  const next = () => words[word](params && JSON.parse(params)).catch(error => say('failed', error.message));
  turn = forgetful ? turn.then(next) : next(); // a call may be in flight when the next word comes
});
input.on('close', () => process.exit()); // the test is gone

say('ready', await open());
