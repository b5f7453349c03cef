"""`hpml pull`: results of another repository, as those of a named source."""
