-- SPDX-License-Identifier: Apache-2.0
-- One node is alive, and what time is it here?
--
-- KEYS[1]  sorted set of nodes by their last heartbeat, milliseconds. A member is "node:suspect:lifetime": after so many
--          milliseconds without a heartbeat the node is suspect, and after so many it has failed
-- ARGV     the node's member, its `suspect` and `lifetime`, what it says (0: up to now it has told what it let pass; 1: it
--          leaves; 2: it only asks), fleet time by the node, microseconds (0: it knows none)
-- Returns  {seconds, microseconds of fleet time, the node's last heartbeat here (0: none), live nodes (with this one),
--          suspect ones, the watermark (the earliest of all their last heartbeats, milliseconds), when this set was begun
--          (microseconds)}
--
-- A heartbeat stands at the time up to which its node has told, by the node. So one that comes late, as a server that
-- hung works off what it was sent, makes nobody live that is not.
--
-- The set keeps its own beginning as a member "!microseconds" beside the nodes, at the end: one that was lost and came
-- again has another. The set outlives its nodes by far: where Redis evicts what would expire next, it is not the first.
--
-- Fleet time is this server's clock, and never goes back. Where the clock does (it was set, or another server's is behind),
-- to before the latest heartbeat, the member says how far: "!microseconds:offset:clock when it was noted". Fleet time is
-- then ahead by the offset, and runs slower by 1/256 until that is gone: less than what nodes slew (fleet/skew.c), so
-- those that are up follow, and those that join find the same. A set that is lost begins where the first node is, if that
-- is ahead by more than a guess. Where the clock went back by more than an hour, fleet time goes with it.
local KEEP_MS = '86400000'
local SLOWER, GUESS_US, MOST_US = 256, 50000, 3600000000
local key, member, suspect_ms, lifetime_ms = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local clock_us = clock[1] * 1000000 + clock[2]
local last = redis.call('ZSCORE', key, member)
local tail = redis.call('ZRANGE', key, -2, -1, 'WITHSCORES')
local was = tail[#tail - 1]
local begun, noted, noted_us = string.match(was or '', '^!(%d+):?(%d*):?(%d*)')
local offset_us = tonumber(noted) or 0
if offset_us > 0 then
    local passed_us = math.max(clock_us - (tonumber(noted_us) or 0), 0)
    offset_us = math.max(offset_us - math.floor(passed_us / SLOWER), 0)
end
local changed = not begun or (noted ~= '' and offset_us == 0)
local latest_us = begun and (tonumber(tail[#tail - 2]) or 0) * 1000 or clock_us + offset_us + GUESS_US
if latest_us > clock_us + offset_us then
    -- The node knows how long ago that was.
    local by_node_us = tonumber(ARGV[5] or 0)
    if by_node_us > latest_us and (not begun or by_node_us < latest_us + lifetime_ms * 1000) then
        latest_us = by_node_us
    end
    if begun or latest_us == by_node_us then
        offset_us, changed = latest_us - clock_us, true
    end
end
local back = offset_us > MOST_US
offset_us = back and 0 or offset_us
if changed then
    if begun then
        redis.call('ZREM', key, was)
    end
    begun = begun or string.format('%.0f', clock_us)
    local offset = offset_us > 0 and string.format(':%.0f:%.0f', offset_us, clock_us) or ''
    redis.call('ZADD', key, '+inf', '!' .. begun .. offset)
end
local now_us = clock_us + offset_us
local now_ms = math.floor(now_us / 1000)
if back then
    -- Whoever spoke by the time before has spoken now.
    local all = redis.call('ZRANGE', key, 0, -2, 'WITHSCORES')
    for i = 1, #all, 2 do
        if tonumber(all[i + 1]) > now_ms then
            redis.call('ZADD', key, string.format('%.0f', now_ms), all[i])
        end
    end
end
local own_ms = tonumber(last or 0) or 0
if ARGV[4] == '1' then
    redis.call('ZREM', key, member)
    own_ms = now_ms
elseif ARGV[4] ~= '2' then
    local told_ms = tonumber(ARGV[5] or 0) > 0 and math.floor(ARGV[5] / 1000) or now_ms
    own_ms = math.min(math.max(told_ms, own_ms), now_ms)
    redis.call('ZADD', key, string.format('%.0f', own_ms), member)
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
local live = redis.call('ZCARD', key) - 1 - suspect
if now_ms - own_ms > suspect_ms then
    live = live + 1 -- it speaks, but has not told yet
    suspect = math.max(suspect - (now_ms - own_ms <= lifetime_ms and 1 or 0), 0)
end
return {math.floor(now_us / 1000000), now_us % 1000000, tonumber(last or 0) or 0, live, suspect, watermark,
        tonumber(begun)}
