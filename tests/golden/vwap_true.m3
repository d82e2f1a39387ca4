-- The volume-weighted average price that example 1.1 of DBToaster (CIDR 2011) describes: SUM(price * volume) over
-- SUM(volume), with COALESCE, so that the best level, which has nothing above it, counts.
--
--   m2      select sum(volume) from bids
--   m3      the volume of each price, for the inner sum and for the divisor
--   m1      price * volume of each price
--
-- Without COALESCE's NULL no map counts rows. Both sums are evaluated again (:=) from these after the event.

STREAM bids(volume INTEGER[0..2147483647], price INTEGER);

MAP vwap_sum[] INTEGER[-9903520305059670164485701632..9903520300447984150353281023] =
  bids(volume, price) * (sum_1 ^= bids(volume_2, price_2) * volume_2) * (sum_3 ^= bids(volume_3, price_3) * {price_3 > price} * volume_3) * {(25 * sum_1) > (100 * sum_3)} * price * volume;
MAP vwap_sum_2[] INTEGER[0..4611686014132420609] =
  bids(volume, price) * (sum_1 ^= bids(volume_2, price_2) * volume_2) * (sum_3 ^= bids(volume_3, price_3) * {price_3 > price} * volume_3) * {(25 * sum_1) > (100 * sum_3)} * volume;
MAP m1[price INTEGER] INTEGER[-9903520305059670164485701632..9903520300447984150353281023] =
  bids(volume, price) * price * volume;
MAP m2[] INTEGER[0..4611686014132420609] =
  bids(volume, price) * volume;
MAP m3[price INTEGER] INTEGER[0..4611686014132420609] =
  bids(volume, price) * volume;

ON + bids(volume, price) {
  m1[price] += price * volume;
  m2[] += volume;
  m3[price] += volume;
  vwap_sum[] := (sum_1 ^= m2[]) * m1[price_2] * (sum_3 ^= m3[price_3] * {price_3 > price_2}) * {(25 * sum_1) > (100 * sum_3)};
  vwap_sum_2[] := (sum_1 ^= m2[]) * m3[price_2] * (sum_3 ^= m3[price_3] * {price_3 > price_2}) * {(25 * sum_1) > (100 * sum_3)};
}

ON - bids(volume, price) {
  m1[price] += -1 * price * volume;
  m2[] += -1 * volume;
  m3[price] += -1 * volume;
  vwap_sum[] := (sum_1 ^= m2[]) * m1[price_2] * (sum_3 ^= m3[price_3] * {price_3 > price_2}) * {(25 * sum_1) > (100 * sum_3)};
  vwap_sum_2[] := (sum_1 ^= m2[]) * m3[price_2] * (sum_3 ^= m3[price_3] * {price_3 > price_2}) * {(25 * sum_1) > (100 * sum_3)};
}

VIEW vwap[] {
  sum_5 = vwap_sum[];
  sum_7 = vwap_sum_2[];
  COLUMN bid_vwap DOUBLE = (double(sum_5, 0) / double(sum_7, 0)) WHEN (double(sum_7, 0) <> 0.0);
}
