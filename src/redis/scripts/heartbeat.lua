-- SPDX-License-Identifier: Apache-2.0
-- One node is alive, and what time is it here?
--
-- KEYS[1]  sorted set of nodes by their last heartbeat, milliseconds
-- ARGV     node, milliseconds after which a silent node is gone
-- Returns  {seconds, microseconds, the node's last heartbeat here (0: none), live nodes, when this set was begun, us}
--
-- The set keeps its own beginning as a member "!microseconds" beside the nodes, at the end: one that was lost and came
-- again has another.
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
local lifetime_ms = tonumber(ARGV[2])
local last = redis.call('ZSCORE', KEYS[1], ARGV[1])
local begun = redis.call('ZRANGE', KEYS[1], -1, -1)[1]
if not begun or string.sub(begun, 1, 1) ~= '!' then
    begun = '!' .. now[1] .. string.format('%06d', now[2])
    redis.call('ZADD', KEYS[1], '+inf', begun)
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now_ms), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now_ms - lifetime_ms))
local done = redis.pcall('PEXPIRE', KEYS[1], string.format('%.0f', lifetime_ms * 2))
if type(done) == 'table' then
    if redis.call('PTTL', KEYS[1]) < 0 then
        redis.call('DEL', KEYS[1]) -- one that gets no time to live must not stay
    end
    return done
end
return {tonumber(now[1]), tonumber(now[2]), tonumber(last or 0) or 0, redis.call('ZCARD', KEYS[1]) - 1,
        tonumber(string.sub(begun, 2))}
