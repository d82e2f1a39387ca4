-- What each strategy bought and sold.
CREATE VIEW executions AS
SELECT strategy, symbol, side, COUNT(*) AS fills, SUM(volume) AS volume, SUM(volume * price) AS turnover,
       SUM(volume * price) / SUM(volume) AS average_price
FROM fills
GROUP BY strategy, symbol, side;
