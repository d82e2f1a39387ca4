-- Best bid and ask of each symbol over all venues whose books are valid, and the venue of each; venues that
-- tie have a row each. spread is what buying at the ask and selling at the bid earns a unit, before fees:
-- above 0 where the venues cross.

-- The touch of each venue's book, so that what follows sees it only when it changes.
CREATE VIEW venue_bid AS SELECT venue, symbol, MAX(price) AS price FROM bids GROUP BY venue, symbol;

CREATE VIEW venue_ask AS SELECT venue, symbol, MIN(price) AS price FROM asks GROUP BY venue, symbol;

CREATE VIEW valid_bid AS
SELECT b.venue, b.symbol, b.price
FROM venue_bid b JOIN book_states s ON s.venue = b.venue AND s.symbol = b.symbol
WHERE s.state = 'valid';

CREATE VIEW valid_ask AS
SELECT a.venue, a.symbol, a.price
FROM venue_ask a JOIN book_states s ON s.venue = a.venue AND s.symbol = a.symbol
WHERE s.state = 'valid';

CREATE VIEW best_bid AS
SELECT b.symbol, b.venue, b.price FROM valid_bid b
WHERE b.price = (SELECT MAX(x.price) FROM valid_bid x WHERE x.symbol = b.symbol);

CREATE VIEW best_ask AS
SELECT a.symbol, a.venue, a.price FROM valid_ask a
WHERE a.price = (SELECT MIN(x.price) FROM valid_ask x WHERE x.symbol = a.symbol);

CREATE VIEW arbitrage AS
SELECT b.symbol, b.venue AS bid_venue, b.price AS bid, a.venue AS ask_venue, a.price AS ask,
       b.price - a.price AS spread
FROM best_bid b JOIN best_ask a ON a.symbol = b.symbol;
