"""A run: from its configuration and feeds through books and views to strategies."""
