"""Commands for operators, built on the public names of the core.

Each folder is a plugin of the command `hpml`: its `__init__` adds its commands by the hook
`hpml_commands` and imports nothing heavy; `command.py` is imported when the command is called.
"""
