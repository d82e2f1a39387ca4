-- The mid and the micro-price of each venue's book. Source: S. Stoikov, "The micro-price: a high-frequency
-- estimator of future prices" (2018), whose adjustment of the mid is a function of imbalance and spread; here
-- it is linear in the imbalance, which makes it the mean of both prices, each weighted by the volume opposite.

-- lean: how far the micro-price is above the mid, as a share of the mid; below 0 it is under it.
CREATE VIEW micro_price AS
SELECT venue, symbol, bid, ask, (bid + ask) / 2 AS mid,
       (bid * ask_volume + ask * bid_volume) / (bid_volume + ask_volume) AS micro,
       (ask - bid) * (bid_volume - ask_volume) / ((bid_volume + ask_volume) * (ask + bid)) AS lean
FROM touch;
