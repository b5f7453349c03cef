"""The fixture `bench` of `hpml_plugins.testing`: measured in a test, compared with the stored
history."""
