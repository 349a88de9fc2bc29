-- SPDX-License-Identifier: Apache-2.0
-- Reports of logs: the time of every unit, as a member "author:number" of a sorted set.
--
-- KEYS     one record each
-- ARGV     for each record: author, number of the first unit, units given back (from, to: numbers, `to` excluded), now,
--          period, limit, reset (0: none), milliseconds the record lives, count of times, times. In microseconds of
--          fleet time
-- Returns  for each record an array: status (0, or 1: refused), the author's units in the window, all units in it, time
--          of the last reset, then time and units for each group of the other authors' units, earliest first, at most 64
--
-- A member is a unit's name, so adding it again changes nothing. What is out of the window, and all but the latest
-- `limit`, is taken away. A reset stands in the set as a member of its own, and goes with the window like the others.
local RESET, GROUPS = '!reset', 64
local out = {}
local at = 0
for i = 1, #KEYS do
    local key, author = KEYS[i], ARGV[at + 1]
    local first, gone_from, gone_to = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local over = tonumber(ARGV[at + 5]) - tonumber(ARGV[at + 6])
    local limit, reset = tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8])
    local expire_ms, count = ARGV[at + 9], tonumber(ARGV[at + 10])
    at = at + 10
    local answer = {0, 0, 0, 0}
    local was = redis.pcall('ZSCORE', key, RESET)
    if type(was) == 'table' and was.err then
        if string.sub(was.err, 1, 9) ~= 'WRONGTYPE' then
            return redis.error_reply(was.err)
        end
        answer[1] = 1
    else
        reset = math.max(reset, tonumber(was or 0) or 0)
        for number = gone_from, gone_to - 1 do
            redis.call('ZREM', key, author .. ':' .. string.format('%.0f', number))
        end
        if count > 0 then
            local units = {} -- one call for all: there are few enough for a stack
            for n = 1, count do
                units[#units + 1] = ARGV[at + n]
                units[#units + 1] = author .. ':' .. string.format('%.0f', first + n - 1)
            end
            redis.call('ZADD', key, unpack(units))
        end
        redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', math.max(over, reset)))
        if reset > over then
            redis.call('ZADD', key, string.format('%.0f', reset), RESET)
            answer[4] = reset
            limit = limit + 1 -- its member is the earliest there is
        end
        redis.call('ZREMRANGEBYRANK', key, 0, -limit - 1)
        local done = redis.pcall('PEXPIRE', key, expire_ms)
        if type(done) == 'table' then
            if redis.call('PTTL', key) < 0 then
                redis.call('DEL', key) -- one that gets no time to live must not stay
            end
            return done
        end
        local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
        local own, others, units = author .. ':', {}, 0
        for n = 1, #all, 2 do
            if all[n] == RESET then
                units = units - 1
            elseif string.sub(all[n], 1, #own) == own then
                answer[2] = answer[2] + 1
            elseif #others ~= 0 and others[#others][1] == all[n + 1] then
                others[#others][2] = others[#others][2] + 1
            else
                others[#others + 1] = {all[n + 1], 1}
            end
            units = units + 1
        end
        answer[3] = units
        -- Of more groups than fit neighbours become one, at the later time.
        local each = math.ceil(#others / GROUPS)
        for n = 1, #others do
            local to = 5 + 2 * math.floor((n - 1) / math.max(each, 1))
            answer[to] = tonumber(others[n][1])
            answer[to + 1] = (answer[to + 1] or 0) + others[n][2]
        end
    end
    at = at + count
    out[i] = answer
end
return out
