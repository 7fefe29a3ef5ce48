"""What differs between kinds of target: one object each, in one table."""
