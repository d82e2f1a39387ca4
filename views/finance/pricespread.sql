-- The differences of price between bids and asks that are not small beside their side of the book.
CREATE VIEW pricespread AS
SELECT SUM(a.price - b.price) AS price
FROM bids b, asks a
WHERE b.volume > 0.0001 * (SELECT SUM(b1.volume) FROM bids b1)
    AND a.volume > 0.0001 * (SELECT SUM(a1.volume) FROM asks a1);
