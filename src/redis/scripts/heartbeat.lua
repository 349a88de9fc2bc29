-- SPDX-License-Identifier: Apache-2.0
-- One node is alive, and what time is it here?
--
-- KEYS[1]  sorted set of nodes by their last heartbeat, milliseconds. A member is "node:suspect:lifetime": after so many
--          milliseconds without a heartbeat the node is suspect, and after so many it has failed
-- ARGV     the node's member, its `suspect` and `lifetime`, 1: it leaves (else 0)
-- Returns  {seconds, microseconds, the node's last heartbeat here (0: none), live nodes, suspect ones, the watermark (the
--          earliest of all their last heartbeats, milliseconds), when this set was begun (microseconds)}
--
-- The set keeps its own beginning as a member "!microseconds" beside the nodes, at the end: one that was lost and came
-- again has another. The set outlives its nodes by far: where Redis evicts what would expire next, it is not the first.
local KEEP_MS = '86400000'
local key, member, suspect_ms, lifetime_ms = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
local last = redis.call('ZSCORE', key, member)
local begun = redis.call('ZRANGE', key, -1, -1)[1]
if not begun or string.sub(begun, 1, 1) ~= '!' then
    begun = '!' .. now[1] .. string.format('%06d', now[2])
    redis.call('ZADD', key, '+inf', begun)
end
if ARGV[4] == '1' then
    redis.call('ZREM', key, member)
else
    redis.call('ZADD', key, string.format('%.0f', now_ms), member)
end
-- From the one that has been silent longest on. Mostly that is not long, so it is read alone.
local suspect, watermark, from, page, late = 0, now_ms, 0, 0, true
while late do
    local members = redis.call('ZRANGE', key, from, from + page, 'WITHSCORES')
    late = #members > 0
    for i = 1, #members, 2 do
        local beat_ms = tonumber(members[i + 1])
        local quiet_ms = now_ms - beat_ms
        late = quiet_ms > suspect_ms
        if not late then
            watermark = math.min(watermark, beat_ms)
            break
        end
        local its_suspect, its_lifetime = string.match(members[i], '^[^:]*:(%d+):(%d+)')
        if quiet_ms > (tonumber(its_lifetime) or lifetime_ms) then
            redis.call('ZREM', key, members[i])
        else
            from = from + 1
            suspect = suspect + (quiet_ms > (tonumber(its_suspect) or suspect_ms) and 1 or 0)
            watermark = math.min(watermark, beat_ms)
        end
    end
    page = 99
end
local done = redis.pcall('PEXPIRE', key, KEEP_MS)
if type(done) == 'table' then
    if redis.call('PTTL', key) < 0 then
        redis.call('DEL', key) -- one that gets no time to live must not stay
    end
    return done
end
return {tonumber(now[1]), tonumber(now[2]), tonumber(last or 0) or 0, redis.call('ZCARD', key) - 1 - suspect, suspect,
        watermark, tonumber(string.sub(begun, 2))}
