-- SPDX-License-Identifier: Apache-2.0
-- What is in use of a record: of a window the units of all authors less refunds, of a bucket those until it is full, of a
-- sliding log those in the set. Included by read_page.lua and read_use.lua.

-- The answer to a command, nil where the key holds another type, and whether it was refused.
local function ask(...)
    local reply = pcall(...)
    if type(reply) ~= 'table' or not reply.err then
        return reply
    end
    return nil, not is_wrong_type(reply)
end

-- What is in use of one record, and whether a command was refused.
local function use_of(name, now_us)
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
