"""The processes of a service: API, orchestrator, and workers that join a cluster."""
