"""The edge: values, rows, polars frames and Arrow columns, to and from the words of runtimes."""
