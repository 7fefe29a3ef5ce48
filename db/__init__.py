"""The database: schema, transactions, queries by noun."""
