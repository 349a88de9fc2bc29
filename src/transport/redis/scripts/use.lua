-- SPDX-License-Identifier: Apache-2.0
-- What is in use of a record: of a window the units of all authors less refunds, of a bucket those until it is full, of a
-- sliding log those in the set. Included by read_page.lua and read_use.lua.

-- The answer to a command, nil where it is an error, and whether the user may not run it. Other errors are of this key
-- alone: it holds another type, or its slot is on its way to this server.
local function ask(...)
    local reply = pcall(...)
    if type(reply) ~= 'table' or not reply.err then
        return reply
    end
    local err = reply.err
    return nil, match(err, 'NOPERM') or match(err, 'ACL') or match(err, 'user executing')
end

-- What is in use of one record, and whether a command was refused.
local function use_of(name, now_us)
    if match(name, '}:l') then
        return ask('ZCARD', name)
    end
    local record, refused = ask('HMGET', name, 'sum', 'unit')
    local unit_ps = record and tonumber(record[2])
    if not unit_ps or unit_ps <= 0 then
        return max(parse(record and record[1]), 0), refused
    end
    local tat
    tat, refused = ask('HGET', name, 'tat:' .. record[2])
    return ceil(min(max((tonumber(tat) or 0) - now_us, 0) * 1000000 / unit_ps, MOST)), refused
end
