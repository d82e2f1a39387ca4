-- The touch of each venue's book: the best price of both sides and the volume that rests there.
CREATE VIEW touch_bids AS
SELECT venue, symbol, price, SUM(volume) AS volume FROM bids GROUP BY venue, symbol, price;

CREATE VIEW touch_asks AS
SELECT venue, symbol, price, SUM(volume) AS volume FROM asks GROUP BY venue, symbol, price;

CREATE VIEW touch_bid AS
SELECT venue, symbol, MAX(price) AS price, ARG_MAX(volume, price) AS volume
FROM touch_bids GROUP BY venue, symbol;

CREATE VIEW touch_ask AS
SELECT venue, symbol, MIN(price) AS price, ARG_MIN(volume, price) AS volume
FROM touch_asks GROUP BY venue, symbol;

-- imbalance: from -1, all volume at the touch is asked, to 1, all is bid.
CREATE VIEW touch AS
SELECT b.venue, b.symbol, b.price AS bid, b.volume AS bid_volume, a.price AS ask, a.volume AS ask_volume,
       (b.volume - a.volume) / (b.volume + a.volume) AS imbalance
FROM touch_bid b JOIN touch_ask a ON a.venue = b.venue AND a.symbol = b.symbol;
