-- DBToaster (CIDR 2011), example 1.1, as printed: avg(b2.price * b2.volume), and no COALESCE around the
-- volume above a level. The paper prints no program for it; it says that nested aggregates are kept as maps
-- of their own and that a correlated column is a parameter of the inner one (section 3, nested queries).
--
--   m2      select sum(volume) from bids
--   m3      the volume of each price: what the inner sum adds up over the prices above
--   m4      the rows of each price: `count_4 > 0` is the inner sum's not being NULL, so the best level drops out;
--           the same map counts the rows that the outer average divides by
--   m1      price * volume of each price: what the outer average adds up
--
-- The outer sum and count are evaluated again (:=) from these after the event, over all prices: a changed
-- order can move the cut past any level, so their change has no simpler form.

STREAM bids(volume INTEGER[0..2147483647], price INTEGER);

MAP vwap_sum[] INTEGER[-9903520305059670164485701632..9903520300447984150353281023] =
  bids(volume, price) * (sum_1 ^= bids(volume_2, price_2) * volume_2) * (sum_3 ^= bids(volume_3, price_3) * {price_3 > price} * volume_3) * (count_4 ^= bids(volume_4, price_4) * {price_4 > price}) * {count_4 > 0} * {(25 * sum_1) > (100 * sum_3)} * price * volume;
MAP vwap_count[] INTEGER[0..2147483647] =
  bids(volume, price) * (sum_1 ^= bids(volume_2, price_2) * volume_2) * (sum_3 ^= bids(volume_3, price_3) * {price_3 > price} * volume_3) * (count_4 ^= bids(volume_4, price_4) * {price_4 > price}) * {count_4 > 0} * {(25 * sum_1) > (100 * sum_3)};
MAP m1[price INTEGER] INTEGER[-9903520305059670164485701632..9903520300447984150353281023] =
  bids(volume, price) * price * volume;
MAP m2[] INTEGER[0..4611686014132420609] =
  bids(volume, price) * volume;
MAP m3[price INTEGER] INTEGER[0..4611686014132420609] =
  bids(volume, price) * volume;
MAP m4[price INTEGER] INTEGER[0..2147483647] =
  bids(volume, price);

ON + bids(volume, price) {
  m1[price] += price * volume;
  m2[] += volume;
  m3[price] += volume;
  m4[price] += 1;
  vwap_sum[] := (sum_1 ^= m2[]) * m1[price_2] * (sum_3 ^= m3[price_3] * {price_3 > price_2}) * {(25 * sum_1) > (100 * sum_3)} * (count_4 ^= m4[price_4] * {price_4 > price_2}) * {count_4 > 0};
  vwap_count[] := (sum_1 ^= m2[]) * m4[price_2] * (sum_3 ^= m3[price_3] * {price_3 > price_2}) * {(25 * sum_1) > (100 * sum_3)} * (count_4 ^= m4[price_4] * {price_4 > price_2}) * {count_4 > 0};
}

ON - bids(volume, price) {
  m1[price] += -1 * price * volume;
  m2[] += -1 * volume;
  m3[price] += -1 * volume;
  m4[price] += -1;
  vwap_sum[] := (sum_1 ^= m2[]) * m1[price_2] * (sum_3 ^= m3[price_3] * {price_3 > price_2}) * {(25 * sum_1) > (100 * sum_3)} * (count_4 ^= m4[price_4] * {price_4 > price_2}) * {count_4 > 0};
  vwap_count[] := (sum_1 ^= m2[]) * m4[price_2] * (sum_3 ^= m3[price_3] * {price_3 > price_2}) * {(25 * sum_1) > (100 * sum_3)} * (count_4 ^= m4[price_4] * {price_4 > price_2}) * {count_4 > 0};
}

VIEW vwap[] {
  sum_5 = vwap_sum[];
  count_6 = vwap_count[];
  COLUMN bid_vwap DOUBLE = (double(sum_5, 0) / double(count_6, 0)) WHEN (count_6 > 0);
}
