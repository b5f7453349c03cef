"""`hpml init`: what a git repository needs to measure its own commits."""
