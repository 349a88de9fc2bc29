-- SPDX-License-Identifier: Apache-2.0
-- Reports of windows: every author's counts and their sums (counts.lua).
--
-- KEYS     one record each
-- ARGV     a double for each record (the author's count, if the report has new units and nothing else; the count is less
--          than 0 for the author's first report; 0: the report is merged); 16 bits for each record (which time to live is
--          the record's); five doubles for each report that is merged (count, demand, refunds, reset or 0, units that a
--          reset keeps); the times to live in milliseconds from the record's creation. Then for each record the author,
--          and the growth of its count unless the report is merged
-- Returns  for each record: the sum, if the record has no more to say (the author's count is the reported one, the
--          demand is what was admitted, and nothing was refunded); -2: refused; else -1, the author's count, sum of what
--          was admitted, sum of demand, the author's refunds, sum of refunds
--
-- A reset gives back everything that counts, except what its author has used since. The units are given back in the
-- author's name and once: the author's field keeps the time of its last reset. A record of a wrong type is refused
-- alone. Any other error ends the batch.
-- include common.lua
-- include counts.lua
local counts = numbers_of('d', records, ARGV[1])
local at = #ARGV - 2 * records + #ARGV[3] / 40 -- the arguments before those of a record
-- Every batch sets the time to live of one existing record again, so no record stays without one, whatever removed it.
local renewed = call('TIME')[2] % records + 1
for i = 1, records do
    local key, author, count = KEYS[i], ARGV[at + 1], counts[i]
    local expires, done = i == renewed, false
    if count ~= 0 then
        local first = count < 0
        count = first and -count or count
        -- include counts_add.lua
        if added then
            to, done, out[to + 1] = to + 1, true, sum
            expires = expires or (first and sum == count)
        end
    end
    if not done then
        local record = pcall('HMGET', key, author, 'sum')
        if record.err then
            -- include counts_refused.lua
            expires = false
        else
            -- include counts_told.lua
            -- include counts_merge.lua
            if reset > old_reset then
                local units = sum - kept
                if units > 0 then
                    refunds, sum_refunds, sum = refunds + units, sum_refunds + units, sum - units
                end
            end
            reset = reset > old_reset and reset or old_reset
            -- A report of zeros creates no record.
            local exists = record[2] or count ~= 0 or demand ~= 0 or refunds ~= 0 or reset ~= 0
            if count ~= old_count or demand ~= old_demand or refunds ~= old_refunds or reset ~= old_reset or
                (exists and not record[2]) then
                -- include counts_write.lua
                call('HSET', key, author, own, 'sum', total)
            end
            -- A sum of 0 is also what is left of a record that did not exist before counts_add.lua.
            expires = exists and (expires or not record[2] or record[2] == '0')
            -- include counts_answer.lua
        end
    end
    if expires then
        local ttl_ms = ARGV[3 + struct.unpack('<H', ARGV[2], 2 * i - 1)]
        -- include expire.lua
    end
    if counts[i] == 0 then
        at, from = at + 1, from + 5
    else
        at = at + 2
    end
end
return out
