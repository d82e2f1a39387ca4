"""SQL views: those that ship, and the compiler from SQL to programs that maintain views."""
