"""Orders through execution clients: an exchange simulated over the recorded market, and gateways to venues."""
