"""What plugins share and the core does not know: data sets and operation counting."""
