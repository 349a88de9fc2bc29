-- SPDX-License-Identifier: Apache-2.0
-- Reports of logs: the time of every unit, as a member "author:number" of a sorted set; and what was asked for.
--
-- KEYS     one record each, then for each record a hash of its authors
-- ARGV     for each record: author, number of the first unit, units given back (from, to: numbers, `to` excluded), now,
--          period, limit, asked, reset (0: none), milliseconds the record lives, count of times, times. In microseconds
--          of fleet time
-- Returns  for each record an array: status (0, or 1: refused), the author's units in the window, all units in it, time
--          of the last reset, what the other authors were asked for, how many these are, then time and units for each
--          group of all units, earliest first, at most 64
--
-- A member is a unit's name, so adding it again changes nothing. What is out of the window, and all but the latest
-- `limit`, is taken away. A reset stands in the set as a member of its own, and goes with the window like the others.
--
-- The hash has for each author what it was asked for, when it said so, and how many of its units are in the set; without
-- units an author is taken away two minutes after its last report.
--
-- A report costs what is new in the set and what leaves it, and at most 64 looks at it. So the authors' units are counted as they
-- come and go. Where the counts do not add up to the set (one of the two was lost, or somebody else has written there)
-- the set is counted anew, as a whole.
--
-- What is not weir's costs no more than the key its limit: members with times beyond 2^53, a reset more than an hour ahead
-- of the author's time, and fields of the hash that nobody can have said are taken away.
local RESET, GROUPS = '!reset', 64
local MOST, BEYOND, AHEAD_US, ASKED_MOST = 9007199254740992, '(9007199254740992', 3600000000, 1099511627776 -- 2^53, 2^40
local FORGET_US, STRETCH_US, LIVES_MS = 120000000, 30000000, 180000
local READ_WHOLE = 2 -- so many units a group are read at once: that costs less than a look at each group
local call, match, format = redis.call, string.match, string.format
local out = {}
local at = 0

-- The authors of a record, each with what it was asked for, when it said so, and its units; nil: the hash is not weir's.
local function read_authors(key, now)
    local fields = redis.pcall('HGETALL', key)
    if fields.err then
        return nil
    end
    local authors = {}
    for n = 1, #fields, 2 do
        local asked, said, held = match(fields[n + 1], '^(%d+) (%d+) (%d+)$')
        asked, said, held = tonumber(asked) or 0, tonumber(said) or 0, tonumber(held) or MOST
        if asked >= ASKED_MOST or said > now + AHEAD_US then
            asked, said = 0, 0
        end
        authors[fields[n]] = {asked = asked, said = said, held = held}
    end
    return authors
end

local function author_in(authors, name)
    authors[name] = authors[name] or {asked = 0, said = 0, held = 0}
    return authors[name]
end

-- Adds to the counts of a list's members' authors.
local function count(authors, members, by)
    for n = 1, #members do
        if members[n] ~= RESET then
            local author = author_in(authors, match(members[n], '^(.*):') or '')
            author.held, author.changed = author.held + by, true
        end
    end
end

-- Takes the members of ranks from .. to out of the set and of the counts.
local function remove(key, authors, from, to)
    if to >= from then
        count(authors, call('ZRANGE', key, from, to), -1)
        call('ZREMRANGEBYRANK', key, from, to)
    end
end

-- Sees to it that the counts are those of the set.
local function verify(key, authors, units)
    local sum = 0
    for _, author in pairs(authors) do
        sum = sum + author.held
        if author.held < 0 then
            sum = MOST
        end
    end
    if sum ~= units then
        for _, author in pairs(authors) do
            author.held, author.changed = 0, true
        end
        count(authors, call('ZRANGE', key, 0, -1), 1)
    end
end

-- Writes down what has changed; returns what the other authors were asked for, and how many they are.
local function note_authors(key, authors, author, now, expire_ms)
    local sum, others, values, gone = 0, 0, {}, {}
    for name, other in pairs(authors) do
        local stands = other.said > now - FORGET_US
        if stands and name ~= author then
            sum, others = (sum + other.asked) % ASKED_MOST, others + 1
        end
        if other.held == 0 and not stands then
            gone[#gone + 1] = name
        elseif other.changed then
            values[#values + 1] = name
            values[#values + 1] = format('%.0f %.0f %.0f', other.asked, other.said, other.held)
        end
    end
    for n = 1, #gone do
        call('HDEL', key, gone[n])
    end
    for n = 1, #values, 2 do
        call('HSET', key, values[n], values[n + 1])
    end
    local own = authors[author]
    if now - own.noted > STRETCH_US or now % 64 == 0 then
        call('PEXPIRE', key, format('%.0f', math.max(LIVES_MS, expire_ms + 2 * STRETCH_US / 1000)))
    end
    return sum, others
end

-- Adds to an answer the set's units in groups, each at the time of its last one. Units of one time are in one group.
local function answer_groups(answer, key, skip, units)
    local each = math.ceil(units / GROUPS)
    local all = each <= READ_WHOLE and call('ZRANGE', key, skip, -1, 'WITHSCORES')
    local upto = 0
    while upto < units do
        local last = math.min(upto + each, units)
        local time
        if all then
            time = all[2 * last]
            while all[2 * last + 2] == time do
                last = last + 1
            end
        else
            local two = call('ZRANGE', key, skip + last - 1, skip + last, 'WITHSCORES')
            time = two[2]
            if two[4] == time then
                last = call('ZCOUNT', key, '-inf', time) - skip
            end
        end
        answer[#answer + 1], answer[#answer + 2] = tonumber(time), last - upto
        upto = last
    end
end

for i = 1, #KEYS / 2 do
    local key, hash, author = KEYS[i], KEYS[#KEYS / 2 + i], ARGV[at + 1]
    local first, gone_from, gone_to = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local now = tonumber(ARGV[at + 5])
    local over = now - tonumber(ARGV[at + 6])
    local limit, asked, reset = tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9])
    local expire_ms, new = tonumber(ARGV[at + 10]), tonumber(ARGV[at + 11])
    at = at + 11
    local answer = {0, 0, 0, 0, 0, 0}
    local was = redis.pcall('ZSCORE', key, RESET)
    if type(was) == 'table' and was.err then
        if string.sub(was.err, 1, 9) ~= 'WRONGTYPE' then
            return redis.error_reply(was.err)
        end
        answer[1] = 1
    else
        local known = read_authors(hash, now)
        local authors = known or {}
        local own = author_in(authors, author)
        own.asked, own.noted, own.said, own.changed = asked, own.said, now, true
        was = tonumber(was or 0)
        if was < 0 or was > now + AHEAD_US then
            call('ZREM', key, RESET)
            was = 0
        end
        reset = math.max(reset, was)
        for number = gone_from, gone_to - 1 do
            own.held = own.held - call('ZREM', key, author .. ':' .. format('%.0f', number))
        end
        if new > 0 then
            local units = {} -- one call for all: there are few enough for a stack
            for n = 1, new do
                units[#units + 1] = ARGV[at + n]
                units[#units + 1] = author .. ':' .. format('%.0f', first + n - 1)
            end
            own.held = own.held + call('ZADD', key, unpack(units))
        end
        call('ZREMRANGEBYSCORE', key, BEYOND, '+inf')
        remove(key, authors, 0, call('ZCOUNT', key, '-inf', format('%.0f', math.max(over, reset))) - 1)
        local mark = 0 -- members that are not units: the mark of a reset, which is the earliest there is
        if reset > over then
            call('ZADD', key, format('%.0f', reset), RESET)
            answer[4], mark = reset, 1
        end
        local units = call('ZCARD', key) - mark
        if units > limit then
            remove(key, authors, mark, mark + units - limit - 1)
            units = limit
        end
        local done = redis.pcall('PEXPIRE', key, format('%.0f', expire_ms))
        if type(done) == 'table' then
            if call('PTTL', key) < 0 then
                call('DEL', key) -- one that gets no time to live must not stay
            end
            return done
        end
        verify(key, authors, units)
        if known then
            answer[5], answer[6] = note_authors(hash, authors, author, now, expire_ms)
        end
        answer[2], answer[3] = own.held, units
        answer_groups(answer, key, mark, units)
    end
    at = at + new
    out[i] = answer
end
return out
