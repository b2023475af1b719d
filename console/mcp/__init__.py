"""The MCP server: agents read the state of a proxy and send its commands."""
