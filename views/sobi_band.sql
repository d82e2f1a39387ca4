-- SOBI of each venue's book, its share counted over a band near the touch: how near the best :k of the volume
-- within :band of the best price stands to the mid. Of a whole book a quarter lies far from where it trades, and
-- foretells little. Source: as views/sobi.sql.
CREATE VIEW band_bids AS
SELECT b.venue, b.symbol, SUM(b.price * b.volume) / SUM(b.volume) AS vwap
FROM bids b
WHERE :k * (SELECT SUM(t.volume) FROM bids t WHERE t.venue = b.venue AND t.symbol = b.symbol AND t.price >= (1 - :band)
           * (SELECT MAX(x.price) FROM bids x WHERE x.venue = t.venue AND x.symbol = t.symbol))
    > (SELECT COALESCE(SUM(x.volume), 0) FROM bids x
       WHERE x.venue = b.venue AND x.symbol = b.symbol AND x.price > b.price)
GROUP BY b.venue, b.symbol;

CREATE VIEW band_asks AS
SELECT a.venue, a.symbol, SUM(a.price * a.volume) / SUM(a.volume) AS vwap
FROM asks a
WHERE :k * (SELECT SUM(t.volume) FROM asks t WHERE t.venue = a.venue AND t.symbol = a.symbol AND t.price <= (1 + :band)
           * (SELECT MIN(x.price) FROM asks x WHERE x.venue = t.venue AND x.symbol = t.symbol))
    > (SELECT COALESCE(SUM(x.volume), 0) FROM asks x
       WHERE x.venue = a.venue AND x.symbol = a.symbol AND x.price < a.price)
GROUP BY a.venue, a.symbol;

-- pressure: from -1 to 1, the asks' distance from the mid less the bids', of both; above 0 the bids press.
CREATE VIEW sobi_band AS
SELECT t.venue, t.symbol, b.vwap AS bid_vwap, a.vwap AS ask_vwap,
       (b.vwap + a.vwap - t.bid - t.ask) / (a.vwap - b.vwap) AS pressure
FROM touch t
JOIN band_bids b ON b.venue = t.venue AND b.symbol = t.symbol
JOIN band_asks a ON a.venue = t.venue AND a.symbol = t.symbol;
