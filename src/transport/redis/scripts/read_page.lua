-- SPDX-License-Identifier: Apache-2.0
-- A page of the names of one server, and what is in use of each record among them: of a window the units of all authors
-- less refunds, of a bucket those until it is full, of a sliding log those in the set. Nothing is written.
--
-- The names are not known before the call, so they are no KEYS. Each is on this server.
--
-- ARGV     the cursor: '0', or that of the page before; the pattern of the names; how many names are looked at; fleet time
--          (microseconds)
-- Returns  {1: the user may not run SCAN, HMGET, HGET or ZCARD; 0, the next cursor ('0': this is the last page), name, units
--          (rounded up), ...}
-- include common.lua
-- include fields.lua
local now_us = tonumber(ARGV[4])
local page = pcall('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
if page.err then
    return {1}
end

-- The answer to a command, nil where the key holds another type, and whether it was refused.
local function ask(...)
    local reply = pcall(...)
    if type(reply) ~= 'table' or not reply.err then
        return reply
    end
    return nil, not is_wrong_type(reply)
end

-- What is in use of one record, and whether a command was refused.
local function use_of(name)
    if match(name, '}:l') then
        return ask('ZCARD', name)
    end
    local record, refused = ask('HMGET', name, 'sum', 'unit')
    local unit_ps = record and tonumber(record[2])
    if not unit_ps or unit_ps <= 0 then
        local count, _, refunds = parse(record and record[1])
        return max(count - refunds, 0), refused
    end
    local tat
    tat, refused = ask('HGET', name, 'tat:' .. record[2])
    return ceil(min(max((tonumber(tat) or 0) - now_us, 0) * 1000000 / unit_ps, MOST)), refused
end

local out, names = {0, page[1]}, page[2]
for n = 1, #names do
    local units, refused = use_of(names[n])
    if refused then
        return {1}
    end
    out[2 * n + 1], out[2 * n + 2] = names[n], units or 0
end
return out
