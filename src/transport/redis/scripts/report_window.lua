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
-- twice, or late, changes nothing. A reset gives back all that counts, but what its author has used since, in the
-- author's name, once: the time of the last one is kept. A record of a wrong type is refused alone; any other error ends
-- the batch.
--
-- Fields, in the fewest numbers that say it, since most reports are of keys that nobody was denied:
--   AUTHOR   "count", "count asked" or "count asked back reset"; asked is count where it is left out, and the others 0
--   sum      "net", "net asked" or "net asked back": net is what counts, admitted less given back
--
-- What it costs is calls of Redis, then conversions (bench/redis_cost.py): hence two calls for a record that is there,
-- numbers that are not converted where their text says enough, and elements of `out` set one by one and in order.
local KEYS, ARGV, out, to, at = KEYS, ARGV, {}, 0, 0
local call, pcall, tonumber, match, format = redis.call, redis.pcall, tonumber, string.match, string.format
local max = math.max
local MOST, AGAIN = 9007199254740992, 4503599627370496 -- 2^53, 2^52
-- %d takes half the time of %.0f, and is exact where the server's `long` has 64 bits.
local ONE = format('%d', MOST) == '9007199254740992' and '%d' or '%.0f'
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

-- The numbers of a field. What is not weir's counts as nothing.
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

-- Sets the record's time to live. One that gets none must not stay.
local function expire(key, ms)
    local done = pcall('PEXPIRE', key, ms)
    if type(done) == 'table' and call('PTTL', key) < 0 then
        call('DEL', key)
    end
    return done
end

-- One record of every batch has its time to live set anew, so that none stays without, whatever took it.
local renewed = call('TIME')[2] % #KEYS + 1
for i = 1, #KEYS do
    local key, author = KEYS[i], ARGV[at + 1]
    local old = pcall('HMGET', key, author, 'sum')
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
        if reset > old_reset then
            local over = sum - ARGV[at + 6] + 0
            if over > 0 then
                back, sum_back, sum = add(back, over), add(sum_back, over), sum - over
            end
        else
            reset = old_reset
        end
        -- Whoever only asks, of a record that nobody has used, makes none.
        local is_there = old[2] or count ~= 0 or asked ~= 0 or back ~= 0 or reset ~= 0
        if count ~= old_count or asked ~= old_asked or back ~= old_back or reset ~= old_reset or
            (is_there and not old[2]) then
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
            call('HSET', key, author, mine, 'sum', all)
        end
        if is_there and (not old[2] or i == renewed) then
            local done = expire(key, ARGV[at + 7])
            if done ~= 1 then
                return done
            end
        end
        out[to + 1] = 0
        out[to + 2] = count
        out[to + 3] = sum_back == 0 and sum or add(sum, sum_back)
        out[to + 4] = sum_asked
        out[to + 5] = back
        out[to + 6] = sum_back
    end
    to, at = to + 6, at + 7
end
return out
