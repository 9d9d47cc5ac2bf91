// An MCP server on the official SDK that misbehaves as servers do, each way by a flag:
//
//	--timer          goes on after the end of stdin
//	--ignore-term    ignores SIGTERM
//	--helper=stdout  has a helper in a session of its own that holds stdout
//	--helper=none    has one that holds no stream at all

import { spawn } from 'node:child_process';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const flags = process.argv.slice(2);
if (flags.includes('--timer')) setInterval(() => {}, 1000);
if (flags.includes('--ignore-term')) process.on('SIGTERM', () => {});
const helper = flags.find(flag => flag.startsWith('--helper='));
if (helper) {
  const stdout = helper.endsWith('stdout') ? 'inherit' : 'ignore';
  const child = spawn('sleep', ['1000'], { detached: true, stdio: ['ignore', stdout, 'ignore'] });
  await new Promise(resolve => child.on('spawn', resolve));
  child.unref();
}

const server = new Server({ name: 'misbehaving', version: '0' }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, () => ({
  tools: [{ name: 'echo', inputSchema: { type: 'object', properties: { message: { type: 'string' } } } }],
}));
server.setRequestHandler(CallToolRequestSchema, ({ params }) => ({
  content: [{ type: 'text', text: 'Echo: ' + params.arguments.message }],
}));
await server.connect(new StdioServerTransport());
