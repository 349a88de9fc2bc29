-- SPDX-License-Identifier: Apache-2.0
-- Reports of windows: every author's count and demand, and their sums.
--
-- KEYS     one record each
-- ARGV     for each record: author, count, asked, milliseconds the record lives from its creation
-- Returns  for each record: status (0, or 1: refused), the author's count, sum, sum of what was asked
--
-- Counts are cumulative and never decrease, so the larger of the old and the new one is kept: a report that comes
-- twice, or late, changes nothing. A record of a wrong type is refused alone; any other error ends the batch.
local out = {}
for i = 1, #KEYS do
    local key, at = KEYS[i], (i - 1) * 4
    local author = ARGV[at + 1]
    local old = redis.pcall('HMGET', key, author, author .. ':asked', 'sum', 'asked')
    local status, count, sum, sum_asked = 0, 0, 0, 0
    if old.err then
        if string.sub(old.err, 1, 9) ~= 'WRONGTYPE' then
            return redis.error_reply(old.err)
        end
        status = 1
    else
        local old_count, old_asked = tonumber(old[1] or 0) or 0, tonumber(old[2] or 0) or 0
        count = math.max(tonumber(ARGV[at + 2]), old_count)
        local asked = math.max(tonumber(ARGV[at + 3]), old_asked)
        sum = (tonumber(old[3] or 0) or 0) + count - old_count
        sum_asked = (tonumber(old[4] or 0) or 0) + asked - old_asked
        if count ~= old_count or asked ~= old_asked or not old[3] then
            redis.call('HSET', key, author, string.format('%.0f', count), author .. ':asked',
                       string.format('%.0f', asked), 'sum', string.format('%.0f', sum), 'asked',
                       string.format('%.0f', sum_asked))
        end
        if not old[3] then
            redis.call('PEXPIRE', key, ARGV[at + 4])
        end
    end
    local to = #out
    out[to + 1], out[to + 2], out[to + 3], out[to + 4] = status, count, sum, sum_asked
end
return out
