"""The fleet: builders and runners as Ray actors, the driver process that feeds them,
and how several jobs share them."""
