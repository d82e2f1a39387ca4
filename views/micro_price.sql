-- The mid and the micro-price of each venue's book. Source: S. Stoikov, "The micro-price: a high-frequency
-- estimator of future prices" (2018), whose adjustment of the mid is a function of imbalance and spread; here
-- it is linear in the imbalance, which makes it the mean of both prices, each weighted by the volume opposite.

CREATE VIEW micro_bids AS
SELECT venue, symbol, price, SUM(volume) AS volume FROM bids GROUP BY venue, symbol, price;

CREATE VIEW micro_asks AS
SELECT venue, symbol, price, SUM(volume) AS volume FROM asks GROUP BY venue, symbol, price;

CREATE VIEW micro_bid AS
SELECT venue, symbol, MAX(price) AS price, ARG_MAX(volume, price) AS volume
FROM micro_bids GROUP BY venue, symbol;

CREATE VIEW micro_ask AS
SELECT venue, symbol, MIN(price) AS price, ARG_MIN(volume, price) AS volume
FROM micro_asks GROUP BY venue, symbol;

-- lean: how far the micro-price is above the mid, as a share of the mid; below 0 it is under it.
CREATE VIEW micro_price AS
SELECT b.venue, b.symbol, b.price AS bid, a.price AS ask, (b.price + a.price) / 2 AS mid,
       (b.price * a.volume + a.price * b.volume) / (b.volume + a.volume) AS micro,
       (a.price - b.price) * (b.volume - a.volume) / ((b.volume + a.volume) * (a.price + b.price)) AS lean
FROM micro_bid b JOIN micro_ask a ON a.venue = b.venue AND a.symbol = b.symbol;
