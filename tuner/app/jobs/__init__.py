"""Jobs from the outside: queued, run, continued, cancelled, and what is kept of them."""
