"""Orders through execution clients: an exchange simulated over the recorded market, or a venue's gateway."""
