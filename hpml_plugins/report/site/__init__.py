"""The published pages: ours, and asv's pages adapted to work offline."""
