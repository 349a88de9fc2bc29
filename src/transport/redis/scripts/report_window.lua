-- SPDX-License-Identifier: Apache-2.0
-- Reports of windows: every author's counts and their sums (counts.lua).
--
-- KEYS     one record each
-- ARGV     for each record: author, count, demand, refunds, reset (0: none), units that a reset keeps, milliseconds that
--          the record lives from its creation
-- Returns  for each record: status (0, or 1: refused), the author's count, sum of what was admitted, sum of demand, the
--          author's refunds, sum of refunds
--
-- A reset gives back everything that counts, except what its author has used since. The units are given back in the
-- author's name and once: the author's field keeps the time of its last reset. A record of a wrong type is refused
-- alone. Any other error ends the batch.
-- include common.lua
-- include counts.lua
local ANSWERS = 6 -- numbers in the answer of each record
local at = 0
-- Every batch sets the time to live of one existing record again, so no record stays without one, whatever removed it.
local renewed = call('TIME')[2] % #KEYS + 1
for i = 1, #KEYS do
    local key, author = KEYS[i], ARGV[at + 1]
    local record = pcall('HMGET', key, author, 'sum')
    if record.err then
        -- include counts_refused.lua
    else
        -- include counts_merge.lua
        if reset > old_reset then
            local units = sum - ARGV[at + 6]
            if units > 0 then
                refunds, sum_refunds, sum = add(refunds, units), add(sum_refunds, units), sum - units
            end
        else
            reset = old_reset
        end
        -- A report of zeros creates no record.
        local exists = record[2] or count ~= 0 or demand ~= 0 or refunds ~= 0 or reset ~= 0
        if count ~= old_count or demand ~= old_demand or refunds ~= old_refunds or reset ~= old_reset or
            (exists and not record[2]) then
            -- include counts_write.lua
            call('HSET', key, author, own, 'sum', total)
        end
        if exists and (not record[2] or i == renewed) then
            local ttl_ms = ARGV[at + 7]
            -- include expire.lua
        end
        -- include counts_answer.lua
    end
    at, to = at + 7, to + ANSWERS
end
return out
