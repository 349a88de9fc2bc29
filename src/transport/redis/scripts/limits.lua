-- SPDX-License-Identifier: Apache-2.0
-- The limits that nodes go by: each node tells its own, and learns those that differ. Nodes with the same limits share
-- one entry, so that a fleet has as many entries as it has different limits: one.
--
-- KEYS[1]  hash: digest of limits -> "until name\nlines": fleet time in milliseconds until which some node has them, the
--          name of the node that told them last, and a line for each policy. Field "version": changes with each entry
--          that comes or goes
-- ARGV     the version that the node has, the digest of its limits, for how long they are told (milliseconds; 0: the
--          node leaves), "name\nlines", and the digest of the limits that it had before, or ""
-- Returns  {version} if that is the node's version, else {version, "name\nlines", ...}, without the node's own
--
-- What a node has had before is removed, unless another node has told the same since; that one tells it again.
--
-- The hash is bounded: entries that are over, too long or told for longer than a node tells them, and those above
-- ENTRIES_MOST, are removed. A key of another type is deleted, as is a hash of more than FIELDS_MOST fields.
-- include common.lua
local ENTRIES_MOST, FIELDS_MOST, SIZE_MOST, LIFE_MOST_MS = 16, 64, 8192, 3600000
local key, digest, life_ms, told, before = KEYS[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local name = match(told, '^[^\n]*')
local clock = call('TIME')
local now_ms = clock[1] * 1000 + floor(clock[2] / 1000)
local fields = pcall('HLEN', key)
if type(fields) == 'table' and not is_wrong_type(fields) then
    return {ARGV[1]} -- this user may not ask: nothing is told, and nothing learned
end
if type(fields) == 'table' or fields > FIELDS_MOST then
    call('DEL', key)
end
local version, is_new, has_gone, out = '', life_ms > 0, false, {''}
local all = call('HGETALL', key)
for i = 1, #all, 2 do
    local field, value = all[i], all[i + 1]
    if field == 'version' then
        version = #value <= 20 and value or ''
    elseif field == digest and life_ms > 0 then
        is_new = false
    else
        local until_ms, text = match(value, '^(%d+) (.*)$')
        local is_left = (field == before or field == digest) and text and match(text, '^[^\n]*') == name
        local left_ms = until_ms and tonumber(until_ms) - now_ms or 0
        if not is_left and #value <= SIZE_MOST and left_ms > 0 and left_ms <= LIFE_MOST_MS and #out < ENTRIES_MOST then
            out[#out + 1] = field ~= digest and text or nil
        else
            call('HDEL', key, field)
            has_gone = true
        end
    end
end
if life_ms > 0 then
    call('HSET', key, digest, format('%.0f', now_ms + life_ms) .. ' ' .. told)
end
if is_new or has_gone or version == '' then
    version = format('%.0f', max(now_ms, (tonumber(version) or 0) + 1))
    call('HSET', key, 'version', version)
end
local failure = expire(key, '86400000')
if failure then
    return failure
end
out[1] = version
return version == ARGV[1] and {version} or out
