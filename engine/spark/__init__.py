"""Programs on Spark: sessions, the moving of blocks between workers, and jobs over files and logs."""
