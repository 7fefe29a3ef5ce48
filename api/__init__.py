"""The REST API: routes by noun, schemas, problems, authentication; the dashboard."""
