-- SPDX-License-Identifier: Apache-2.0
-- Merges one report into the counts of its record. Statements within a loop, not functions (counts.lua says why).
--
-- Reads    record (the author's field and the sums' field come first); told, told_demand, told_refunds, told_reset: the
--          report's numbers
-- Sets     old_count, old_demand, old_refunds, old_reset: the author's counts before this report
--          count, demand, refunds: the author's counts now; more, more_demand, more_refunds: their growth
--          sum, sum_demand, sum_refunds: over all authors, now; `sum` is net
--          old_sum_refunds: over all authors, before this report
--          reset: the time that the report says, which the script compares with old_reset
local old_count, old_demand, old_refunds, old_reset = 0, 0, 0, 0
local sum, sum_demand, sum_refunds = 0, 0, 0
local field = record[1]
if field then
    old_count = tonumber(field)
    if old_count and old_count >= 0 and old_count <= END then
        old_demand = old_count
    else
        old_count, old_demand, old_refunds, old_reset = parse(field)
    end
end
field = record[2]
if field then
    sum = tonumber(field)
    if sum and sum >= 0 and sum <= END then
        sum_demand = sum
    else
        sum, sum_demand, sum_refunds = parse(field)
    end
end
local count, demand, refunds, reset = told, told_demand, told_refunds, told_reset
local more, more_demand, more_refunds = count - old_count, demand - old_demand, refunds - old_refunds
if more < 0 then
    count, more = old_count, 0
end
if more_demand < 0 then
    demand, more_demand = old_demand, 0
end
if more_refunds < 0 then
    refunds, more_refunds = old_refunds, 0
end
local old_sum_refunds = sum_refunds
sum, sum_demand, sum_refunds = sum + more - more_refunds, sum_demand + more_demand, sum_refunds + more_refunds
