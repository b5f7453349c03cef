"""The published pages: ours, and asv's site made complete offline."""
