-- SPDX-License-Identifier: Apache-2.0
-- The numbers of a report that is merged. Statements within a loop, not functions (counts.lua says why).
--
-- Reads    count: of a report that says nothing but a count, else 0; merged: the numbers of all others; from: how many of
--          them are before this report's
-- Sets     told, told_demand, told_refunds, told_reset: what counts_merge.lua reads; kept: units that a reset keeps
local told, told_demand, told_refunds, told_reset, kept = count, count, 0, 0, 0
if count == 0 then
    told, told_demand, told_refunds = merged[from + 1], merged[from + 2], merged[from + 3]
    told_reset, kept = merged[from + 4], merged[from + 5]
end
