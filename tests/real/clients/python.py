"""A conversation with the fixture through the Python client: python.py URL [PREFIX [MODE]]

The default mode, `auto`, asks for revision 2026-07-28 first; `legacy` only knows revisions with sessions.
"""

import asyncio
import json
import sys

from mcp import Client
from mcp import types


# What the user types into a form: the same under every name.
WORDS = {"username": "ada", "email": "ada@example.org", "name": "ada", "color": "blue"}


async def main(url: str, prefix: str = "", mode: str = "auto") -> None:
    logs = []
    progress = []

    async def elicit(_context, params):
        wanted = params.requested_schema["properties"]
        return types.ElicitResult(action="accept", content={name: WORDS[name] for name in wanted})

    async def log(params):
        logs.append(params.data)

    async def on_progress(value, _total, _message):
        progress.append(value)

    callbacks = {"elicitation_callback": elicit, "logging_callback": log}
    async with Client(url, mode=mode, log_level="debug", **callbacks) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        echo = await client.call_tool(prefix + "echo", {"message": "hällo"})
        failed = await client.call_tool(prefix + "test_error_handling", {})
        try:
            refused = (await client.call_tool(prefix + "no_such_tool", {})).is_error
        except Exception as error:  # the client's own class for a JSON-RPC error is not what is tested
            refused = "no_such_tool" in str(error) or bool(str(error))
        resources = (await client.list_resources()).resources
        read = await client.read_resource("test://static-text")
        template = await client.read_resource("test://template/7/data")
        prompts = (await client.list_prompts()).prompts
        prompt = await client.get_prompt(prefix + "test_prompt_with_arguments", {"arg1": "one", "arg2": "two"})
        await client.call_tool(prefix + "test_tool_with_progress", {}, progress_callback=on_progress)
        elicited = await client.call_tool(prefix + "test_elicitation", {"message": "Who are you?"})
        twice = await client.call_tool(prefix + "test_input_required_result_multi_round", {})
        if mode == "legacy":
            await client.set_logging_level("debug")
        await client.call_tool(prefix + "test_tool_with_logging", {})
        await asyncio.sleep(0.3)
        reference = types.PromptReference(name=prefix + "test_prompt_with_arguments")
        completed = await client.complete(reference, {"name": "arg1", "value": "par"})
        seen = {
            "protocol": str(client.protocol_version),
            "tools": len(tools),
            "has_echo": prefix + "echo" in tools,
            "echo": echo.content[0].text,
            "failed": bool(failed.is_error),
            "refused": bool(refused),
            "resources": len(resources),
            "read": read.contents[0].text,
            "template": json.loads(template.contents[0].text)["id"],
            "prompts": len(prompts),
            "prompt": prompt.messages[0].content.text,
            "progress": progress,
            "elicited": elicited.content[0].text,
            "twice": twice.content[0].text,
            "logs": logs,
            "completed": completed.completion.values,
        }
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:]))
