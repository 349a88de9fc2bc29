-- SPDX-License-Identifier: Apache-2.0
-- Reports of windows: every author's counts (admitted, asked, given back) and their sums.
--
-- KEYS     one record each
-- ARGV     for each record: author, count, asked, back, reset (0: none), units it keeps, milliseconds the record
--          lives from its creation
-- Returns  for each record: status (0, or 1: refused), the author's count, sum of what was admitted, sum of what was
--          asked, the author's back, sum of what was given back
--
-- Counts are cumulative and never decrease, so the larger of the old and the new one is kept: a report that comes
-- twice, or late, changes nothing. The field "sum" is what counts: admitted less given back. A reset gives back all of
-- it, but what its author has used since, in the author's name, once: the number of the last one is kept. A record of a wrong type is refused alone; any
-- other error ends the batch.
local out = {}
for i = 1, #KEYS do
    local key, at = KEYS[i], (i - 1) * 7
    local author = ARGV[at + 1]
    local old = redis.pcall('HMGET', key, author, author .. ':asked', author .. ':back', 'sum', 'asked', 'back',
                            author .. ':reset')
    local status, count, admitted, sum_asked, back, sum_back = 0, 0, 0, 0, 0, 0
    if old.err then
        if string.sub(old.err, 1, 9) ~= 'WRONGTYPE' then
            return redis.error_reply(old.err)
        end
        status = 1
    else
        local old_count, old_asked = tonumber(old[1] or 0) or 0, tonumber(old[2] or 0) or 0
        local old_back = tonumber(old[3] or 0) or 0
        count = math.max(tonumber(ARGV[at + 2]), old_count)
        local asked = math.max(tonumber(ARGV[at + 3]), old_asked)
        back = math.max(tonumber(ARGV[at + 4]), old_back)
        sum_back = (tonumber(old[6] or 0) or 0) + back - old_back
        local sum = (tonumber(old[4] or 0) or 0) + count - old_count - (back - old_back)
        sum_asked = (tonumber(old[5] or 0) or 0) + asked - old_asked
        local reset, old_reset = tonumber(ARGV[at + 5]), tonumber(old[7] or 0) or 0
        local over = sum - tonumber(ARGV[at + 6])
        local resets = reset > old_reset
        if resets and over > 0 then
            back, sum_back, sum = back + over, sum_back + over, sum - over
        end
        if count ~= old_count or asked ~= old_asked or back ~= old_back or not old[4] then
            redis.call('HSET', key, author, string.format('%.0f', count), author .. ':asked',
                       string.format('%.0f', asked), 'sum', string.format('%.0f', sum), 'asked',
                       string.format('%.0f', sum_asked))
            if sum_back ~= 0 then
                redis.call('HSET', key, author .. ':back', string.format('%.0f', back), 'back',
                           string.format('%.0f', sum_back))
            end
        end
        if resets then
            redis.call('HSET', key, author .. ':reset', string.format('%.0f', reset))
        end
        if not old[4] then
            redis.call('PEXPIRE', key, ARGV[at + 7])
        end
        admitted = sum + sum_back
    end
    local to = #out
    out[to + 1], out[to + 2], out[to + 3], out[to + 4], out[to + 5], out[to + 6] =
        status, count, admitted, sum_asked, back, sum_back
end
return out
