"""`python -m hpml_plugins` is the command `hpml`."""

from hpml_plugins.cli import main

if __name__ == "__main__":
    main()
