// A conversation with the fixture through the TypeScript SDK, version 1: node typescript-v1.mjs URL [PREFIX]
// Prints one line of JSON about what came back; the test compares it with what the fixture gives.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema, LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { answer, converse } from './conversation.mjs';

const [url, prefix = ''] = process.argv.slice(2);
const client = new Client({ name: 'typescript-v1', version: '1' }, { capabilities: { elicitation: {} } });
const transport = new StreamableHTTPClientTransport(new URL(url));
const logs = [];
client.setRequestHandler(ElicitRequestSchema, async request => answer(request.params));
client.setNotificationHandler(LoggingMessageNotificationSchema, note => { logs.push(note.params.data); });
await client.connect(transport);
const call = (params, options) => client.callTool(params, undefined, options);
const seen = await converse({ client, call, logs, prefix, protocol: () => transport.protocolVersion });
await transport.terminateSession();
await client.close();
console.log(JSON.stringify(seen));
