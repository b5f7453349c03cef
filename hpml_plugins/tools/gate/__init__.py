"""`hpml gate`: two commits measured in turns on this machine, and a verdict on the difference."""
