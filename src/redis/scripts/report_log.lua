-- SPDX-License-Identifier: Apache-2.0
-- Reports of logs: the time of every unit, as a member "author:number" of a sorted set; and what was asked for.
--
-- KEYS     one record each, then for each record a hash of what its authors were asked for
-- ARGV     for each record: author, number of the first unit, units given back (from, to: numbers, `to` excluded), now,
--          period, limit, asked, reset (0: none), milliseconds the record lives, count of times, times. In microseconds
--          of fleet time
-- Returns  for each record an array: status (0, or 1: refused), the author's units in the window, all units in it, time
--          of the last reset, what the other authors were asked for, how many these are, then time and units for each
--          group of their units, earliest first, at most 64
--
-- A member is a unit's name, so adding it again changes nothing. What is out of the window, and all but the latest
-- `limit`, is taken away. A reset stands in the set as a member of its own, and goes with the window like the others.
--
-- The hash has for each author what it was asked for, and when it said so; two minutes later that is taken away.
--
-- What is not weir's costs no more than the key its limit: members with times beyond 2^53, a reset more than an hour ahead
-- of the author's time, and fields of the hash that nobody can have said are taken away.
local RESET, GROUPS = '!reset', 64
local MOST, BEYOND, AHEAD_US, ASKED_MOST = 9007199254740992, '(9007199254740992', 3600000000, 1099511627776 -- 2^53, 2^40
local FORGET_US, STRETCH_US, LIVES_MS = 120000000, 30000000, '180000'
local call, match, format = redis.call, string.match, string.format
local out = {}
local at = 0

-- What the other authors were asked for, and how many they are; the author's own is noted.
local function ask(key, author, asked, now)
    local fields = redis.pcall('HGETALL', key)
    if fields.err then
        return 0, 0 -- not weir's: then demand is not known
    end
    local sum, count, noted = 0, 0, 0
    for n = 1, #fields, 2 do
        local units, said = match(fields[n + 1], '^(%d+) (%d+)$')
        units, said = tonumber(units) or 0, tonumber(said) or 0
        if fields[n] == author then
            noted = said
        elseif said <= now - FORGET_US or said > now + AHEAD_US or units >= ASKED_MOST then
            call('HDEL', key, fields[n])
        else
            sum, count = (sum + units) % ASKED_MOST, count + 1
        end
    end
    call('HSET', key, author, format('%.0f %.0f', asked, now))
    if now - noted > STRETCH_US or now % 64 == 0 then
        call('PEXPIRE', key, LIVES_MS)
    end
    return sum, count
end

for i = 1, #KEYS / 2 do
    local key, author = KEYS[i], ARGV[at + 1]
    local first, gone_from, gone_to = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local now = tonumber(ARGV[at + 5])
    local over = now - tonumber(ARGV[at + 6])
    local limit, asked, reset = tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9])
    local expire_ms, count = ARGV[at + 10], tonumber(ARGV[at + 11])
    at = at + 11
    local answer = {0, 0, 0, 0, 0, 0}
    local was = redis.pcall('ZSCORE', key, RESET)
    if type(was) == 'table' and was.err then
        if string.sub(was.err, 1, 9) ~= 'WRONGTYPE' then
            return redis.error_reply(was.err)
        end
        answer[1] = 1
    else
        was = tonumber(was or 0)
        if was < 0 or was > now + AHEAD_US then
            call('ZREM', key, RESET)
            was = 0
        end
        reset = math.max(reset, was)
        for number = gone_from, gone_to - 1 do
            call('ZREM', key, author .. ':' .. format('%.0f', number))
        end
        if count > 0 then
            local units = {} -- one call for all: there are few enough for a stack
            for n = 1, count do
                units[#units + 1] = ARGV[at + n]
                units[#units + 1] = author .. ':' .. format('%.0f', first + n - 1)
            end
            call('ZADD', key, unpack(units))
        end
        call('ZREMRANGEBYSCORE', key, BEYOND, '+inf')
        call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', math.max(over, reset)))
        if reset > over then
            call('ZADD', key, format('%.0f', reset), RESET)
            answer[4] = reset
            limit = limit + 1 -- its member is the earliest there is
        end
        call('ZREMRANGEBYRANK', key, 0, -limit - 1)
        local done = redis.pcall('PEXPIRE', key, expire_ms)
        if type(done) == 'table' then
            if call('PTTL', key) < 0 then
                call('DEL', key) -- one that gets no time to live must not stay
            end
            return done
        end
        answer[5], answer[6] = ask(KEYS[#KEYS / 2 + i], author, asked, now)
        local all = call('ZRANGE', key, 0, -1, 'WITHSCORES')
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
            local to = 7 + 2 * math.floor((n - 1) / math.max(each, 1))
            answer[to] = tonumber(others[n][1])
            answer[to + 1] = (answer[to + 1] or 0) + others[n][2]
        end
    end
    at = at + count
    out[i] = answer
end
return out
