"""`hpml mcp`: results for language models, over the Model Context Protocol."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "mcp",
        "hpml_plugins.tools.mcp_server.server:command",
        "Serve the results to a language model, over the Model Context Protocol.",
    ),
)
