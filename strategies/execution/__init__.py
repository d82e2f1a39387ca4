"""Orders through an execution client; the one that ships simulates an exchange over the recorded market."""
