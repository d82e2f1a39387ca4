"""A durable segmented log of records, which knows nothing of what they hold."""
