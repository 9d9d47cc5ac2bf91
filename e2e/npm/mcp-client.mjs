// An MCP host on the official SDK: it starts a server, and does what the lines on its stdin
// say. Each fact is a line on stdout, a word and what belongs to it.
//
//	node mcp-client.mjs ENV COMMAND [ARG...]
//
// ENV is a JSON object: the SDK hands on few variables of its own, and these.

import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [env, command, ...args] = process.argv.slice(2);
const say = (word, fact) => console.log(word, typeof fact === 'object' ? JSON.stringify(fact) : fact);

class Transport extends StdioClientTransport {
  async start() {
    await super.start();
    // The SDK keeps the exit status to itself. Node says "close" once the process has
    // ended and its stdout has, too.
    this.ended = new Promise(resolve => {
      this._process.on('close', (code, signal) => resolve(code ?? signal));
    });
    say('started', this.pid);
  }
}

const transport = new Transport({ command, args, env: JSON.parse(env) });
const client = new Client({ name: 'fini-e2e', version: '0' });

async function end() {
  say('ended', await transport.ended);
  process.exit();
}

const words = {
  call: async params => say('result', await client.callTool(params, undefined, { timeout: 2 ** 31 - 1 })),
  close: async () => {
    client.onclose = undefined; // the end is what was asked for
    const start = performance.now();
    await client.close();
    say('closed', performance.now() - start);
    await end();
  },
};

const input = createInterface({ input: process.stdin });
input.on('line', line => {
  const [, word, params] = /^(\w+) ?(.*)$/.exec(line);
  words[word](params && JSON.parse(params)).catch(error => say('failed', error.message));
});
input.on('close', () => process.exit()); // the test is gone

await client.connect(transport, { timeout: 2 ** 31 - 1 });
client.onclose = end;
const { tools } = await client.listTools();
say('ready', { server: client.getServerVersion().name, tools: tools.map(tool => tool.name) });
