-- SPDX-License-Identifier: Apache-2.0
-- Reports of sliding logs: the time of every unit, as a member "author:number" of a sorted set, and the demand.
--
-- KEYS     one record each, then for each record a hash of its authors
-- ARGV     for each record: author, number of the first unit, refunded units (from, to: numbers, `to` excluded), now,
--          period, limit, demand, reset (0: none), milliseconds that the record lives, count of times, times. All times
--          but the milliseconds are microseconds of fleet time
-- Returns  for each record an array: status (0, or 1: refused), the author's units in the window, all units in it, time
--          of the last reset, demand of the other authors, number of the other authors, then time and units of each
--          group of all units, earliest first, at most 64 groups
--
-- A member is a unit's name, so adding it again changes nothing. Units outside of the window are removed, and all but
-- the latest `limit` units. A reset is a member of its own, and leaves the window as the units do.
--
-- The hash has for each author its demand, the time of its report, and how many of its units are in the set. An author
-- without units is removed two minutes after its last report.
--
-- A report costs what is new in the set, what leaves the set, and at most 64 reads of it. So the authors' units are
-- counted as they come and go. If the counts do not add up to the size of the set, the whole set is counted again. That
-- happens when one of the two keys was lost, or somebody else has written to it.
--
-- A report of the author '' reads a log, and writes nothing.
--
-- What weir did not write costs the key at most its limit. The script removes members with times beyond 2^53, a reset
-- that is more than an hour ahead of the author's time, and fields of the hash that no author can have written.
-- include common.lua
local RESET, GROUPS = '!reset', 64
local BEYOND, AHEAD_US, DEMAND_END = '(9007199254740992', 3600000000, 1099511627776 -- 2^53; an hour; 2^40
local AUTHOR_US, STRETCH_US, LIVES_MS = 120000000, 30000000, 180000
local MANY = 500 -- fields of one call: Lua's stack has room for them
local READ_WHOLE = 2 -- units a group: up to so many, reading all units costs less than one read for each group
local out = {}
local at = 0

-- The authors of a record, each with its demand, the time of its report, and its units. nil: the hash is not weir's.
local function read_authors(key, now)
    local fields = pcall('HGETALL', key)
    if fields.err then
        return nil
    end
    local authors = {}
    for n = 1, #fields, 2 do
        local demand, reported, units = match(fields[n + 1], '^(%d+) (%d+) (%d+)$')
        demand, reported, units = tonumber(demand) or 0, tonumber(reported) or 0, tonumber(units) or MOST
        if demand >= DEMAND_END or reported > now + AHEAD_US then
            demand, reported = 0, 0
        end
        authors[fields[n]] = {demand = demand, reported = reported, units = units}
    end
    return authors
end

-- The author of this name, which is added if there is none.
local function author_in(authors, name)
    authors[name] = authors[name] or {demand = 0, reported = 0, units = 0}
    return authors[name]
end

-- Adds `by` to the author's units for each of these members.
local function count_members(authors, members, by)
    for n = 1, #members do
        if members[n] ~= RESET then
            local author = author_in(authors, match(members[n], '^(.*):') or '')
            author.units, author.changed = author.units + by, true
        end
    end
end

-- Removes the members of ranks from .. to from the set and from the counts.
local function remove(key, authors, from, to)
    if to >= from then
        count_members(authors, call('ZRANGE', key, from, to), -1)
        call('ZREMRANGEBYRANK', key, from, to)
    end
end

-- Counts the set again if the authors' units do not add up to its size.
local function verify(key, authors, units)
    local sum = 0
    for _, author in pairs(authors) do
        sum = sum + author.units
        if author.units < 0 then
            sum = MOST
        end
    end
    if sum ~= units then
        for _, author in pairs(authors) do
            author.units, author.changed = 0, true
        end
        count_members(authors, call('ZRANGE', key, 0, -1), 1)
    end
end

-- Writes the authors that have changed. Returns the demand of the other authors, and how many other authors there are.
local function write_authors(key, authors, name, now, expire_ms)
    local sum, others, values, gone = 0, 0, {}, {}
    for other_name, other in pairs(authors) do
        local is_recent = other.reported > now - AUTHOR_US
        if is_recent and other_name ~= name then
            sum, others = (sum + other.demand) % DEMAND_END, others + 1
        end
        if other.units == 0 and not is_recent then
            gone[#gone + 1] = other_name
        elseif other.changed then
            values[#values + 1] = other_name
            values[#values + 1] = format(THREE, other.demand, other.reported, other.units)
        end
    end
    for n = 1, #gone do
        call('HDEL', key, gone[n])
    end
    for n = 1, #values, 2 * MANY do
        call('HSET', key, unpack(values, n, min(n + 2 * MANY - 1, #values)))
    end
    if now - authors[name].last_reported > STRETCH_US or now % 64 == 0 then
        call('PEXPIRE', key, format(ONE, max(LIVES_MS, expire_ms + 2 * STRETCH_US / 1000)))
    end
    return sum, others
end

-- Adds the set's units to an answer, in groups. The time of a group is that of its last unit. Units of one time are in
-- one group. `skip`: how many members before the units are none.
local function answer_groups(answer, key, skip, units)
    local each = ceil(units / GROUPS)
    local all = each <= READ_WHOLE and call('ZRANGE', key, skip, -1, 'WITHSCORES')
    local answered = 0
    while answered < units do
        local last = min(answered + each, units)
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
        answer[#answer + 1], answer[#answer + 2] = tonumber(time), last - answered
        answered = last
    end
end

-- Answers a log to one who only reads it: the author ''. `until_us`: units up to this time are outside of the window.
local function answer_reader(answer, key, hash, now, until_us, limit)
    local skip = call('ZCOUNT', key, '-inf', format(ONE, until_us))
    local units = call('ZCOUNT', key, '-inf', format(ONE, MOST)) - skip
    if units > limit then
        skip, units = skip + units - limit, limit
    end
    for _, author in pairs(read_authors(hash, now) or {}) do
        if author.reported > now - AUTHOR_US then
            answer[5], answer[6] = (answer[5] + author.demand) % DEMAND_END, answer[6] + 1
        end
    end
    answer[3] = units
    answer_groups(answer, key, skip, units)
end

for i = 1, #KEYS / 2 do
    local key, hash, name = KEYS[i], KEYS[#KEYS / 2 + i], ARGV[at + 1]
    local first, refund_from, refund_to = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local now = tonumber(ARGV[at + 5])
    local over = now - tonumber(ARGV[at + 6]) -- units up to this time are outside of the window
    local limit, demand, reset = tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9])
    local expire_ms, new = tonumber(ARGV[at + 10]), tonumber(ARGV[at + 11])
    at = at + 11
    local answer = {0, 0, 0, 0, 0, 0}
    local old_reset = pcall('ZSCORE', key, RESET)
    if type(old_reset) == 'table' and old_reset.err then
        if not is_wrong_type(old_reset) then
            return redis.error_reply(old_reset.err)
        end
        answer[1] = 1
    elseif name == '' then
        old_reset = tonumber(old_reset or 0)
        answer[4] = old_reset > over and old_reset <= now + AHEAD_US and old_reset or 0
        answer_reader(answer, key, hash, now, max(over, answer[4]), limit)
    else
        local known = read_authors(hash, now)
        local authors = known or {}
        local author = author_in(authors, name)
        author.demand, author.last_reported, author.reported, author.changed = demand, author.reported, now, true
        old_reset = tonumber(old_reset or 0)
        if old_reset < 0 or old_reset > now + AHEAD_US then
            call('ZREM', key, RESET)
            old_reset = 0
        end
        reset = max(reset, old_reset)
        for number = refund_from, refund_to - 1 do
            author.units = author.units - call('ZREM', key, name .. ':' .. format(ONE, number))
        end
        if new > 0 then
            local units = {} -- one call for all: a report has few enough for Lua's stack
            for n = 1, new do
                units[#units + 1] = ARGV[at + n]
                units[#units + 1] = name .. ':' .. format(ONE, first + n - 1)
            end
            author.units = author.units + call('ZADD', key, unpack(units))
        end
        call('ZREMRANGEBYSCORE', key, BEYOND, '+inf')
        remove(key, authors, 0, call('ZCOUNT', key, '-inf', format(ONE, max(over, reset))) - 1)
        local mark = 0 -- members that are not units: the mark of a reset, which is the earliest member
        if reset > over then
            call('ZADD', key, format(ONE, reset), RESET)
            answer[4], mark = reset, 1
        end
        local units = call('ZCARD', key) - mark
        if units > limit then
            remove(key, authors, mark, mark + units - limit - 1)
            units = limit
        end
        local failure = expire(key, format(ONE, expire_ms))
        if failure then
            return failure
        end
        verify(key, authors, units)
        if known then
            answer[5], answer[6] = write_authors(hash, authors, name, now, expire_ms)
        end
        answer[2], answer[3] = author.units, units
        answer_groups(answer, key, mark, units)
    end
    at = at + new
    out[i] = answer
end
return out
