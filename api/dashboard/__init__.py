"""The dashboard: server-rendered pages over the same database as the API, with small
islands of script, all from the package."""
