"""Several processes that measure jointly: started, each in its place, timed as one, and the one
that fails named."""
