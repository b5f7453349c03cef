"""Several processes that measure together: started, each in its place, timed as one, and the one that fails named."""
