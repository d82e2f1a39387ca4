-- Cumulus, example 2.1: discounted prices by nation and the paper's program of six maps.
--
--   paper   here    holds
--   q       q_sum   the result, SUM(discount * price) by nation
--   m1      m7      Customers and Orders: SUM(discount) by oid and nation
--   m2      m5      Orders and Lineitems: SUM(discount * price) by cid
--   m3      m9      Orders: SUM(discount) by cid and oid
--   m4      m6      Lineitems: SUM(price) by oid
--   m5      m2      Customers: COUNT by cid and nation
--
-- Every statement of the paper stands here once, with the maps so named; deletions differ by the factor -1.
-- Ours in addition: q_count, by which a group exists while it has rows, and what maintains it, each counting
-- rows where the paper's map sums: m4 as m7, m1 as m5, m8 as m9, m3 as m6. m2 is shared.

STREAM customers(cid INTEGER, nation INTEGER) MAX 1000000;
STREAM orders(cid INTEGER, oid INTEGER, discount INTEGER) MAX 1000000;
STREAM lineitems(oid INTEGER, price INTEGER) MAX 1000000;

MAP q_count[nation INTEGER] INTEGER[0..1000000000000000000] =
  customers(cid, nation) * orders(cid, oid, discount) * lineitems(oid, price);
MAP q_sum[nation INTEGER] INTEGER[-4611686016279904256000000000000000000..4611686018427387904000000000000000000] =
  customers(cid, nation) * orders(cid, oid, discount) * lineitems(oid, price) * discount * price;
MAP m1[cid INTEGER] INTEGER[0..1000000000000] =
  orders(cid, oid, discount) * lineitems(oid, price);
MAP m2[cid INTEGER, nation INTEGER] INTEGER[0..1000000] =
  customers(cid, nation);
MAP m3[oid INTEGER] INTEGER[0..1000000] =
  lineitems(oid, price);
MAP m4[nation INTEGER, oid INTEGER] INTEGER[0..1000000000000] =
  customers(cid, nation) * orders(cid, oid, discount);
MAP m5[cid INTEGER] INTEGER[-4611686016279904256000000000000..4611686018427387904000000000000] =
  orders(cid, oid, discount) * lineitems(oid, price) * discount * price;
MAP m6[oid INTEGER] INTEGER[-2147483648000000..2147483647000000] =
  lineitems(oid, price) * price;
MAP m7[nation INTEGER, oid INTEGER] INTEGER[-2147483648000000000000..2147483647000000000000] =
  customers(cid, nation) * orders(cid, oid, discount) * discount;
MAP m8[cid INTEGER, oid INTEGER] INTEGER[0..1000000] =
  orders(cid, oid, discount);
MAP m9[cid INTEGER, oid INTEGER] INTEGER[-2147483648000000..2147483647000000] =
  orders(cid, oid, discount) * discount;

ON + customers(cid, nation) {
  q_count[nation] += m1[cid];
  q_sum[nation] += m5[cid];
  m2[cid, nation] += 1;
  m4[nation, oid] += m8[cid, oid];
  m7[nation, oid] += m9[cid, oid];
}

ON - customers(cid, nation) {
  q_count[nation] += -1 * m1[cid];
  q_sum[nation] += -1 * m5[cid];
  m2[cid, nation] += -1;
  m4[nation, oid] += -1 * m8[cid, oid];
  m7[nation, oid] += -1 * m9[cid, oid];
}

ON + orders(cid, oid, discount) {
  q_count[nation] += m3[oid] * m2[cid, nation];
  q_sum[nation] += m6[oid] * m2[cid, nation] * discount;
  m1[cid] += m3[oid];
  m4[nation, oid] += m2[cid, nation];
  m5[cid] += m6[oid] * discount;
  m7[nation, oid] += m2[cid, nation] * discount;
  m8[cid, oid] += 1;
  m9[cid, oid] += discount;
}

ON - orders(cid, oid, discount) {
  q_count[nation] += -1 * m3[oid] * m2[cid, nation];
  q_sum[nation] += -1 * m6[oid] * m2[cid, nation] * discount;
  m1[cid] += -1 * m3[oid];
  m4[nation, oid] += -1 * m2[cid, nation];
  m5[cid] += -1 * m6[oid] * discount;
  m7[nation, oid] += -1 * m2[cid, nation] * discount;
  m8[cid, oid] += -1;
  m9[cid, oid] += -1 * discount;
}

ON + lineitems(oid, price) {
  q_count[nation] += m4[nation, oid];
  q_sum[nation] += m7[nation, oid] * price;
  m1[cid] += m8[cid, oid];
  m3[oid] += 1;
  m5[cid] += m9[cid, oid] * price;
  m6[oid] += price;
}

ON - lineitems(oid, price) {
  q_count[nation] += -1 * m4[nation, oid];
  q_sum[nation] += -1 * m7[nation, oid] * price;
  m1[cid] += -1 * m8[cid, oid];
  m3[oid] += -1;
  m5[cid] += -1 * m9[cid, oid] * price;
  m6[oid] += -1 * price;
}

VIEW q[nation INTEGER nation] GROUPS q_count {
  sum_1 = q_sum[nation];
  COLUMN nation INTEGER = nation;
  COLUMN total INTEGER[-4611686016279904256000000000000000000..4611686018427387904000000000000000000] = sum_1;
}
