-- SPDX-License-Identifier: Apache-2.0
-- Adds to the answer what a merged report is answered. Statements within a loop, not functions (counts.lua says why).
-- A table of its own for each record would cost Redis more than its numbers do.
--
-- Reads    what counts_merge.lua sets
-- Sets     the next elements of `out` after `to`, and `to`: the sum if the record has no more to say, else -1 and the
--          counts
if count == told and sum_demand == sum and sum_refunds == 0 and refunds == 0 then
    to, out[to + 1] = to + 1, sum
else
    out[to + 1] = -1
    out[to + 2] = count
    out[to + 3] = sum + sum_refunds
    out[to + 4] = sum_demand
    out[to + 5] = refunds
    out[to + 6] = sum_refunds
    to = to + 6
end
