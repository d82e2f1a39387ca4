"""M3 as text: printed, parsed, checked, and linked to views in SQL."""
