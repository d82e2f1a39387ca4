-- Static order book imbalance (SOBI): where the best :k of each side's volume stands against the mid.
-- Source: DBToaster: Agile Views in a Dynamic Data Management System (CIDR 2011), example 1.1, as a
-- true VWAP, and with the volume ahead of the best level taken as 0, so that the best level counts.

CREATE VIEW bid_vwap AS
SELECT b.symbol, SUM(b.price * b.volume) / SUM(b.volume) AS vwap
FROM bids b
WHERE :k * (SELECT SUM(t.volume) FROM bids t WHERE t.symbol = b.symbol)
    > (SELECT COALESCE(SUM(x.volume), 0) FROM bids x WHERE x.symbol = b.symbol AND x.price > b.price)
GROUP BY b.symbol;

CREATE VIEW ask_vwap AS
SELECT a.symbol, SUM(a.price * a.volume) / SUM(a.volume) AS vwap
FROM asks a
WHERE :k * (SELECT SUM(t.volume) FROM asks t WHERE t.symbol = a.symbol)
    > (SELECT COALESCE(SUM(x.volume), 0) FROM asks x WHERE x.symbol = a.symbol AND x.price < a.price)
GROUP BY a.symbol;

-- The touch: the price that no volume is ahead of.
CREATE VIEW best_bid AS
SELECT b.symbol, AVG(b.price) AS price
FROM bids b
WHERE 0 >= (SELECT COALESCE(SUM(x.volume), 0) FROM bids x WHERE x.symbol = b.symbol AND x.price > b.price)
GROUP BY b.symbol;

CREATE VIEW best_ask AS
SELECT a.symbol, AVG(a.price) AS price
FROM asks a
WHERE 0 >= (SELECT COALESCE(SUM(x.volume), 0) FROM asks x WHERE x.symbol = a.symbol AND x.price < a.price)
GROUP BY a.symbol;

CREATE VIEW mid AS
SELECT b.symbol, (b.price + a.price) / 2 AS price
FROM best_bid b JOIN best_ask a ON a.symbol = b.symbol;

-- pressure above 1: the bids' volume stands nearer to the mid than the asks'; below 1 the reverse.
CREATE VIEW sobi AS
SELECT b.symbol, b.vwap AS bid_vwap, a.vwap AS ask_vwap, b.vwap / a.vwap AS ratio,
       (a.vwap - m.price) / (m.price - b.vwap) AS pressure
FROM bid_vwap b
JOIN ask_vwap a ON a.symbol = b.symbol
JOIN mid m ON m.symbol = b.symbol;
