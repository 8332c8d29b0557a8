"""A small server on FastMCP: fastmcp_server.py http PORT | stdio"""

import sys

from fastmcp import Context, FastMCP

server = FastMCP("fastmcp-server")


@server.tool
def add(a: int, b: int) -> int:
    """Adds two integers of any size."""
    return a + b


@server.tool
async def slow(steps: int, ctx: Context) -> str:
    """Reports progress on each step."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps)
    return f"{steps} steps"


@server.tool
def fail() -> str:
    """Always fails."""
    raise ValueError("this tool fails")


@server.resource("memo://today")
def today() -> str:
    """A memo."""
    return "buy milk"


@server.resource("memo://of/{day}")
def of(day: str) -> str:
    """The memo of a day."""
    return f"nothing on {day}"


@server.prompt
def greet(name: str) -> str:
    """A greeting."""
    return f"Please greet {name}."


if sys.argv[1] == "http":
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
else:
    server.run(transport="stdio", show_banner=False)
