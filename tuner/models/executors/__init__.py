"""How models are linked, run and timed on each kind of target."""
