-- DBToaster (CIDR 2011), section 3: the query over Customer, Orders and Lineitem and its program of 18 lines.
--
--   paper   here    holds                                       lines of the paper
--   m       q_sum   the result, SUM(extprice) a group           2-3, 9, 15
--   m_c     m5      the result before Customer joins            10-11, 17
--   m_l     m4      the result before Lineitem joins: a count   4-5, 16
--   m_cl    m7      Orders alone: a count                       18
--   m_o     m2      Customer by custkey: a count                6
--   m_co    m6      Lineitem by ordkey: SUM(extprice)           12
--
-- Line 15, the factorised one, is `q_sum[ordkey, sprior] += m2[custkey] * m6[ordkey]` on Orders.
-- Ours in addition: q_count, by which a group exists while it has rows (the paper's exists while its sum
-- is not 0), and what maintains it: m1 as m5 and m3 as m6, each counting rows. m4, m7 and m2 are shared.
-- The paper leaves deletions out as symmetric.

STREAM customer(custkey INTEGER, name TEXT, nationkey INTEGER, acctbal INTEGER);
STREAM orders(custkey INTEGER, ordkey INTEGER, sprior INTEGER);
STREAM lineitem(ordkey INTEGER, extprice INTEGER);

MAP q_count[ordkey INTEGER, sprior INTEGER] INTEGER[0..9903520300447984150353281023] =
  customer(custkey, name, nationkey, acctbal) * orders(custkey, ordkey, sprior) * lineitem(ordkey, extprice);
MAP q_sum[ordkey INTEGER, sprior INTEGER] INTEGER[-21267647902848093037446844420041211904..21267647892944572736998860269687930881] =
  customer(custkey, name, nationkey, acctbal) * orders(custkey, ordkey, sprior) * lineitem(ordkey, extprice) * extprice;
MAP m1[ordkey INTEGER, custkey INTEGER, sprior INTEGER] INTEGER[0..4611686014132420609] =
  orders(custkey, ordkey, sprior) * lineitem(ordkey, extprice);
MAP m2[custkey INTEGER] INTEGER[0..2147483647] =
  customer(custkey, name, nationkey, acctbal);
MAP m3[ordkey INTEGER] INTEGER[0..2147483647] =
  lineitem(ordkey, extprice);
MAP m4[ordkey INTEGER, sprior INTEGER] INTEGER[0..4611686014132420609] =
  customer(custkey, name, nationkey, acctbal) * orders(custkey, ordkey, sprior);
MAP m5[ordkey INTEGER, custkey INTEGER, sprior INTEGER] INTEGER[-9903520305059670164485701632..9903520300447984150353281023] =
  orders(custkey, ordkey, sprior) * lineitem(ordkey, extprice) * extprice;
MAP m6[ordkey INTEGER] INTEGER[-4611686016279904256..4611686014132420609] =
  lineitem(ordkey, extprice) * extprice;
MAP m7[custkey INTEGER, ordkey INTEGER, sprior INTEGER] INTEGER[0..2147483647] =
  orders(custkey, ordkey, sprior);

ON + customer(custkey, name, nationkey, acctbal) {
  q_count[ordkey, sprior] += m1[ordkey, custkey, sprior];
  q_sum[ordkey, sprior] += m5[ordkey, custkey, sprior];
  m2[custkey] += 1;
  m4[ordkey, sprior] += m7[custkey, ordkey, sprior];
}

ON - customer(custkey, name, nationkey, acctbal) {
  q_count[ordkey, sprior] += -1 * m1[ordkey, custkey, sprior];
  q_sum[ordkey, sprior] += -1 * m5[ordkey, custkey, sprior];
  m2[custkey] += -1;
  m4[ordkey, sprior] += -1 * m7[custkey, ordkey, sprior];
}

ON + orders(custkey, ordkey, sprior) {
  q_count[ordkey, sprior] += m2[custkey] * m3[ordkey];
  q_sum[ordkey, sprior] += m2[custkey] * m6[ordkey];
  m1[ordkey, custkey, sprior] += m3[ordkey];
  m4[ordkey, sprior] += m2[custkey];
  m5[ordkey, custkey, sprior] += m6[ordkey];
  m7[custkey, ordkey, sprior] += 1;
}

ON - orders(custkey, ordkey, sprior) {
  q_count[ordkey, sprior] += -1 * m2[custkey] * m3[ordkey];
  q_sum[ordkey, sprior] += -1 * m2[custkey] * m6[ordkey];
  m1[ordkey, custkey, sprior] += -1 * m3[ordkey];
  m4[ordkey, sprior] += -1 * m2[custkey];
  m5[ordkey, custkey, sprior] += -1 * m6[ordkey];
  m7[custkey, ordkey, sprior] += -1;
}

ON + lineitem(ordkey, extprice) {
  q_count[ordkey, sprior] += m4[ordkey, sprior];
  q_sum[ordkey, sprior] += m4[ordkey, sprior] * extprice;
  m1[ordkey, custkey, sprior] += m7[custkey, ordkey, sprior];
  m3[ordkey] += 1;
  m5[ordkey, custkey, sprior] += m7[custkey, ordkey, sprior] * extprice;
  m6[ordkey] += extprice;
}

ON - lineitem(ordkey, extprice) {
  q_count[ordkey, sprior] += -1 * m4[ordkey, sprior];
  q_sum[ordkey, sprior] += -1 * m4[ordkey, sprior] * extprice;
  m1[ordkey, custkey, sprior] += -1 * m7[custkey, ordkey, sprior];
  m3[ordkey] += -1;
  m5[ordkey, custkey, sprior] += -1 * m7[custkey, ordkey, sprior] * extprice;
  m6[ordkey] += -1 * extprice;
}

VIEW q[ordkey INTEGER ordkey, sprior INTEGER sprior] GROUPS q_count {
  sum_1 = q_sum[ordkey, sprior];
  COLUMN ordkey INTEGER = ordkey;
  COLUMN sprior INTEGER = sprior;
  COLUMN total INTEGER[-21267647902848093037446844420041211904..21267647892944572736998860269687930881] = sum_1;
}
