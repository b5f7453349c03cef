"""Commands for operators, built on the public names of the core: cluster, bundle, check, doctor,
scaffold."""
