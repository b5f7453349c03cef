"""The built-in plugins. Each folder is one, uses only the public names of `hpml_plugins`, and can
be deleted alone."""
