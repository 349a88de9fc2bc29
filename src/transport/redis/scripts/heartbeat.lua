-- SPDX-License-Identifier: Apache-2.0
-- One node is alive, and what time is it here?
--
-- KEYS[1]  sorted set of nodes by their last heartbeat, milliseconds. A member is "node:suspect:lifetime": after so many
--          milliseconds without a heartbeat the node is suspect, and after so many it has failed
-- ARGV     the node's member, its `suspect` and `lifetime`, what it says (0: up to now it has told what it let pass; 1: it
--          leaves; 2: it only asks), fleet time by the node, microseconds (0: it knows none), its host's clock,
--          microseconds (0: not told)
-- Returns  {seconds, microseconds of fleet time, the node's last heartbeat here (0: none), live nodes (with this one),
--          suspect ones, the watermark (the earliest of all their last heartbeats, milliseconds), when this set was begun
--          (microseconds), by how much fleet time is ahead of the server's clock (milliseconds)}
--
-- A heartbeat stands at the time up to which its node has told, by the node. So one that comes late, as a server that
-- hung works off what it was sent, makes nobody live that is not.
--
-- The set keeps its own beginning as a member "!microseconds" beside the nodes, at the end: one that was lost and came
-- again has another. The set outlives its nodes by far: where Redis evicts what would expire next, it is not the first.
--
-- Fleet time goes on by this server's clock, and never goes back. Where the clock does (it was set, or another server's is
-- behind), to before the latest heartbeat, the member says how far: "!microseconds:offset:clock when it was noted". Fleet
-- time is then ahead by the offset, and runs slower by 1/256 until that is gone: less than what nodes slew
-- (fleet/skew.c), so those that are up follow, and those that join find the same. A set that is lost begins where the
-- first node is, if that is ahead by more than a guess. A node that leaves notes the time for the case that it is the last.
--
-- A step of more than an hour has to have a witness, as a member that is not weir's looks like one. Back: the node's own
-- fleet time, which runs by its host's uptime; of a node that knows none, that all heartbeats are later than the clock.
-- Forward: fleet time follows, by up to two years, where the clock of the node's host has gone forward as well (the machines
-- were suspended). Else it stays, and the offset is less than 0; until the clock comes back, or a host's agrees with it.
-- Nodes keep buckets' times in a range of nine years.
--
-- Whatever else stands under the name costs no heartbeat. A key of another type, or a set of more members than a fleet has
-- nodes, is taken away, and the set begins anew. Members that no node writes are taken away: at the set's end, when they
-- are seen there, all of them at once; others when they are late.
local KEEP_MS, NODES_MOST, LIFETIME_MOST_MS, PAGE = '86400000', 10000, 1200000, 100
local SLOWER, GUESS_US, MOST_US, OFFSET_MOST_US = 256, 50000, 3600000000, 3155760000000000 -- 100 years
local FOLLOW_MOST_US = 63072000000000 -- two years: nodes tell times apart by up to four
local MOST, NAME_MOST, match = 9007199254740992, 64, string.match -- 2^53
local BEGUN, NODE = '^!(%d+):?(%-?%d*):?(%d*)$', '^[^:!][^:]*:(%d+):(%d+)$'
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
local by_node_us, by_host_us = tonumber(ARGV[5] or 0), tonumber(ARGV[6] or 0)
noted_us = tonumber(noted_us) or 0
local offset_us = tonumber(noted) or 0
offset_us = math.abs(offset_us) <= OFFSET_MOST_US and offset_us or 0
local latest_us = latest_ms and latest_ms * 1000
if not latest_us and noted ~= '' and noted_us <= MOST then
    latest_us = noted_us + offset_us
end
if offset_us > 0 then
    local passed_us = clock_us - noted_us
    offset_us = math.max(offset_us - math.floor(math.max(passed_us, 0) / SLOWER), 0)
    offset_us = passed_us < -MOST_US and 0 or offset_us -- of a clock that has gone back by more since
end
local changed, shift_us, astray = not begun or (noted ~= '' and offset_us == 0), 0, false
local confirmed = by_host_us > 0 and math.abs(by_host_us - clock_us) <= MOST_US

-- Whether fleet time goes forward to the server's clock.
local function follows(from_us)
    return (confirmed or by_host_us == 0) and clock_us - from_us <= FOLLOW_MOST_US
end

local ahead_us = latest_us and latest_us - (clock_us + offset_us)
if not latest_us then
    -- Where the first node is.
    local least_us, most_us = clock_us + offset_us - MOST_US, clock_us + OFFSET_MOST_US
    if by_node_us > clock_us + offset_us + GUESS_US and by_node_us <= most_us then
        offset_us, changed = by_node_us - clock_us, true
    elseif by_node_us > 0 and by_node_us < least_us and not follows(by_node_us) then
        offset_us, changed = by_node_us - clock_us, true
    end
elseif ahead_us > 0 then
    local real = true
    if ahead_us > MOST_US and by_node_us > 0 then
        real = by_node_us > clock_us + offset_us + MOST_US
    elseif ahead_us > MOST_US and latest_ms then
        real = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] * 1000 > clock_us + offset_us
    end
    if real and latest_us <= clock_us + OFFSET_MOST_US then
        -- The node knows how long ago that was.
        if by_node_us > latest_us and by_node_us < latest_us + lifetime_ms * 1000 then
            latest_us = by_node_us
        end
        offset_us, changed = latest_us - clock_us, true
    else
        astray = true
    end
elseif math.max(by_node_us, latest_us) - (clock_us + offset_us) < -MOST_US then
    local there_us = math.max(by_node_us, latest_us)
    changed = true
    if clock_us <= there_us + MOST_US then
        offset_us = math.max(there_us - clock_us, 0)
    elseif not follows(there_us) then
        offset_us = there_us - clock_us
    else
        offset_us, shift_us = 0, clock_us - there_us
    end
elseif offset_us < 0 and confirmed and follows(clock_us + offset_us) then
    offset_us, shift_us, changed = 0, -offset_us, true
end
if offset_us < 0 and offset_us >= -MOST_US then
    offset_us, changed = 0, true
end
if changed or ARGV[4] == '1' then
    if begun then
        redis.call('ZREM', key, was)
    end
    begun = begun or string.format('%.0f', clock_us)
    local note = offset_us ~= 0 or ARGV[4] == '1'
    local offset = note and string.format(':%.0f:%.0f', offset_us, clock_us) or ''
    redis.call('ZADD', key, '+inf', '!' .. begun .. offset)
end
local now_us = clock_us + offset_us
local now_ms = math.floor(now_us / 1000)
if astray or shift_us > 0 then
    -- Whoever spoke by the time before has spoken by this one.
    local all = redis.call('ZRANGE', key, 0, -2, 'WITHSCORES')
    for i = 1, #all, 2 do
        local then_ms = math.min(tonumber(all[i + 1]) + math.floor(shift_us / 1000), now_ms)
        redis.call('ZADD', key, string.format('%.0f', then_ms), all[i])
    end
end
local own_ms = last
if ARGV[4] == '1' then
    redis.call('ZREM', key, member)
    own_ms = now_ms
elseif ARGV[4] ~= '2' then
    local told_ms = by_node_us > 0 and math.floor(by_node_us / 1000) or now_ms
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
        tonumber(begun), math.floor(offset_us / 1000)}
