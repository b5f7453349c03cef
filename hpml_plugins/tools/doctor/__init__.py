"""What this node has, what is broken, and how to fix it."""
