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
    if old_count and old_count >= 0 and old_count <= MOST then
        old_demand = old_count
    else
        old_count, old_demand, old_refunds, old_reset = parse(field)
    end
end
field = record[2]
if field then
    sum = tonumber(field)
    if sum and sum >= 0 and sum <= MOST then
        sum_demand = sum
    else
        sum, sum_demand, sum_refunds = parse(field)
    end
end
local count, demand, refunds, reset = told, told_demand, told_refunds, told_reset
local more, more_demand, more_refunds = count - old_count, demand - old_demand, refunds - old_refunds
if more < 0 or count >= AGAIN then
    count = count < MOST and count or wrap(count)
    more = growth(old_count, count)
    count = more == 0 and old_count or count
end
if more_demand < 0 or demand >= AGAIN then
    demand = demand < MOST and demand or wrap(demand)
    more_demand = growth(old_demand, demand)
    demand = more_demand == 0 and old_demand or demand
end
if more_refunds < 0 or refunds >= AGAIN then
    refunds = refunds < MOST and refunds or wrap(refunds)
    more_refunds = growth(old_refunds, refunds)
    refunds = more_refunds == 0 and old_refunds or refunds
end
local old_sum_refunds = sum_refunds
if sum + more < MOST and sum_demand + more_demand < MOST and more_refunds == 0 then
    sum, sum_demand = sum + more, sum_demand + more_demand -- nearly always, and without a call
else
    sum = add(sum, more) - more_refunds
    sum_demand = add(sum_demand, more_demand)
    sum_refunds = add(sum_refunds, more_refunds)
    if sum + sum_refunds < 0 then
        sum = sum + AGAIN -- one of the two sums has wrapped
    end
end
