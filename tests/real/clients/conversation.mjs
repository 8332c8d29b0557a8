// What both TypeScript clients talk about with the fixture.
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
  await client.setLoggingLevel('debug');
  await call({ name: name('test_tool_with_logging'), arguments: {} });
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
    logs,
    completed: completed.completion.values,
  };
}
