// A conversation with the fixture through the TypeScript client, version 2: node typescript-v2.mjs URL [PREFIX [MODE]]
// MODE `auto` asks for revision 2026-07-28 first; without it, the client only knows those with sessions.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { answer, converse } from './conversation.mjs';

const [url, prefix = '', mode] = process.argv.slice(2);
const options = { capabilities: { elicitation: {} }, ...(mode ? { versionNegotiation: { mode } } : {}) };
const client = new Client({ name: 'typescript-v2', version: '1' }, options);
const transport = new StreamableHTTPClientTransport(new URL(url));
const logs = [];
client.setRequestHandler('elicitation/create', async request => answer(request.params));
client.setNotificationHandler('notifications/message', note => { logs.push(note.params.data); });
await client.connect(transport);
const call = (params, options) => client.callTool(params, options);
const seen = await converse({ client, call, logs, prefix, protocol: () => transport.protocolVersion });
await transport.terminateSession?.();
await client.close();
console.log(JSON.stringify(seen));
