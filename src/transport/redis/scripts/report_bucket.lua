-- SPDX-License-Identifier: Apache-2.0
-- Reports of buckets: every author's counts (admitted, asked, given back), their sums, and the time at which the bucket
-- is full again.
--
-- KEYS     one record each
-- ARGV     the time, and for each record: author, count, asked, back, reset (0: none), units it keeps, acked, acked
--          back, known back, tat, from, moves (0: all units that are new move the bucket; else less than so many, from
--          now on and not beyond the time that stands in place of from), unit, milliseconds it lives after it is full
--          again. The time, reset, tat and from in microseconds of fleet time, unit in picoseconds
-- Returns  for each record: status (0, or 1: refused), the author's count, sum of what was admitted, sum of what was
--          asked, the author's back, sum of what was given back, tat
--
-- Counts are cumulative, as in report_window.lua. The bucket is never at a time before the one the author has seen,
-- less what was given back since (known back); from there it moves by the units that neither this record nor, where it
-- was lost, an earlier one has had (acked, acked back). An author that was acked more than is here tells of a lost
-- record: each saw that at another time, and has had units since. So the bucket begins at the latest time that any of
-- them saw, and what is new is added to it, in whatever order they come. `from` is the time up to which every node has
-- told all it used: so long ago the bucket may have been full, and not since, as units used since may come in any
-- order. Where the author counts by another rate than the last one, the units owed stay. A reset fills the bucket,
-- once, but for what its author has used since.
--
-- Fields: AUTHOR and sum as in report_window.lua, and
--   tat      the time at which the bucket is full again, microseconds of fleet time
--   unit     picoseconds a unit takes, by the last report
--   base     where the record was lost: the latest time of it that an author has seen, and when the first one told
-- The record's time to live is set when tat comes to another stretch of time, of half of what the record lives after it
-- is full, so a busy bucket's is not set with every report, and is never too short by more than such a stretch.
local KEYS, ARGV, out, to, at = KEYS, ARGV, {}, 0, 1
local call, pcall, tonumber, match, format = redis.call, redis.pcall, tonumber, string.match, string.format
local ceil, max, min = math.ceil, math.max, math.min
local MOST, AGAIN = 9007199254740992, 4503599627370496 -- 2^53, 2^52
local REPAIR_US = 10000000
local ONE = format('%d', MOST) == '9007199254740992' and '%d' or '%.0f' -- and the rest, as in report_window.lua
local TWO = ONE .. ' ' .. ONE
local THREE, FOUR = TWO .. ' ' .. ONE, TWO .. ' ' .. TWO

-- Counts have no end: see fleet/count.h.
local function again(n)
    return n < 1e19 and AGAIN + n % AGAIN or 0
end

local function growth(was, now)
    if was < AGAIN or now < AGAIN then
        return max(now - was, 0)
    end
    local more = (now - was) % AGAIN
    return more < AGAIN / 2 and more or 0
end

local function add(sum, more)
    return sum + more < MOST and sum + more or AGAIN + (sum % AGAIN + more % AGAIN) % AGAIN
end

local function numbers(field)
    local first, asked, back, reset = match(field, '^(%d+) (%d+)$')
    if not first then
        first, asked, back, reset = match(field, '^(%-?%d+) (%d+) (%d+) ?(%d*)$')
    end
    first, asked, back, reset = tonumber(first) or 0, tonumber(asked) or 0, tonumber(back) or 0, tonumber(reset) or 0
    if first + back < 0 or first > MOST or back > MOST then
        return 0, 0, 0, 0
    end
    return first, asked > MOST and again(asked) or asked, back, reset > MOST and 0 or reset
end

-- Numbers that most reports of a batch have in common.
local last_from, from_us, last_unit, unit_ps, last_life, life_ms, stretch_us
local now_us = ARGV[1] + 0
local renewed = now_us % #KEYS + 1
for i = 1, #KEYS do
    local key, author = KEYS[i], ARGV[at + 1]
    local old = pcall('HMGET', key, author, 'sum', 'tat', 'unit')
    if old.err then
        if string.sub(old.err, 1, 9) ~= 'WRONGTYPE' then
            return redis.error_reply(old.err)
        end
        out[to + 1] = 1
        out[to + 2] = 0
        out[to + 3] = 0
        out[to + 4] = 0
        out[to + 5] = 0
        out[to + 6] = 0
        out[to + 7] = 0
    else
        local old_count, old_asked, old_back, old_reset = 0, 0, 0, 0
        local sum, sum_asked, sum_back = 0, 0, 0
        local was = old[1]
        if was then
            old_count = tonumber(was)
            if old_count and old_count >= 0 and old_count <= MOST then
                old_asked = old_count
            else
                old_count, old_asked, old_back, old_reset = numbers(was)
            end
        end
        was = old[2]
        if was then
            sum = tonumber(was)
            if sum and sum >= 0 and sum <= MOST then
                sum_asked = sum
            else
                sum, sum_asked, sum_back = numbers(was)
            end
        end
        if ARGV[at + 11] ~= last_from then
            last_from = ARGV[at + 11]
            from_us = tonumber(last_from)
        end
        if ARGV[at + 13] ~= last_unit then
            last_unit = ARGV[at + 13]
            unit_ps = tonumber(last_unit)
        end
        if ARGV[at + 14] ~= last_life then
            last_life = ARGV[at + 14]
            life_ms = tonumber(last_life)
            stretch_us = life_ms * 500
        end
        local text = ARGV[at + 2]
        local count = text + 0
        local asked = ARGV[at + 3] == text and count or ARGV[at + 3] + 0
        local back = ARGV[at + 4] == '0' and 0 or ARGV[at + 4] + 0
        local reset = ARGV[at + 5] == '0' and 0 or ARGV[at + 5] + 0
        local more, more_asked, more_back = count - old_count, asked - old_asked, back - old_back
        if more < 0 or count >= AGAIN then
            if count >= MOST then
                count, text = again(count), nil
            end
            more = growth(old_count, count)
            if more == 0 then
                count, text = old_count, nil
            end
        end
        if more_asked < 0 or asked >= AGAIN then
            asked = asked < MOST and asked or again(asked)
            more_asked = growth(old_asked, asked)
            asked = more_asked == 0 and old_asked or asked
        end
        if more_back < 0 or back >= AGAIN then
            back = back < MOST and back or again(back)
            more_back = growth(old_back, back)
            back = more_back == 0 and old_back or back
        end
        local old_sum_back = sum_back
        if sum + more < MOST and sum_asked + more_asked < MOST and more_back == 0 then
            sum, sum_asked = sum + more, sum_asked + more_asked -- nearly always, and without a call
        else
            sum = add(sum, more) - more_back
            sum_asked = add(sum_asked, more_asked)
            sum_back = add(sum_back, more_back)
            if sum + sum_back < 0 then
                sum = sum + AGAIN -- one of them has begun again
            end
        end
        local old_tat = tonumber(old[3] or 0) or 0
        if not (old_tat >= 0 and old_tat <= MOST) then
            old_tat = 0
        end
        local tat = old_tat
        if old[4] and old[4] ~= last_unit and tat > now_us then
            local old_unit_ps = tonumber(old[4]) or 0
            if old_unit_ps > 0 then
                tat = now_us + ceil((tat - now_us) / old_unit_ps * unit_ps)
            end
        end
        local seen = ARGV[at + 10] + 0
        if seen > tat and old_sum_back > 0 then
            seen = seen - ceil(growth(ARGV[at + 9] + 0, old_sum_back) * unit_ps / 1000000)
        end
        local news, lost = more, false
        if more > 0 and ARGV[at + 7] ~= old[1] then
            local acked = ARGV[at + 7] + 0
            acked = acked < MOST and acked or again(acked)
            lost = growth(old_count, acked) > 0
            news = lost and growth(acked, count) or more
        end
        if lost then
            local base, since = match(call('HGET', key, 'base') or '', '^(%d+) (%d+)$')
            if not base or now_us - since > REPAIR_US then
                base, since = old_tat, now_us
            end
            if seen > base + 0 then
                tat = tat + seen - base
                call('HSET', key, 'base', format(TWO, seen, since))
            end
        elseif seen > tat then
            tat = seen
        end
        local since_us, most_us = from_us, nil
        if ARGV[at + 12] ~= '0' then
            news = min(news, ARGV[at + 12] - 1)
            since_us, most_us = now_us, max(tat, from_us)
        end
        if news > 0 then
            local more_us = news * unit_ps / 1000000
            local part = more_us % 1 -- up, and without a call
            tat = (tat > since_us and tat or since_us) + (part > 0 and more_us - part + 1 or more_us)
            tat = most_us and min(tat, most_us) or tat
        end
        if more_back > 0 then
            local acked = ARGV[at + 8] + 0
            local returned = growth(old_back, acked) > 0 and growth(acked, back) or more_back
            if returned > 0 then
                tat = max(tat - ceil(returned * unit_ps / 1000000), 0)
            end
        end
        -- Some nine years: a node counts no further, and a greater number would not do for an expiry.
        if tat > now_us + 280000000000000 then
            tat = now_us + 280000000000000
        end
        if reset > old_reset then
            local kept = ARGV[at + 6] + 0
            local owed = max(ceil((tat - now_us) * 1000000 / unit_ps) - kept, 0)
            owed = min(owed, max(sum - kept, 0))
            back, sum_back, sum = add(back, owed), add(sum_back, owed), sum - owed
            tat = kept > 0 and now_us + ceil(kept * unit_ps / 1000000) or 0
        else
            reset = old_reset
        end
        local expires = tat <= now_us or i == renewed or tat - tat % stretch_us ~= old_tat - old_tat % stretch_us
        if tat ~= old_tat or count ~= old_count or asked ~= old_asked or back ~= old_back or
            reset ~= old_reset or old[4] ~= last_unit or not old[2] then
            local mine, all
            if back ~= 0 or reset ~= 0 then
                mine = format(FOUR, count, asked, back, reset)
            elseif asked ~= count then
                mine = format(TWO, count, asked)
            else
                mine = text or format(ONE, count)
            end
            if sum == count and sum_asked == asked and sum_back == 0 and reset == 0 then
                all = mine
            elseif sum_back ~= 0 then
                all = format(THREE, sum, sum_asked, sum_back)
            elseif sum_asked ~= sum then
                all = format(TWO, sum, sum_asked)
            else
                all = format(ONE, sum)
            end
            if old[4] == last_unit then
                call('HSET', key, author, mine, 'sum', all, 'tat', format(ONE, tat))
            else
                call('HSET', key, author, mine, 'sum', all, 'tat', format(ONE, tat), 'unit', last_unit)
            end
        end
        if expires then
            local full_ms = max(ceil((tat - now_us) / 1000), 0)
            local done = pcall('PEXPIRE', key, format(ONE, full_ms + life_ms))
            if type(done) == 'table' then
                if call('PTTL', key) < 0 then
                    call('DEL', key) -- one that gets no time to live must not stay
                end
                return done
            end
        end
        out[to + 1] = 0
        out[to + 2] = count
        out[to + 3] = sum_back == 0 and sum or add(sum, sum_back)
        out[to + 4] = sum_asked
        out[to + 5] = back
        out[to + 6] = sum_back
        out[to + 7] = tat
    end
    to, at = to + 7, at + 14
end
return out
