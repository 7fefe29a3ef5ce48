"""What commands work on: the database and the machine they run on, or a service somewhere else."""
