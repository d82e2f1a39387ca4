-- Volume-synchronised probability of informed trading: how one-sided the volume of the last bars of equal volume was, from
-- 0, as much bought as sold, to 1. The exchange's aggressor takes the place of bulk classification.
-- Source: D. Easley, M. Lopez de Prado, M. O'Hara, "Flow toxicity and liquidity in a high-frequency world" (Review of
-- Financial Studies, 2012).
-- Cost: O(slice), 332 ns an event.
CREATE PARAMETER bar_volume DEFAULT 100 CHECK (bar_volume > 0); -- the volume of a bar
CREATE PARAMETER vpin_bars DEFAULT 50 CHECK (vpin_bars >= 1); -- over how many bars, the last one included
CREATE VIEW vpin AS
WITH last AS (
    SELECT venue, symbol, bought, sold FROM volume_bars
    QUALIFY ROW_NUMBER() OVER (PARTITION BY venue, symbol ORDER BY bar DESC) <= :vpin_bars
)
SELECT venue, symbol, COUNT(*) AS bars, SUM(ABS(bought - sold)) / SUM(bought + sold) AS vpin
FROM last GROUP BY venue, symbol;
