"""Statistics of stored values, without pages: what commands, the site and documents judge by."""
