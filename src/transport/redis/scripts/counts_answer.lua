-- SPDX-License-Identifier: Apache-2.0
-- Adds the counts of a record to the answer. Statements within a loop, not functions (counts.lua says why).
--
-- Reads    what counts_merge.lua sets
-- Sets     the next six elements of `out` after `to`
out[to + 1] = 0
out[to + 2] = count
out[to + 3] = sum_refunds == 0 and sum or add(sum, sum_refunds)
out[to + 4] = sum_demand
out[to + 5] = refunds
out[to + 6] = sum_refunds
