"""The fleet: builders and runners as Ray actors, their driver process, and its sharing."""
