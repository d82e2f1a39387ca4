-- Volume and orders that rest on both sides of each symbol's book, whatever their price.
CREATE VIEW bid_depth AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS orders FROM bids GROUP BY symbol;

CREATE VIEW ask_depth AS SELECT symbol, SUM(volume) AS volume, COUNT(*) AS orders FROM asks GROUP BY symbol;

-- imbalance: from -1, all volume is asked, to 1, all is bid.
CREATE VIEW depth AS
SELECT b.symbol, b.volume AS bid_volume, a.volume AS ask_volume, b.orders AS bid_orders, a.orders AS ask_orders,
       (b.volume - a.volume) / (b.volume + a.volume) AS imbalance
FROM bid_depth b JOIN ask_depth a ON a.symbol = b.symbol;
