-- SPDX-License-Identifier: Apache-2.0
-- What every script uses. A line "-- include FILE" of a script stands for the text of the file (embed.py).
local KEYS, ARGV = KEYS, ARGV
local call, pcall = redis.call, redis.pcall
local tonumber, type, match, format = tonumber, type, string.match, string.format
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
local MOST = 9007199254740992 -- 2^53: every integer up to it is exact
-- %d takes half the time of %.0f, and is exact where the server's `long` has 64 bits.
local ONE = format('%d', MOST) == '9007199254740992' and '%d' or '%.0f'
local TWO = ONE .. ' ' .. ONE
local THREE, FOUR = TWO .. ' ' .. ONE, TWO .. ' ' .. TWO

-- True if an error says that the key holds another type.
local function is_wrong_type(reply)
    return string.sub(reply.err, 1, 9) == 'WRONGTYPE'
end

-- Sets the time to live of a key, in milliseconds, as a text. If Redis refuses, the result is the error, with which the
-- script should end. A key that then has no time to live is deleted, because such a key would stay for ever.
local function expire(key, ttl_ms)
    local reply = pcall('PEXPIRE', key, ttl_ms)
    if type(reply) == 'table' then
        if call('PTTL', key) < 0 then
            call('DEL', key)
        end
        return reply
    end
end
