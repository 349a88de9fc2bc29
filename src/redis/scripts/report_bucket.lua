-- SPDX-License-Identifier: Apache-2.0
-- Reports of buckets: every author's counts (admitted, asked, given back), their sums, and the time at which the bucket
-- is full again.
--
-- KEYS     one record each
-- ARGV     for each record: author, count, asked, back, reset (0: none), units it keeps, acked, acked back, known back,
--          tat, from, unit, milliseconds it lives after it is full again. reset, tat and from in microseconds of fleet
--          time, unit in picoseconds
-- Returns  for each record: status (0, or 1: refused), the author's count, sum of what was admitted, sum of what was
--          asked, the author's back, sum of what was given back, tat
--
-- Counts are cumulative, as in report_window.lua. The bucket moves by the units that neither this record nor, where it
-- was lost, an earlier one has had (acked, acked back); and never to a time before the one the author has seen, less
-- what was given back since (known back). Where the author counts by another rate than the last one, the units owed
-- stay. A reset fills the bucket, once, but for what its author has used since.
local out = {}
for i = 1, #KEYS do
    local key, at = KEYS[i], (i - 1) * 13
    local author = ARGV[at + 1]
    local old = redis.pcall('HMGET', key, author, author .. ':asked', author .. ':back', 'sum', 'asked', 'back',
                            author .. ':reset', 'tat', 'unit')
    local status, count, admitted, sum_asked, back, sum_back, tat = 0, 0, 0, 0, 0, 0, 0
    if old.err then
        if string.sub(old.err, 1, 9) ~= 'WRONGTYPE' then
            return redis.error_reply(old.err)
        end
        status = 1
    else
        local old_count, old_asked = tonumber(old[1] or 0) or 0, tonumber(old[2] or 0) or 0
        local old_back = tonumber(old[3] or 0) or 0
        local from_us, unit_ps = tonumber(ARGV[at + 11]), tonumber(ARGV[at + 12])
        local old_unit_ps = tonumber(old[9] or 0) or 0
        count = math.max(tonumber(ARGV[at + 2]), old_count)
        local asked = math.max(tonumber(ARGV[at + 3]), old_asked)
        back = math.max(tonumber(ARGV[at + 4]), old_back)
        sum_back = (tonumber(old[6] or 0) or 0) + back - old_back
        local sum = (tonumber(old[4] or 0) or 0) + count - old_count - (back - old_back)
        sum_asked = (tonumber(old[5] or 0) or 0) + asked - old_asked
        tat = tonumber(old[8] or 0) or 0
        if old_unit_ps ~= 0 and old_unit_ps ~= unit_ps and tat > from_us then
            tat = from_us + math.ceil((tat - from_us) / old_unit_ps * unit_ps)
        end
        local news = count - math.max(old_count, tonumber(ARGV[at + 7]))
        if news > 0 then
            tat = math.max(tat, from_us) + math.ceil(news * unit_ps / 1000000)
        end
        local returned = back - math.max(old_back, tonumber(ARGV[at + 8]))
        if returned > 0 then
            tat = math.max(tat - math.ceil(returned * unit_ps / 1000000), 0)
        end
        local unseen = math.max(sum_back - tonumber(ARGV[at + 9]), 0)
        tat = math.max(tat, tonumber(ARGV[at + 10]) - math.ceil(unseen * unit_ps / 1000000))
        -- Some nine years: a node counts no further, and a greater number would not do for an expiry.
        tat = math.min(tat, from_us + 280000000000000)
        local reset, old_reset = tonumber(ARGV[at + 5]), tonumber(old[7] or 0) or 0
        if reset > old_reset then
            local kept = tonumber(ARGV[at + 6])
            local owed = math.max(math.ceil((tat - from_us) * 1000000 / unit_ps) - kept, 0)
            owed = math.min(owed, math.max(sum - kept, 0))
            back, sum_back, sum = back + owed, sum_back + owed, sum - owed
            tat = kept > 0 and from_us + math.ceil(kept * unit_ps / 1000000) or 0
            redis.call('HSET', key, author .. ':reset', string.format('%.0f', reset))
        end
        redis.call('HSET', key, author, string.format('%.0f', count), author .. ':asked', string.format('%.0f', asked),
                   'sum', string.format('%.0f', sum), 'asked', string.format('%.0f', sum_asked), 'tat',
                   string.format('%.0f', tat), 'unit', string.format('%.0f', unit_ps))
        if sum_back ~= 0 then
            redis.call('HSET', key, author .. ':back', string.format('%.0f', back), 'back',
                       string.format('%.0f', sum_back))
        end
        local full_ms = math.max(math.ceil((tat - from_us) / 1000), 0)
        redis.call('PEXPIRE', key, string.format('%.0f', full_ms + tonumber(ARGV[at + 13])))
        admitted = sum + sum_back
    end
    local to = #out
    out[to + 1], out[to + 2], out[to + 3], out[to + 4], out[to + 5], out[to + 6], out[to + 7] =
        status, count, admitted, sum_asked, back, sum_back, tat
end
return out
