-- SPDX-License-Identifier: Apache-2.0
-- What each author has told of one record. Nothing is written.
--
-- KEYS     a record of a window or a bucket; or that of a sliding log, and the hash of its authors
-- Returns  {1: a key holds another type; 2: there is no record; 0, then for each author its name, what it admitted (of a log:
--          its units in the set), what it was asked for, what was given back to it, and when it reported (a log;
--          microseconds of fleet time)}
-- include common.lua
-- include fields.lua
local key, hash = KEYS[1], KEYS[2]
local OTHERS = {sum = true, unit = true, base = true, mark = true, parts = true} -- fields that are no author's
local out = {0}

-- Adds the authors of a hash. Returns the hash, by fields; nil: there is none.
local function add_counts(name)
    local fields = call('HGETALL', name)
    local by_name = {}
    for n = 1, #fields, 2 do
        by_name[fields[n]] = fields[n + 1]
        if not OTHERS[fields[n]] and not match(fields[n], ':') then
            local count, demand, refunds = parse(fields[n + 1])
            out[#out + 1], out[#out + 2] = fields[n], count
            out[#out + 1], out[#out + 2], out[#out + 3] = demand, refunds, 0
        end
    end
    return #fields > 0 and by_name
end

local function add_log()
    local units, members, fields = {}, call('ZRANGE', key, 0, -1), call('HGETALL', hash)
    for n = 1, #members do
        local name = match(members[n], '^(.*):')
        if name then
            units[name] = (units[name] or 0) + 1
        end
    end
    for n = 1, #fields, 2 do
        local demand, reported = match(fields[n + 1], '^(%d+) (%d+) ')
        out[#out + 1], out[#out + 2] = fields[n], units[fields[n]] or 0
        out[#out + 1], out[#out + 2], out[#out + 3] = tonumber(demand) or 0, 0, tonumber(reported) or 0
        units[fields[n]] = nil
    end
    for name, count in pairs(units) do
        out[#out + 1], out[#out + 2] = name, count
        out[#out + 1], out[#out + 2], out[#out + 3] = 0, 0, 0
    end
    return #members > 0
end

local kind = hash and pcall('ZCARD', key) or pcall('HLEN', key)
local other = hash and pcall('HLEN', hash) or 0
if type(kind) == 'table' or type(other) == 'table' then
    local failure = type(kind) == 'table' and kind or other
    return is_wrong_type(failure) and {1} or failure
end
local there
if hash then
    there = add_log()
else
    local record = add_counts(key)
    there = record
    for number in string.gmatch(record and record.mark and record.parts or '', '%d+') do
        local part = part_of(key, number, record.mark)
        if type(pcall('HLEN', part)) == 'number' then
            add_counts(part)
        end
    end
end
out[1] = there and 0 or 2
return out
