"""From SQL texts to the bound catalog: names resolved, types known, bad SQL refused with its place."""
