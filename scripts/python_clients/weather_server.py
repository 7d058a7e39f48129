"""An MCP server over standard input and output, by the library of the protocol's own project, with one tool."""
from mcp.server import MCPServer

server = MCPServer("desk")


@server.tool()
def get_weather(city: str) -> str:
    """Get the current weather of a city"""
    return f'{{"city": "{city}", "temperature_c": 21, "condition": "sunny"}}'


server.run()
