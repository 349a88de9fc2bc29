-- SPDX-License-Identifier: Apache-2.0
-- Reports of buckets: every author's count and demand, their sums, and the time at which the bucket is full again.
--
-- KEYS     one record each
-- ARGV     for each record: author, count, asked, acked, tat, from, unit, milliseconds it lives after it is full
--          again. tat and from in microseconds of fleet time, unit in picoseconds
-- Returns  for each record: status (0, or 1: refused), the author's count, sum, sum of what was asked, tat
--
-- Counts are cumulative, as in report_window.lua. The bucket moves by the units that neither this record nor, where it was
-- lost, an earlier one has had (acked); and never to a time before the one the author has seen.
local out = {}
for i = 1, #KEYS do
    local key, at = KEYS[i], (i - 1) * 8
    local author = ARGV[at + 1]
    local old = redis.pcall('HMGET', key, author, author .. ':asked', 'sum', 'asked', 'tat')
    local status, count, sum, sum_asked, tat = 0, 0, 0, 0, 0
    if old.err then
        if string.sub(old.err, 1, 9) ~= 'WRONGTYPE' then
            return redis.error_reply(old.err)
        end
        status = 1
    else
        local old_count, old_asked = tonumber(old[1] or 0) or 0, tonumber(old[2] or 0) or 0
        local from_us = tonumber(ARGV[at + 6])
        count = math.max(tonumber(ARGV[at + 2]), old_count)
        local asked = math.max(tonumber(ARGV[at + 3]), old_asked)
        sum = (tonumber(old[3] or 0) or 0) + count - old_count
        sum_asked = (tonumber(old[4] or 0) or 0) + asked - old_asked
        tat = tonumber(old[5] or 0) or 0
        local news = count - math.max(old_count, tonumber(ARGV[at + 4]))
        if news > 0 then
            tat = math.max(tat, from_us) + math.ceil(news * tonumber(ARGV[at + 7]) / 1000000)
        end
        tat = math.max(tat, tonumber(ARGV[at + 5]))
        redis.call('HSET', key, author, string.format('%.0f', count), author .. ':asked', string.format('%.0f', asked),
                   'sum', string.format('%.0f', sum), 'asked', string.format('%.0f', sum_asked), 'tat',
                   string.format('%.0f', tat))
        local full_ms = math.max(math.ceil((tat - from_us) / 1000), 0)
        redis.call('PEXPIRE', key, string.format('%.0f', full_ms + tonumber(ARGV[at + 8])))
    end
    local to = #out
    out[to + 1], out[to + 2], out[to + 3], out[to + 4], out[to + 5] = status, count, sum, sum_asked, tat
end
return out
