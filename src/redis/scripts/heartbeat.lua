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
--
-- Whatever else stands under the name costs no heartbeat. A key of another type, or a set of more members than a fleet has
-- nodes, is taken away, and the set begins anew. Members that no node writes are taken away: at the set's end, when they
-- are seen there, all of them at once; others when they are late.
local KEEP_MS, NODES_MOST, LIFETIME_MOST_MS, PAGE = '86400000', 10000, 1200000, 100
local SLOWER, GUESS_US, MOST_US = 256, 50000, 3600000000
local MOST, NAME_MOST, match = 9007199254740992, 64, string.match -- 2^53
local BEGUN, NODE = '^!(%d+):?(%d*):?(%d*)$', '^[^:!][^:]*:(%d+):(%d+)$'
local key, member, suspect_ms, lifetime_ms = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local clock_us = clock[1] * 1000000 + clock[2]
local count = redis.pcall('ZCARD', key)
if type(count) == 'table' and string.sub(count.err, 1, 9) ~= 'WRONGTYPE' then
    return count
end
if type(count) == 'table' or count > NODES_MOST then
    redis.call('DEL', key)
end

-- Of a member that keeps the set's beginning: the member, and its numbers. Nothing: it is none.
local function beginning(name, score)
    local begun, noted, noted_us = match(name, BEGUN)
    if begun and tonumber(score) == math.huge and tonumber(begun) <= MOST then
        return name, begun, noted, noted_us
    end
end

-- The times after which a node is suspect, and has failed. Nothing: no node has such a member.
local function times(name, score)
    local its_suspect, its_lifetime = match(name, NODE)
    its_suspect, its_lifetime, score = tonumber(its_suspect), tonumber(its_lifetime), tonumber(score)
    if its_lifetime and its_lifetime <= LIFETIME_MOST_MS and #name <= NAME_MOST and score >= 0 and score <= MOST then
        return its_suspect, its_lifetime
    end
end

-- The last two members: of the latest heartbeat when it was, and the set's own. Nothing: there is something else.
local function look()
    local tail = redis.call('ZRANGE', key, -2, -1, 'WITHSCORES')
    local was, begun, noted, noted_us = nil, nil, '', ''
    if #tail > 0 then
        was, begun, noted, noted_us = beginning(tail[#tail - 1], tail[#tail])
    end
    if #tail > 0 and (not was or (#tail > 2 and not times(tail[1], tail[2]))) then
        return
    end
    return true, tonumber(tail[#tail - 2]), was, begun, noted, noted_us
end

-- Takes away all that neither a node nor the set itself writes.
local function clean()
    local from, found, page = 0, false, nil
    repeat
        page = redis.call('ZRANGE', key, from, from + PAGE - 1, 'WITHSCORES')
        for i = 1, #page, 2 do
            local own = not found and beginning(page[i], page[i + 1])
            if own or times(page[i], page[i + 1]) then
                from, found = from + 1, found or own
            else
                redis.call('ZREM', key, page[i])
            end
        end
    until #page == 0
end

local sane, latest_ms, was, begun, noted, noted_us = look()
if not sane then
    clean()
    sane, latest_ms, was, begun, noted, noted_us = look()
end
if not sane then
    -- Nodes, and no beginning.
    latest_ms, was, begun, noted, noted_us = nil, nil, nil, '', ''
end
local last = tonumber(redis.call('ZSCORE', key, member) or 0)
last = last >= 0 and last <= MOST and last or 0
local offset_us = tonumber(noted) or 0
if offset_us > 0 then
    local passed_us = clock_us - (tonumber(noted_us) or 0)
    offset_us = math.max(offset_us - math.floor(math.max(passed_us, 0) / SLOWER), 0)
    offset_us = passed_us < -MOST_US and 0 or offset_us -- of a clock that has gone back by more since: it ends
end
local changed = not begun or (noted ~= '' and offset_us == 0)
local latest_us = begun and (latest_ms or 0) * 1000 or clock_us + offset_us + GUESS_US
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
if changed or back then
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
local own_ms = last
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
        local its_suspect, its_lifetime = times(members[i], members[i + 1])
        if not its_lifetime or quiet_ms > its_lifetime then
            redis.call('ZREM', key, members[i])
        else
            from = from + 1
            suspect = suspect + (quiet_ms > its_suspect and 1 or 0)
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
return {math.floor(now_us / 1000000), now_us % 1000000, last, live, suspect, watermark,
        tonumber(begun)}
