"""What commands work on: the local database and machine, or a service."""
