-- SPDX-License-Identifier: Apache-2.0
-- Reports of windows: every author's counts and their sums (counts.lua).
--
-- KEYS     one record each
-- ARGV     the part of the fleet that the node belongs to (counts.lua); a double for each record (the author's count, if
--          the report has new units and nothing else; the count is less than 0 for the author's first report; 0: the
--          report is merged); 16 bits for each record (which time to live is the record's); five doubles for each report
--          that is merged (count, demand, refunds, reset or 0, units that a reset keeps); the times to live in
--          milliseconds from the record's creation. Then for each record the author, and the growth of its count unless
--          the report is merged
-- Returns  for each record: the sum, if the record has no more to say (the author's count is the reported one, the
--          demand is what was admitted, and nothing was refunded); -2: refused; else -1, the author's count, sum of what
--          was admitted, sum of demand, the author's refunds, sum of refunds. Before a sum or -1 that a merged report is
--          answered: -3 if the record had nothing of the author
--
-- A reset gives back everything that counts, except what its author has used since. The units are given back in the
-- author's name and once: the author's field keeps the time of its last reset. A record of a wrong type is refused
-- alone. Any other error ends the batch. A report of the author '' reads a record, and writes nothing.
-- include common.lua
-- include fields.lua
-- include counts.lua
local counts = numbers_of('d', records, ARGV[2])
local at = #ARGV - 2 * records + #ARGV[4] / 40 -- the arguments before those of a record
-- Every batch sets the time to live of one existing record again, so no record stays without one, whatever removed it.
local renewed = call('TIME')[2] % records + 1
for i = 1, records do
    local key, author, told = KEYS[i], ARGV[at + 1], counts[i]
    local own = key
    if part ~= '' then
        local mark = pcall('HGET', key, 'mark')
        own = type(mark) == 'string' and part_of(key, part, mark) or nil
    end
    local expires, added = i == renewed and author ~= '', false
    if told ~= 0 then
        local first = told < 0
        told = first and -told or told
        if own == key or (own and not first) then -- the first report of an author may find that its part was lost
            -- include counts_add.lua
        end
        if added then
            to, out[to + 1] = to + 1, added
            expires = expires or (first and added == told)
        end
        at = at + 2
    else
        at = at + 1
    end
    if not added then
        local record = pcall('HMGET', key, author, 'sum')
        if not record.err then
            if own ~= key then
                own, record = look_in_part(key, own, author, record)
            end
            merge(told, record[1], record[2])
            if reset > old_reset then
                give_back(sum - kept)
            else
                reset = old_reset
            end
            -- A report of zeros creates no record, and changes none.
            local exists = record[2] or count ~= 0 or demand ~= 0 or refunds ~= 0 or reset ~= 0
            if exists and (is_changed() or not record[2]) then
                write(key, own, author)
            end
            expires = exists and (expires or part_begins or not record[2])
            answer()
        elseif is_wrong_type(record) then
            to, out[to + 1] = to + 1, -2
            expires = false
        else
            return redis.error_reply(record.err)
        end
    end
    if expires then
        local failure = expire_all(key, ARGV[4 + struct.unpack('<H', ARGV[3], 2 * i - 1)], own ~= key or not added)
        if failure then
            return failure
        end
    end
    from = from + (counts[i] == 0 and 5 or 0)
end
return out
