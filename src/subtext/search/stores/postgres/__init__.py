"""A search index in PostgreSQL with pgvector, for archives that many processes and machines share.

Importing anything here needs the extra "postgres"; `stores.store` says so where it is missing.
"""
