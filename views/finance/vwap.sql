-- The value of the bids within the best quarter of their volume.
CREATE VIEW vwap AS
SELECT SUM(b1.price * b1.volume) AS value
FROM bids b1
WHERE 0.25 * (SELECT SUM(b3.volume) FROM bids b3)
    > (SELECT COALESCE(SUM(b2.volume), 0) FROM bids b2 WHERE b2.price > b1.price);
