-- SPDX-License-Identifier: Apache-2.0
-- The commands of Redis that the scripts use, over Lua's tables. tests/redis/scripts_test.c, histories_test.c and
-- agreement_test.c hold them against a Redis.
--
-- A hash is {fields = values by field, count = fields}; a value is a text, or the number that HINCRBY has left. A sorted
-- set is {scores = scores by member, members = members in order}. Either may have until_ms, when it expires. Errors are
-- returned, as redis.pcall returns them. What Redis answers from a hash in no particular order comes in the order of the
-- fields, so that a run repeats exactly.
local MOST = 9007199254740992 -- 2^53
local format, match, sort, insert, remove = string.format, string.match, table.sort, table.insert, table.remove
local WRONG_TYPE = {err = 'WRONGTYPE Operation against a key holding the wrong kind of value'}
local NOT_AN_INTEGER = {err = 'ERR hash value is not an integer'}

local objects, made, kept = {}, 0, 0 -- made: objects since the last sweep, which left `kept`
local now_us, now_ms = 0, 0

-- The object of a key, if it is of this kind ('fields' or 'scores'; nil: any). Else nothing, and the error if there is
-- an object of the other kind.
local function find(key, kind)
    local object = objects[key]
    if object and object.until_ms and object.until_ms < now_ms then
        objects[key] = nil
        return nil
    end
    if object and kind and not object[kind] then
        return nil, WRONG_TYPE
    end
    return object
end

-- Removes what has expired, once as many objects were made as there were: so an object costs the same, however many there
-- are.
local function sweep()
    made = made + 1
    if made <= kept + 100 then
        return
    end
    made, kept = 0, 0
    for key, object in pairs(objects) do
        if object.until_ms and object.until_ms < now_ms then
            objects[key] = nil
        else
            kept = kept + 1
        end
    end
end

local function find_or_make(key, kind)
    local object, err = find(key, kind)
    if not object and not err then
        object = kind == 'fields' and {fields = {}, count = 0} or {scores = {}, members = {}}
        objects[key] = object
        sweep()
    end
    return object, err
end

-- %d takes half the time of %.17g, and is exact for the numbers of HINCRBY.
local function text(value)
    if type(value) ~= 'number' then
        return value
    end
    return format(value % 1 == 0 and value > -MOST and value < MOST and '%d' or '%.17g', value)
end

-- The number of the first member that is not before this one; nil: that has a larger score.
local function place(set, score, member)
    local scores, members = set.scores, set.members
    local low, high = 1, #members + 1
    while low < high do
        local middle = math.floor((low + high) / 2)
        local other = scores[members[middle]]
        if other < score or (other == score and (not member or members[middle] < member)) then
            low = middle + 1
        else
            high = middle
        end
    end
    return low
end

-- Removes members number `from` to `to`.
local function cut(key, set, from, to)
    local scores, members, count = set.scores, set.members, #set.members
    for i = from, to do
        scores[members[i]] = nil
    end
    local gone = to - from + 1
    for i = from, count do
        members[i] = members[i + gone]
    end
    if members[1] == nil then
        objects[key] = nil
    end
    return gone
end

-- A bound of scores: the score, and whether it is left out.
local function bound(of)
    local inside = match(of, '^%((.*)$')
    local score = inside or of
    return score == '-inf' and -math.huge or score == '+inf' and math.huge or tonumber(score), inside ~= nil
end

-- The numbers of the first and the last member between two bounds.
local function between(set, least, most)
    local low, low_out = bound(least)
    local high, high_out = bound(most)
    return place(set, low, not low_out and '' or nil), place(set, high, high_out and '' or nil) - 1
end

-- The numbers of the first and the last member of two ranks, which count from 0, or from the end if below 0.
local function ranks(set, from, to)
    from, to = tonumber(from), tonumber(to)
    local count = #set.members
    from, to = from < 0 and count + from or from, to < 0 and count + to or to
    return math.max(from, 0) + 1, math.min(to, count - 1) + 1
end

local commands = {}

function commands.TIME()
    return {format('%.0f', math.floor(now_us / 1000000)), format('%.0f', now_us % 1000000)}
end

function commands.EXISTS(key)
    return find(key) and 1 or 0
end

function commands.DEL(key)
    local there = find(key)
    objects[key] = nil
    return there and 1 or 0
end

function commands.PEXPIRE(key, ttl_ms)
    local object = find(key)
    if object then
        object.until_ms = now_ms + tonumber(ttl_ms)
    end
    return object and 1 or 0
end

function commands.PTTL(key)
    local object = find(key)
    return not object and -2 or object.until_ms and object.until_ms - now_ms or -1
end

function commands.HINCRBY(key, field, by)
    local hash, err = find_or_make(key, 'fields')
    if err then
        return err
    end
    local fields = hash.fields
    local value = fields[field]
    if not value then
        value, hash.count = 0, hash.count + 1
    elseif type(value) ~= 'number' then
        value = match(value, '^%-?%d+$') and tonumber(value)
        if not value then
            return NOT_AN_INTEGER
        end
    end
    value = value + by
    fields[field] = value
    return value
end

function commands.HGET(key, field)
    local hash, err = find(key, 'fields')
    return err or (hash and text(hash.fields[field])) or false
end

function commands.HMGET(key, ...)
    local hash, err = find(key, 'fields')
    if err then
        return err
    end
    local values = {...}
    for i = 1, #values do
        values[i] = hash and text(hash.fields[values[i]]) or false
    end
    return values
end

function commands.HSET(key, ...)
    local hash, err = find_or_make(key, 'fields')
    if err then
        return err
    end
    local words, before = {...}, hash.count
    for i = 1, #words, 2 do
        local field = words[i]
        hash.count = hash.count + (hash.fields[field] == nil and 1 or 0)
        hash.fields[field] = text(words[i + 1])
    end
    return hash.count - before
end

function commands.HDEL(key, field)
    local hash, err = find(key, 'fields')
    if err or not hash or hash.fields[field] == nil then
        return err or 0
    end
    hash.fields[field], hash.count = nil, hash.count - 1
    if hash.count == 0 then
        objects[key] = nil
    end
    return 1
end

function commands.HLEN(key)
    local hash, err = find(key, 'fields')
    return err or (hash and hash.count) or 0
end

function commands.HSTRLEN(key, field)
    local value = commands.HGET(key, field)
    return type(value) == 'table' and value or value and #value or 0
end

function commands.HGETALL(key)
    local hash, err = find(key, 'fields')
    if err or not hash then
        return err or {}
    end
    local names, all = {}, {}
    for field in pairs(hash.fields) do
        names[#names + 1] = field
    end
    sort(names)
    for i = 1, #names do
        all[2 * i - 1], all[2 * i] = names[i], text(hash.fields[names[i]])
    end
    return all
end

function commands.HSCAN(key)
    local all = commands.HGETALL(key)
    return all.err and all or {'0', all}
end

-- All names that match, in one page. Of a pattern '*' alone is special here, and a backslash counts for nothing.
function commands.SCAN(_, _, pattern)
    local names = {}
    pattern = string.gsub(pattern, '%W', function(byte)
        return byte == '*' and '.*' or byte ~= '\\' and '%' .. byte or ''
    end)
    pattern = '^' .. pattern .. '$'
    for key in pairs(objects) do
        if match(key, pattern) and find(key) then
            names[#names + 1] = key
        end
    end
    sort(names)
    return {'0', names}
end

function commands.ZADD(key, ...)
    local set, err = find_or_make(key, 'scores')
    if err then
        return err
    end
    local words, added = {...}, 0
    for i = 1, #words, 2 do
        local score, member = bound(words[i]), words[i + 1]
        local before = set.scores[member]
        if before ~= score then
            if before then
                remove(set.members, place(set, before, member))
            end
            insert(set.members, place(set, score, member), member)
            set.scores[member], added = score, added + (before and 0 or 1)
        end
    end
    return added
end

function commands.ZREM(key, member)
    local set, err = find(key, 'scores')
    local score = set and set.scores[member]
    if not score then
        return err or 0
    end
    local at = place(set, score, member)
    return cut(key, set, at, at)
end

function commands.ZSCORE(key, member)
    local set, err = find(key, 'scores')
    return err or (set and text(set.scores[member])) or false
end

function commands.ZCARD(key)
    local set, err = find(key, 'scores')
    return err or (set and #set.members) or 0
end

function commands.ZRANGE(key, first, last, with_scores)
    local set, err = find(key, 'scores')
    if err or not set then
        return err or {}
    end
    local out, from, to = {}, ranks(set, first, last)
    for i = from, to do
        local member = set.members[i]
        out[#out + 1] = member
        if with_scores then
            out[#out + 1] = text(set.scores[member])
        end
    end
    return out
end

function commands.ZCOUNT(key, least, most)
    local set, err = find(key, 'scores')
    if err or not set then
        return err or 0
    end
    local from, to = between(set, least, most)
    return math.max(to - from + 1, 0)
end

function commands.ZREMRANGEBYSCORE(key, least, most)
    local set, err = find(key, 'scores')
    if err or not set then
        return err or 0
    end
    local from, to = between(set, least, most)
    return to >= from and cut(key, set, from, to) or 0
end

function commands.ZREMRANGEBYRANK(key, first, last)
    local set, err = find(key, 'scores')
    if err or not set then
        return err or 0
    end
    local from, to = ranks(set, first, last)
    return to >= from and cut(key, set, from, to) or 0
end

if jit then
    jit.off() -- to compile such short runs costs more than it saves
end

redis = {}

function redis.pcall(name, ...)
    return commands[name](...)
end

function redis.call(name, ...)
    local reply = commands[name](...)
    if type(reply) == 'table' and reply.err then
        error(reply.err, 0)
    end
    return reply
end

function redis.error_reply(text)
    return {err = text}
end

-- What the fleet in memory asks beside the scripts.
local host = {}

-- The time of what follows.
function host.set_time(us)
    now_us, now_ms = us, math.floor(us / 1000)
end

local function copy(value)
    if type(value) ~= 'table' then
        return value
    end
    local to = {}
    for key, one in pairs(value) do
        to[key] = copy(one)
    end
    return to
end

function host.snapshot()
    return copy(objects)
end

function host.restore(from)
    objects = copy(from)
end

-- Removes the objects whose names contain `part`, but for the overrides.
function host.clear(part)
    for key in pairs(objects) do
        if string.find(key, part, 1, true) and not match(key, ':overrides$') then
            objects[key] = nil
        end
    end
end

-- The records whose names contain `part`, in order: name, what it counts less refunds, and the object.
function host.records(part)
    local names, out = {}, {}
    for key in pairs(objects) do
        if string.find(key, ':{', 1, true) and string.find(key, part, 1, true) and find(key) then
            names[#names + 1] = key
        end
    end
    sort(names)
    for i = 1, #names do
        local object = objects[names[i]]
        local sum = object.fields and object.fields.sum
        if sum or object.scores then
            local net = sum and tonumber(match(text(sum), '^%-?%d+')) or
                            #object.members - (object.scores['!reset'] and 1 or 0)
            out[#out + 1] = names[i]
            out[#out + 1] = net
            out[#out + 1] = object
        end
    end
    return out
end

-- The fields of a record that are no author's, beside those with a ':'.
local NO_AUTHORS = {sum = true, unit = true, base = true, mark = true, parts = true}

local function visit_authors(name, fields, visit)
    for field, value in pairs(fields) do
        if not NO_AUTHORS[field] and not match(field, ':') then
            local count, refunds = match(text(value), '^(%d+) ?%d* ?(%d*)')
            visit(name, field, tonumber(count), tonumber(refunds) or 0)
        end
    end
end

-- Each author of each record, as (record, author, count, refunds); or each unit of a log, with a count of 1.
function host.each(visit)
    local records = host.records('')
    for i = 1, #records, 3 do
        local name, object = records[i], records[i + 2]
        local fields = object.fields and object.fields.sum and object.fields
        visit_authors(name, fields or {}, visit)
        for number in string.gmatch(fields and fields.parts or '', '%d+') do
            local part = find(match(name, '^[^}]*}') .. '{' .. number .. '.' .. text(fields.mark) .. '}')
            visit_authors(name, part and part.fields or {}, visit)
        end
        for _, member in ipairs(object.members or {}) do
            if member ~= '!reset' then
                visit(name, match(member, '^(.*):'), 1, 0)
            end
        end
    end
end

host.call = redis.call
return host
