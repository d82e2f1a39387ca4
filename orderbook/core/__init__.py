"""What everything else is built on: errors, options, files, clocks, and compiled code."""
