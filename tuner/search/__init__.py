"""Search strategies: which configs are measured next. One table lists them."""
