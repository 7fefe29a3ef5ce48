"""Other tuners' ends of this service."""
