"""How clients receive and ask: streams of view events, futures, cubes, and SQL over a snapshot."""
