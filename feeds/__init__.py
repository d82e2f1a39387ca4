"""Market data of live exchanges, files, recordings and databases, as events and changes in order."""
