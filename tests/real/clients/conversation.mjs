// What both TypeScript clients talk about with the fixture.

// What the user types into a form: the same under every name.
const WORDS = { username: 'ada', email: 'ada@example.org', name: 'ada', color: 'blue' };

export const answer = params => {
  const wanted = Object.keys(params.requestedSchema?.properties ?? {});
  return { action: 'accept', content: Object.fromEntries(wanted.map(name => [name, WORDS[name]])) };
};

export async function converse({ client, call, logs, prefix, protocol }) {
  const name = tool => prefix + tool;
  const tools = (await client.listTools()).tools.map(tool => tool.name);
  const echo = await call({ name: name('echo'), arguments: { message: 'hällo' } });
  const failed = await call({ name: name('test_error_handling'), arguments: {} });
  let refused;
  try {
    const answer = await call({ name: name('no_such_tool'), arguments: {} });
    refused = answer.isError === true;
  } catch (error) {
    refused = typeof error.code === 'number';
  }
  const resources = (await client.listResources()).resources.map(resource => resource.uri);
  const read = await client.readResource({ uri: 'test://static-text' });
  const template = await client.readResource({ uri: 'test://template/7/data' });
  const prompts = (await client.listPrompts()).prompts.map(prompt => prompt.name);
  const prompt = await client.getPrompt({ name: name('test_prompt_with_arguments'), arguments: { arg1: 'one', arg2: 'two' } });
  const progress = [];
  await call({ name: name('test_tool_with_progress'), arguments: {} }, { onprogress: note => progress.push(note.progress) });
  const elicited = await call({ name: name('test_elicitation'), arguments: { message: 'Who are you?' } });
  const twice = await call({ name: name('test_input_required_result_multi_round'), arguments: {} });
  // Without sessions, each request says for itself what it wants to hear.
  const modern = protocol() >= '2026';
  const _meta = modern ? { 'io.modelcontextprotocol/logLevel': 'debug' } : undefined;
  if (!modern) await client.setLoggingLevel('debug');
  await call({ name: name('test_tool_with_logging'), arguments: {}, ...(_meta && { _meta }) });
  await new Promise(resolve => setTimeout(resolve, 300));
  const completed = await client.complete({
    ref: { type: 'ref/prompt', name: name('test_prompt_with_arguments') }, argument: { name: 'arg1', value: 'par' },
  });
  return {
    protocol: protocol(),
    tools: tools.length,
    has_echo: tools.includes(name('echo')),
    echo: echo.content[0].text,
    failed: failed.isError === true,
    refused,
    resources: resources.length,
    read: read.contents[0].text,
    template: JSON.parse(template.contents[0].text).id,
    prompts: prompts.length,
    prompt: prompt.messages[0].content.text,
    progress,
    elicited: elicited.content[0].text,
    twice: twice.content[0].text,
    logs,
    completed: completed.completion.values,
  };
}
