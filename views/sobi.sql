-- Static order book imbalance: how near the best :k of each side's volume stands to the mid, by symbol.
-- Source: "DBToaster: Agile Views in a Dynamic Data Management System" (CIDR 2011), example 1.1, as a
-- true VWAP; COALESCE takes the volume ahead of the best level as 0, so that the level counts.

-- best: the touch, where no volume stands ahead.
CREATE VIEW bid_vwap AS
SELECT b.symbol,
       SUM(b.price * b.volume) / SUM(b.volume) AS vwap,
       (SELECT AVG(t.price) FROM bids t WHERE t.symbol = b.symbol
           AND 0 >= (SELECT COALESCE(SUM(x.volume), 0) FROM bids x WHERE x.symbol = t.symbol AND x.price > t.price)
       ) AS best
FROM bids b
WHERE :k * (SELECT SUM(t.volume) FROM bids t WHERE t.symbol = b.symbol)
    > (SELECT COALESCE(SUM(x.volume), 0) FROM bids x WHERE x.symbol = b.symbol AND x.price > b.price)
GROUP BY b.symbol;

CREATE VIEW ask_vwap AS
SELECT a.symbol,
       SUM(a.price * a.volume) / SUM(a.volume) AS vwap,
       (SELECT AVG(t.price) FROM asks t WHERE t.symbol = a.symbol
           AND 0 >= (SELECT COALESCE(SUM(x.volume), 0) FROM asks x WHERE x.symbol = t.symbol AND x.price < t.price)
       ) AS best
FROM asks a
WHERE :k * (SELECT SUM(t.volume) FROM asks t WHERE t.symbol = a.symbol)
    > (SELECT COALESCE(SUM(x.volume), 0) FROM asks x WHERE x.symbol = a.symbol AND x.price < a.price)
GROUP BY a.symbol;

-- The ratio of the two VWAPs stays below 1 while the book is not crossed, and tells its width. Pressure, the
-- ratio of their distances from the mid, tells its direction: above 1 the bids press, below 1 the asks.
CREATE VIEW sobi AS
SELECT b.symbol, b.vwap AS bid_vwap, a.vwap AS ask_vwap, b.vwap / a.vwap AS ratio,
       (2 * a.vwap - a.best - b.best) / (a.best + b.best - 2 * b.vwap) AS pressure
FROM bid_vwap b JOIN ask_vwap a ON a.symbol = b.symbol;
