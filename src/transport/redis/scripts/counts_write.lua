-- SPDX-License-Identifier: Apache-2.0
-- Makes the fields of a record. Statements within a loop, not functions (counts.lua says why).
--
-- Reads    what counts_merge.lua sets
-- Sets     own, total: the author's field, and the sums' field
local own, total
if refunds ~= 0 or reset ~= 0 then
    own = format(FOUR, count, demand, refunds, reset)
elseif demand ~= count then
    own = format(TWO, count, demand)
else
    own = format(ONE, count)
end
if sum == count and sum_demand == demand and sum_refunds == 0 and reset == 0 then
    total = own
elseif sum_refunds ~= 0 then
    total = format(THREE, sum, sum_demand, sum_refunds)
elseif sum_demand ~= sum then
    total = format(TWO, sum, sum_demand)
else
    total = format(ONE, sum)
end
