"""Programs on Spark: sessions, the shuffle of blocks between workers, and jobs over files and logs."""
